"""Comparison of a run's outputs: with the reference, and with those of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from fusec import driver
from fusec.commands.facts import Facts, verdict_facts
from fusec.commands.report import no_array, print_verdict
from fusec.commands.terminal.progress import working
from fusec.dataclasses import dataclass

if TYPE_CHECKING:
    from fusec.driver import Package
    from fusec.ir.graph import Fusion
    from fusec.reference.errors.nodes import Model
    from fusec.reference.verdict import Verdict


@dataclass(frozen=True)
class Judging:
    """Criteria for correct outputs.

    rtol, atol: relative and absolute tolerances instead of the expected errors; allow_undecided: an
    inconclusive verdict counts as correct; seed: of the sampled slices; everything: compare all
    elements instead of sampling, however long it takes.
    """

    rtol: float | None = None
    atol: float | None = None
    allow_undecided: bool = False
    seed: int = 0
    everything: bool = False

    @property
    def limit(self) -> float | None:
        """Return the number of operations above which slices are sampled; None for the default."""
        return inf if self.everything else None

    @property
    def by_tolerance(self) -> bool:
        """Return whether tolerances are given."""
        return self.rtol is not None or self.atol is not None

    def accepts(self, verdict: Verdict) -> bool:
        """Return whether a verdict is a success."""
        from fusec.reference.verdict import NOT_DECIDED

        return verdict.ok or (self.allow_undecided and verdict.word == NOT_DECIDED)


Arrays = Mapping[str, Any]
REFERENCE = "reference"
"""Name of the reference in JSON, where a file would have its path."""


@dataclass(frozen=True)
class Compared:
    """Whether outputs are accepted, and the JSON record of the comparison."""

    accepted: bool
    facts: Facts


def verify(
    package: Package,
    inputs: Arrays,
    sizes: Mapping[str, int],
    outputs: Arrays,
    how: Judging,
) -> Compared:
    """Compare outputs with the reference, print the verdict, and return it."""
    program = package.program

    def show(verdict: Verdict) -> None:
        print_verdict(package, verdict)

    model = partial(driver.model_of, program.host, sizes)
    return judge(program.original, model, inputs, sizes, outputs, how, show)


def judge(
    fusion: Fusion,
    model: Callable[[], Model],
    inputs: Arrays,
    sizes: Mapping[str, int],
    outputs: Arrays,
    how: Judging,
    show: Callable[[Verdict], None] | None = None,
) -> Compared:
    """Compare outputs with the reference, print the result, and return it.

    model: expected errors, used if no tolerances are given. show: prints a verdict.
    """
    from fusec.reference.verdict import compare

    if how.by_tolerance:
        with working("comparing with the reference"):
            reference = driver.reference(fusion, inputs, sizes)
            found = differences(fusion, outputs, reference, how)
        lines = _differing(found, "the reference")
        print("\n".join(["differs", *lines] if lines else ["within the tolerances"]))
        return _by_tolerance(found, REFERENCE)
    with working("comparing with the reference"):
        verdict = compare(
            fusion, sizes, inputs, outputs, model=model(), seed=how.seed, limit=how.limit
        )
    if show is None:
        print(verdict.text())
    else:
        show(verdict)
    accepted = how.accepts(verdict)
    return Compared(accepted, verdict_facts(verdict, accepted, REFERENCE))


def agree(
    fusion: Fusion,
    inputs: Arrays,
    sizes: Mapping[str, int],
    outputs: Arrays,
    expected: Arrays,
    path: str,
    how: Judging,
    *,
    verified: bool,
) -> Compared:
    """Compare outputs with those of a file, which may have equal errors, and print differences.

    verified: the outputs are known to be correct. Those of the file may then follow another
    definition, which rounds less than the fusion does.
    """
    from fusec.reference.definitions import other_definitions
    from fusec.reference.verdict import DIFFERS, compare

    shaped = [_other_shape(n, outputs[n], a) for n, a in expected.items()]
    if any(d.shape is not None for d in shaped) or how.by_tolerance:
        wrong = any(d.shape is not None for d in shaped)
        found = shaped if wrong else differences(fusion, outputs, expected, how)
        lines = _differing(found, f"`{path}`")
        print("\n".join(lines or [f"as in {path}, within the tolerances"]))
        return _by_tolerance(found, path)
    with working("comparing with the file"):
        # The order of the file's sums is not known.
        verdict = compare(
            fusion,
            sizes,
            inputs,
            outputs,
            given=expected,
            poison=False,
            seed=how.seed,
            limit=how.limit,
        )
        for other in other_definitions(fusion) if verified and not verdict.ok else ():
            judged = (fusion, sizes, inputs, expected)
            found = compare(
                *judged, model=other.model, poison=False, seed=how.seed, limit=how.limit
            )
            if found.ok:
                print(f"as in {path}, by an equivalent definition: with {other.text}")
                facts = verdict_facts(found, True, path)
                return Compared(True, {**facts, "definition": other.text})
    if verdict.ok:
        print(f"as in {path}")
    for output in verdict.outputs:
        if output.word == DIFFERS:
            share = f"{output.wrong} of {output.checked} elements differ from `{path}`"
            print(f"{output.name}: {share}, first at {output.worst[0].text()}")
        elif not output.ok:
            print(f"{output.name}: inconclusive against {path}, {output.reason}")
    accepted = how.accepts(verdict)
    return Compared(accepted, verdict_facts(verdict, accepted, path))


def load_expected(fusion: Fusion, path: str) -> dict[str, Any]:
    """Return the outputs in a file by name; FusecError if one is missing or of another type."""
    from fusec.run.arrays import as_declared, load_arrays

    arrays = load_arrays(path)
    for output in fusion.outputs:
        if output.value.name not in arrays:
            raise no_array(path, output.value.name, arrays)
    values = (o.value for o in fusion.outputs)
    return {v.name: as_declared(v.name, arrays[v.name], v.dtype) for v in values}


@dataclass(frozen=True)
class Difference:
    """How one output differs: in shape, or in elements; the first differing one is shown.

    shape: the found and the expected shape, if they differ. wrong: number of elements outside the
    tolerances; 0 for an output that does not differ.
    """

    name: str
    checked: int
    wrong: int = 0
    index: tuple[int, ...] = ()
    found: Any = None
    expected: Any = None
    shape: tuple[list[int], list[int]] | None = None

    @property
    def differs(self) -> bool:
        """Return whether it differs at all."""
        return bool(self.wrong) or self.shape is not None

    def text(self, where: str) -> str:
        """Return one line; where: what it is compared with."""
        if self.shape is not None:
            return f"{self.name}: has shape {self.shape[0]}, in {where} {self.shape[1]}"
        share = f"{self.wrong} of {self.checked} elements differ from {where}"
        place = f"{list(self.index)}: {self.found:g}, there {self.expected:g}"
        return f"{self.name}: {share}, first at {place}"

    def facts(self) -> Facts:
        """Return it as a JSON object, with the keys of a verdict where they apply."""
        from fusec.reference.verdict import DIFFERS, VERIFIED

        worst = {"index": self.index, "found": self.found, "expected": self.expected, "limit": None}
        return {
            "name": self.name, "word": DIFFERS if self.differs else VERIFIED,
            "reason": None if self.shape is None else "the shapes differ", "checked": self.checked,
            "wrong": self.wrong, "worst": [worst] if self.wrong else [],
        }  # fmt: skip


def _other_shape(name: str, found: Any, expected: Any) -> Difference:
    if found.shape == expected.shape:
        return Difference(name, 0)
    return Difference(name, 0, shape=([*found.shape], [*expected.shape]))


def _differing(found: Sequence[Difference], where: str) -> list[str]:
    return [difference.text(where) for difference in found if difference.differs]


def _by_tolerance(found: Sequence[Difference], against: str) -> Compared:
    from fusec.reference.verdict import DIFFERS, VERIFIED

    right = not any(difference.differs for difference in found)
    return Compared(
        right,
        {
            "against": against, "word": VERIFIED if right else DIFFERS, "accepted": right,
            "coverage": "all", "definition": None, "compared": [d.facts() for d in found],
        },
    )  # fmt: skip


def differences(
    fusion: Fusion, outputs: Arrays, expected: Arrays, how: Judging
) -> list[Difference]:
    """Return for each output how many elements are outside the tolerances."""
    import numpy as np

    compared = list[Difference]()
    for output in fusion.outputs:
        name, dtype = output.value.name, output.value.dtype
        wide = np.complex128 if dtype.is_complex else np.float64
        found, wanted = outputs[name].astype(wide), expected[name].astype(wide)
        close = np.isclose(
            found, wanted, rtol=how.rtol or 0.0, atol=how.atol or 0.0, equal_nan=True
        )
        wrong = int((~close).sum())
        at = tuple(int(i) for i in np.argwhere(~close)[0]) if wrong else ()
        shown = (found[at].item(), wanted[at].item()) if wrong else ()
        compared.append(Difference(name, int(close.size), wrong, at, *shown))
    return compared
