"""Compare results with expected values: verified, different, or inconclusive."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from typing import Any

import numpy

from fusec.dataclasses import dataclass, field, replace
from fusec.diagnostics import FusecError
from fusec.ir.arrays import computed_by, host, np
from fusec.ir.evaluate import Array, Sizes, extents, widen
from fusec.ir.graph import Fusion, Value
from fusec.reference.cause import find_causes
from fusec.reference.detection import LEAST_POWER, OPEN_SHARE, Power, joined, power
from fusec.reference.errors.estimate import Estimate
from fusec.reference.errors.nodes import Model
from fusec.reference.evaluate import find_values
from fusec.reference.gpu import chosen, on_the_host
from fusec.reference.judge import Judged, agree, judge, judge_with_shared_error
from fusec.reference.part import Coverage, Index
from fusec.reference.simulation import simulate
from fusec.reference.stream import Stream
from fusec.reference.views import View, find_view

WORST = 5
"""Wrong elements that are listed for each output."""
LONGEST = 3.0
"""Predicted seconds beyond which slices are sampled. Integers are verified in as many again, and
cores that share memory take up to 1.5 times as long: less than 10 s in total."""
LEAST_AGREEMENT = 0.2
"""The same between two results that are both rounded, one of them after every operation."""

VERIFIED, DIFFERS, NOT_DECIDED = "verified", "differs", "inconclusive"


@dataclass(frozen=True)
class Worst:
    """One element with its index, the actual and expected values, and its limit."""

    index: tuple[int, ...]
    found: Any
    expected: Any
    limit: float

    def text(self) -> str:
        """Return the element as one line."""
        place = ", ".join(str(i) for i in self.index)
        slack = f" +- {self.limit:.3g}" if self.limit else ""
        return f"[{place}]: {_number(self.found)}, expected {_number(self.expected)}{slack}"


def _rounded(number: float) -> str:
    """Return a positive number with two significant digits and no exponent."""
    return f"{float(f'{number:.2g}'):.15g}"


def _number(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class OutputVerdict:
    """How one output compares.

    ratio: the largest error over the expected one, right up to `estimate.LIMIT`. open: elements
    with an unknown expected value. power: the smallest scale error that some elements detect; lost:
    the smallest detectable fraction of one of 64 parts of the last reduction, None if there is no
    such reduction. least: the power that is needed; few elements of a coarse type may not detect
    less than its rounding. cause: of an inconclusive verdict: where errors grow too large, and how
    to make it conclusive.
    """

    name: str
    checked: int
    wrong: int
    unwritten: int
    open: int
    error: float
    ratio: float
    power: float
    lost: float | None = None
    worst: tuple[Worst, ...] = ()
    least: float = LEAST_POWER
    cause: str | None = None

    @property
    def word(self) -> str:
        """Return `verified`, `differs` or `inconclusive`."""
        return DIFFERS if self.wrong else NOT_DECIDED if self.reason else VERIFIED

    @property
    def ok(self) -> bool:
        """Return whether the output is verified."""
        return self.word == VERIFIED

    @property
    def reason(self) -> str | None:
        """Return why correct elements prove nothing."""
        if self.open > max(self.checked * OPEN_SHARE, 2):
            share = f"{self.open} of {self.checked}"
            why = f"{share} elements are within their errors of a pole or discontinuity"
        elif self.power > self.least:
            why = f"a scale error of {self.power:.2g} is below the detection limit"
        else:
            return None
        return f"{why} ({self.cause})" if self.cause else why

    def text(self) -> str:
        """Return one line, and one for each of the worst elements."""
        if self.wrong:
            share = f"{self.wrong} of {self.checked} elements differ"
            line = f"{self.name}: {share}, max error {self.error:.3g}"
        elif self.reason is not None:
            line = f"{self.name}: inconclusive, {self.reason}"
        else:
            line = f"{self.name}: ok, max error {self.error:.3g}, {self.ratio:.2g} sigma"
            line += f"; detection limit: {self.power:.1g} relative scale error"
            if self.lost:
                line += f", one lost partial sum in {_rounded(64 / self.lost)}"
        if self.unwritten:
            line += f", {self.unwritten} never written"
        return "\n".join((line, *(f"  {w.text()}" for w in self.worst)))


@dataclass(frozen=True)
class Verdict:
    """How all outputs compare, and which part of them was checked."""

    outputs: tuple[OutputVerdict, ...]
    coverage: Coverage
    seconds: float

    @property
    def word(self) -> str:
        """Return `differs` if an output does, else `inconclusive` if one is."""
        words = {o.word for o in self.outputs}
        return next((w for w in (DIFFERS, NOT_DECIDED) if w in words), VERIFIED)

    @property
    def ok(self) -> bool:
        """Return whether every output is verified."""
        return self.word == VERIFIED

    @property
    def ratio(self) -> float:
        """Return the largest error over the expected one."""
        return max((o.ratio for o in self.outputs), default=0.0)

    @property
    def power(self) -> float:
        """Return the smallest scale error that every output detects."""
        return max((o.power for o in self.outputs), default=0.0)

    def inexact(self, names: Collection[str]) -> list[str]:
        """Return which of the named outputs have any error; the others are exact."""
        return [o.name for o in self.outputs if o.name in names and o.error]

    def text(self) -> str:
        """Return the verdict on one line, then a line for each output."""
        lines = [f"{self.word} (checked: {self.coverage.text()})"]
        return "\n".join([*lines, *(o.text() for o in self.outputs)])


@dataclass
class _Tally:
    """Counts of one output, gathered block by block of the value that it is a view of.

    found, given: in the shape of that value.
    """

    value: Value
    view: View
    found: Array
    given: Array | None
    poison: bool
    checked: int = 0
    wrong: int = 0
    unwritten: int = 0
    open: int = 0
    error: float = 0.0
    ratio: float = 0.0
    powers: list[Power] = field(default_factory=list[Power])
    worst: list[tuple[float, Worst]] = field(default_factory=list[tuple[float, Worst]])

    def add(self, index: Index, expected: Estimate, lock: threading.Lock) -> None:
        raw = self.found[index] if index else self.found
        found, dtype = widen(raw, self.value.dtype), self.value.dtype
        if self.given is None:
            judged, wanted = judge(found, expected, dtype), None
        else:
            wanted = _wide(self.given[index] if index else self.given)
            expected = replace(expected, shared=None)  # both have a shared error of their own
            judged = agree(found, wanted, expected, dtype)
        shown = power(expected, dtype)
        if shown.given_shared_error and expected.shared is not None and not judged.wrong.any():
            judged = replace(
                judged, wrong=judge_with_shared_error(found, expected, expected.shared)
            )
        wrong, unwritten, worst = judged.wrong, 0, list[tuple[float, Worst]]()
        finite = judged.errors
        if not wrong.any():
            finite = finite[np.isfinite(finite)]
        else:
            there = host(found), host(wanted), on_the_host(expected), judged.on_the_host()
            with computed_by(None):
                worst = self._find_worst(index, *there)
                if self.poison:
                    unwritten = int(np.count_nonzero(there[-1].wrong & _poisoned(raw)))
        with lock:
            self.checked += int(found.size)
            self.wrong += int(np.count_nonzero(wrong))
            self.unwritten += unwritten
            self.open += judged.open
            self.error = max(self.error, float(np.max(finite, initial=0.0)))
            self.ratio = max(self.ratio, judged.ratio)
            self.powers.append(shown)
            self.worst = sorted((*self.worst, *worst), key=lambda w: (-w[0], w[1].index))[:WORST]

    def _find_worst(
        self, index: Index, found: Array, wanted: Array | None, expected: Estimate, judged: Judged
    ) -> list[tuple[float, Worst]]:
        places = np.argwhere(judged.wrong)
        errors = judged.errors[judged.wrong]
        offset = [i.start or 0 for i in index] + [0] * (found.ndim - len(index))
        held = expected.settled
        limits = np.broadcast_to(judged.limit(held), found.shape)
        value = np.broadcast_to(held.value if wanted is None else wanted, found.shape)
        result: list[tuple[float, Worst]] = []
        most = np.arange(len(errors))
        if len(errors) > WORST:
            # Only the largest are sorted, including ties with the last of them.
            most = np.flatnonzero(errors >= np.partition(errors, -WORST)[-WORST])
        for k in most[np.argsort(-errors[most], kind="stable")[:WORST]]:
            at = tuple(int(i) for i in places[k])
            place = tuple(int(i) + o for i, o in zip(at, offset, strict=True))
            element = Worst(
                self.view.index(place), found[at].item(), value[at].item(), float(limits[at])
            )
            result.append((float(errors[k]), element))
        return result

    def verdict(self) -> OutputVerdict:
        worst = tuple(w for _, w in self.worst)
        shown = joined(self.powers)
        limit = shown.scale_error(rounded=self.value.dtype.is_rounded)
        least = LEAST_POWER if self.given is None else LEAST_AGREEMENT
        return OutputVerdict(
            self.value.name, self.checked, self.wrong, self.unwritten, self.open,
            self.error, self.ratio, limit, shown.lost_part(), worst,
            max(least, self.value.dtype.epsilon),
        )  # fmt: skip


def _poisoned(raw: Array) -> Array:
    """Return which elements still hold the pattern that outputs are filled with before a run."""
    bytes_ = np.ascontiguousarray(raw).view(np.uint8).reshape(*raw.shape, raw.dtype.itemsize)
    return np.all(bytes_ == 0xFF, axis=-1)


def compare(
    fusion: Fusion,
    sizes: Sizes,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    *,
    model: Model | None = None,
    given: Mapping[str, Any] | None = None,
    poison: bool = True,
    seed: int = 0,
    limit: float | None = None,
) -> Verdict:
    """Return how `outputs` compare with the expected results of the computation `model`.

    given: other results for some of the outputs, of their shapes and with errors of their own, to
    agree with. poison: outputs were filled with 0xFF bytes before the run. Beyond `limit` predicted
    seconds on the processors that this process may use (`LONGEST` for None) slices are sampled.
    """
    with chosen():
        return _compared(fusion, sizes, inputs, outputs, model, given, poison, seed, limit)


def _compared(
    fusion: Fusion, sizes: Sizes, inputs: Mapping[str, Any], outputs: Mapping[str, Any],
    model: Model | None, given: Mapping[str, Any] | None, poison: bool, seed: int,
    limit: float | None,
) -> Verdict:  # fmt: skip
    began = time.perf_counter()
    values, tallies = find_values(fusion, None), dict[Value, _Tally]()
    for value in values:
        view, other = find_view(fusion, value, sizes), None
        if given is not None and value.name in given:
            other = view.restored(numpy.asarray(given[value.name]))
        found = view.restored(_checked(value, outputs, sizes))
        tallies[value] = _Tally(value, view, found, other, poison)
    by_root: dict[Value, list[_Tally]] = {}
    for tally in tallies.values():
        by_root.setdefault(tally.view.root, []).append(tally)
    lock = threading.Lock()

    def consume(value: Value, index: Index, part: Estimate) -> None:
        for tally in by_root[value]:
            tally.add(index, part, lock)

    budget = LONGEST if limit is None else limit
    stream = Stream(fusion, inputs, sizes, list(by_root), model or Model(), budget)
    coverage = stream.run(consume, seed)
    verdicts = {v: tallies[v].verdict() for v in values}
    undecided = [v for v in values if verdicts[v].word == NOT_DECIDED]
    evaluated = (fusion, inputs, sizes, model or Model())
    if undecided:
        tried = [tallies[v] for v in undecided]
        roots = list(dict.fromkeys(tally.view.root for tally in tried))
        verdicts |= _judged_by(simulate(*evaluated, roots, budget, seed), tried)
        undecided = [v for v in values if verdicts[v].word == NOT_DECIDED]
    if undecided:
        for value, cause in find_causes(*evaluated, undecided, budget, seed).items():
            verdicts[value] = replace(verdicts[value], cause=cause)
    return Verdict(tuple(verdicts.values()), coverage, time.perf_counter() - began)


def _judged_by(
    simulated: Mapping[Value, Estimate], tallies: Collection[_Tally]
) -> dict[Value, OutputVerdict]:
    """Return how outputs compare with simulated errors, for outputs that have any."""
    found = dict[Value, OutputVerdict]()
    for old in tallies:
        if old.view.root in simulated:
            tally = _Tally(old.value, old.view, old.found, old.given, old.poison)
            tally.add((), simulated[old.view.root], threading.Lock())
            found[old.value] = tally.verdict()
    return found


def verdict_on(value: Value, found: Array, expected: Estimate) -> OutputVerdict:
    """Return how one output compares with its expected value, both whole."""
    tally = _Tally(value, View(value, (), {}), found, None, poison=False)
    tally.add((), expected, threading.Lock())
    return tally.verdict()


def _wide(array: Array) -> Array:
    """Return an array computed elsewhere, of any type, as the reference holds it."""
    if array.dtype.kind in "biu":
        return np.asarray(array)
    return np.asarray(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64))


def _checked(value: Value, arrays: Mapping[str, Any], sizes: Sizes) -> Array:
    """Return the array of an output; FusecError if it is missing or has another shape."""
    if value.name not in arrays:
        raise FusecError(f"output `{value.name}` is missing")
    found, shape = numpy.asarray(arrays[value.name]), extents(value.type, sizes)
    if found.shape != shape:
        raise FusecError(
            f"output `{value.name}` has shape {list(found.shape)}, expected {list(shape)}"
        )
    if found.dtype != value.dtype.numpy:
        raise FusecError(
            f"output `{value.name}` has dtype {found.dtype}, expected {value.dtype.long}"
        )
    return found
