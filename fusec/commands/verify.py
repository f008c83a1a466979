"""How a run compares its outputs: with the reference, and with those of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from fusec import driver
from fusec.commands.progress import working
from fusec.commands.report import no_array, print_verdict

if TYPE_CHECKING:
    from fusec.driver import Package
    from fusec.ir.graph import Fusion
    from fusec.reference.nodes import Model
    from fusec.reference.verdict import Verdict


@dataclass(frozen=True)
class Judging:
    """What counts as right.

    rtol, atol: instead of the expected errors, how far elements may be off, relative to what they
    should be and absolute; allow_undecided: what is not decided counts as right, too; seed: of the
    slices that are sampled; everything: none are, however long it takes.
    """

    rtol: float | None = None
    atol: float | None = None
    allow_undecided: bool = False
    seed: int = 0
    everything: bool = False

    @property
    def limit(self) -> float | None:
        """Return the operations beyond which slices are sampled; None for the usual ones."""
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


def verify(
    package: Package,
    inputs: Arrays,
    sizes: Mapping[str, int],
    outputs: Arrays,
    how: Judging,
) -> bool:
    """Compare outputs with the reference, print the verdict, and return whether it is accepted."""
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
) -> bool:
    """Compare outputs with the reference, print how they do, and return whether that is accepted.

    model: what is expected of their errors, where no tolerances are given. show: prints a verdict.
    """
    from fusec.reference.verdict import compare

    with working("comparing with the reference"):
        if how.by_tolerance:
            reference = driver.reference(fusion, inputs, sizes)
            lines = differences(fusion, outputs, reference, "the reference", how)
            print("\n".join(["differs", *lines] if lines else ["within the tolerances"]))
            return not lines
        verdict = compare(
            fusion, sizes, inputs, outputs, model=model(), seed=how.seed, limit=how.limit
        )
    if show is None:
        print(verdict.text())
    else:
        show(verdict)
    return how.accepts(verdict)


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
) -> bool:
    """Compare outputs with those of a file, which err by as much, and say where they differ.

    verified: the outputs are known to be right. Those of the file may then follow another
    definition, which rounds less than the fusion does.
    """
    from fusec.reference.definitions import other_definitions
    from fusec.reference.verdict import DIFFERS, compare

    shapes = [
        f"{name}: has shape {list(outputs[name].shape)}, in `{path}` {list(array.shape)}"
        for name, array in expected.items()
        if outputs[name].shape != array.shape
    ]
    if shapes or how.by_tolerance:
        lines = shapes or differences(fusion, outputs, expected, f"`{path}`", how)
        print("\n".join(lines or [f"as in {path}, within the tolerances"]))
        return not lines
    with working("comparing with the file"):
        # How the file's sums were taken is not known.
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
                print(f"as in {path}, by another definition: with {other.text}")
                return True
    if verdict.ok:
        print(f"as in {path}")
    for output in verdict.outputs:
        if output.word == DIFFERS:
            share = f"{output.wrong} of {output.checked} elements differ from `{path}`"
            print(f"{output.name}: {share}, first at {output.worst[0].text()}")
        elif not output.ok:
            print(f"{output.name}: not decided whether as in {path}, {output.reason}")
    return how.accepts(verdict)


def load_expected(fusion: Fusion, path: str) -> dict[str, Any]:
    """Return the outputs in a file by name; FusecError where one is missing or of another type."""
    from fusec.run.arrays import as_declared, load_arrays

    arrays = load_arrays(path)
    for output in fusion.outputs:
        if output.value.name not in arrays:
            raise no_array(path, output.value.name, arrays)
    values = (o.value for o in fusion.outputs)
    return {v.name: as_declared(v.name, arrays[v.name], v.dtype) for v in values}


def differences(
    fusion: Fusion, outputs: Arrays, expected: Arrays, where: str, how: Judging
) -> list[str]:
    """Return a line for each output that is further off than the tolerances, none where none is."""
    import numpy as np

    lines: list[str] = []
    for output in fusion.outputs:
        name, dtype = output.value.name, output.value.dtype
        wide = np.complex128 if dtype.is_complex else np.float64
        found, wanted = outputs[name].astype(wide), expected[name].astype(wide)
        close = np.isclose(
            found, wanted, rtol=how.rtol or 0.0, atol=how.atol or 0.0, equal_nan=True
        )
        if not close.all():
            at = tuple(int(i) for i in np.argwhere(~close)[0])
            wrong = f"{int((~close).sum())} of {close.size} elements differ from {where}"
            lines.append(
                f"{name}: {wrong}, first at {list(at)}: {found[at]:g}, there {wanted[at]:g}"
            )
    return lines
