"""Compare results with the reference, element by element, against the running error bound."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fusec.diagnostics import FusecError
from fusec.ir.dtype import DType
from fusec.ir.evaluate import Array, Sizes, extents, parts_of, widen
from fusec.ir.graph import Fusion, Value
from fusec.reference.bounds import Bounded
from fusec.reference.evaluate import find_values
from fusec.reference.stream import Coverage, Index, Stream

EXCUSED_SHARE = 1e-3
"""Share of an output's elements that a jump inside the error bound may excuse."""
WORST = 5
"""Wrong elements that are listed for each output."""
WORK_LIMIT = 4e9
"""Elements times operations per core beyond which slices are sampled."""


@dataclass(frozen=True)
class Worst:
    """One element with its index, what was found and expected, and how far it may be off."""

    index: tuple[int, ...]
    found: Any
    expected: Any
    bound: float

    def text(self) -> str:
        """Return the element as one line."""
        place = ", ".join(str(i) for i in self.index)
        slack = f" +- {self.bound:.3g}" if self.bound else ""
        return f"[{place}]: {_number(self.found)}, expected {_number(self.expected)}{slack}"


def _number(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class OutputVerdict:
    """How one output compares: `ratio` is the largest error over its bound, right up to 1."""

    name: str
    checked: int
    wrong: int
    unwritten: int
    excused: int
    error: float
    ratio: float
    worst: tuple[Worst, ...] = ()

    @property
    def too_many_excused(self) -> bool:
        """Return whether more elements are excused than may be; two, that change places, may."""
        return self.excused > max(2, int(self.checked * EXCUSED_SHARE))

    @property
    def ok(self) -> bool:
        """Return whether every element is right or excused."""
        return not self.wrong and not self.too_many_excused

    def text(self) -> str:
        """Return one line, and one for each of the worst elements."""
        if self.ok:
            line = f"{self.name}: ok, max error {self.error:.3g}, {self.ratio:.2f} of the bound"
        else:
            share = f"{self.wrong} of {self.checked} elements differ"
            line = f"{self.name}: {share}, max error {self.error:.3g}"
        if self.unwritten:
            line += f", {self.unwritten} never written"
        if self.excused:
            line += f", {self.excused} excused near a jump"
            line += " (too many)" if self.too_many_excused else ""
        return "\n".join((line, *(f"  {w.text()}" for w in self.worst)))


@dataclass(frozen=True)
class Verdict:
    """How all outputs compare, and what part of them was checked."""

    outputs: tuple[OutputVerdict, ...]
    coverage: Coverage
    seconds: float

    @property
    def ok(self) -> bool:
        """Return whether every output is right."""
        return all(o.ok for o in self.outputs)

    @property
    def ratio(self) -> float:
        """Return the largest error over its bound."""
        return max((o.ratio for o in self.outputs), default=0.0)

    def text(self) -> str:
        """Return the verdict on one line, then a line for each output."""
        head = "verified" if self.ok else "results differ"
        lines = [f"{head} (checked: {self.coverage.text()})", *(o.text() for o in self.outputs)]
        return "\n".join(lines)


@dataclass
class _Tally:
    """Counts of one output, gathered block by block."""

    value: Value
    found: Array
    poison: bool
    checked: int = 0
    wrong: int = 0
    unwritten: int = 0
    excused: int = 0
    error: float = 0.0
    ratio: float = 0.0
    worst: list[tuple[float, Worst]] = field(default_factory=list[tuple[float, Worst]])

    def add(self, index: Index, expected: Bounded, lock: threading.Lock) -> None:
        raw = self.found[index] if index else self.found
        found = widen(raw, self.value.dtype)
        judged = judge(found, expected, self.value.dtype)
        wrong = judged.wrong
        unwritten = (
            int(np.count_nonzero(wrong & _poisoned(raw))) if self.poison and wrong.any() else 0
        )
        worst = self._find_worst(index, found, expected, judged) if wrong.any() else []
        with lock:
            self.checked += int(found.size)
            self.wrong += int(np.count_nonzero(wrong))
            self.unwritten += unwritten
            self.excused += judged.excused
            self.error = max(self.error, judged.error)
            self.ratio = max(self.ratio, judged.ratio)
            self.worst = sorted((*self.worst, *worst), key=lambda w: (-w[0], w[1].index))[:WORST]

    def _find_worst(
        self, index: Index, found: Array, expected: Bounded, judged: Judged
    ) -> list[tuple[float, Worst]]:
        places = np.argwhere(judged.wrong)
        errors = judged.errors[judged.wrong]
        offset = [i.start or 0 for i in index] + [0] * (found.ndim - len(index))
        shape = found.shape
        bound = np.broadcast_to(0.0 if expected.bound is None else expected.bound, shape)
        value = np.broadcast_to(expected.value, shape)
        result: list[tuple[float, Worst]] = []
        for k in np.argsort(-errors, kind="stable")[:WORST]:
            at = tuple(int(i) for i in places[k])
            place = tuple(int(i) + o for i, o in zip(at, offset, strict=True))
            element = Worst(place, found[at].item(), value[at].item(), float(bound[at]))
            result.append((float(errors[k]), element))
        return result

    def verdict(self) -> OutputVerdict:
        worst = tuple(w for _, w in self.worst)
        return OutputVerdict(
            self.value.name, self.checked, self.wrong, self.unwritten, self.excused,
            self.error, self.ratio, worst,
        )  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """Which elements of one block are wrong, and how far off."""

    wrong: Array
    errors: Array
    excused: int
    error: float
    ratio: float


def judge(found: Array, expected: Bounded, dtype: DType) -> Judged:
    """Compare a block: wrong is beyond its bound, not excused by a jump or an infinite bound."""
    value, bound = expected.value, expected.bound
    if not dtype.is_rounded:
        errors = (
            (found != value).astype(np.float64) if dtype.kind == "bool" else _distance(found, value)
        )
        limit: Any = 0.0 if bound is None else bound
    else:
        errors, limit = _distance(found, value), 0.0 if bound is None else bound
    beyond = errors > limit
    wrong, excused = beyond, 0
    doubt = expected.doubt
    if doubt is not None or (bound is not None and not np.isfinite(np.max(bound, initial=0.0))):
        excusable = np.zeros(found.shape, bool) if doubt is None else doubt
        if bound is not None:
            excusable = excusable | ~np.isfinite(bound)
        off = _beyond_noise(errors, value, dtype)
        excused = int(np.count_nonzero(off & excusable))
        wrong = beyond & ~excusable
    finite = np.where(np.isfinite(errors), errors, 0.0) if not np.isfinite(errors).all() else errors
    error = (
        float(np.max(errors, initial=0.0)) if wrong.any() else float(np.max(finite, initial=0.0))
    )
    with np.errstate(all="ignore"):
        ratios = np.where(finite > 0, finite / limit, 0.0)
    ratios = np.where(
        np.isfinite(ratios) & ~(np.zeros(1, bool) if doubt is None else doubt), ratios, 0.0
    )
    ratio = (
        float("inf")
        if wrong.any() and not np.any(ratios > 1)
        else float(np.max(ratios, initial=0.0))
    )
    return Judged(wrong, errors, excused, error, ratio)


def _distance(found: Array, value: Array) -> Array:
    """Return |found - value|; 0 for equal infinities and NaNs, infinite where only one is NaN.

    Of complex numbers the part that is further off counts.
    """
    if found.dtype.kind == "c":
        pairs = zip(parts_of(found), parts_of(value), strict=True)
        return np.maximum(*(_distance(f, v) for f, v in pairs))
    if found.dtype.kind in "iu" and value.dtype.kind in "iu":
        return np.where(found == value, 0.0, np.abs(found.astype(np.float64) - value) + 0.5)
    with np.errstate(all="ignore"):
        errors = np.abs(np.asarray(found - value, dtype=np.float64))
    if errors.size and np.isnan(np.max(errors)):
        same = (found == value) | (np.isnan(found) & np.isnan(value))
        errors = np.where(same, 0.0, np.where(np.isnan(errors), np.inf, errors))
    return errors


def _beyond_noise(errors: Array, value: Array, dtype: DType) -> Array:
    if not dtype.is_rounded:
        return errors > 0
    with np.errstate(all="ignore"):
        parts = parts_of(value) if dtype.is_complex else (value,)
        sizes = (np.where(np.isfinite(p), np.abs(p), 0.0) for p in parts)
        noise = 16 * dtype.epsilon * np.maximum.reduce(list(sizes))
    return errors > np.where(np.isfinite(noise), noise, 0.0)


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
    poison: bool = True,
    seed: int = 0,
    limit: float | None = None,
) -> Verdict:
    """Return how `outputs` compare with the reference; beyond `limit` operations it samples.

    `poison` says that outputs were filled with 0xFF bytes before the run.
    """
    began = time.perf_counter()
    values = find_values(fusion, None)
    tallies: dict[Value, _Tally] = {}
    for value in values:
        if value.name not in outputs:
            raise FusecError(f"no result is given for output `{value.name}`")
        found, shape = np.asarray(outputs[value.name]), extents(value.type, sizes)
        if found.shape != shape:
            raise FusecError(
                f"output `{value.name}` has shape {list(found.shape)}, expected {list(shape)}"
            )
        if found.dtype != value.dtype.numpy:
            raise FusecError(
                f"output `{value.name}` has dtype {found.dtype}, expected {value.dtype.long}"
            )
        tallies[value] = _Tally(value, found, poison)
    lock = threading.Lock()
    stream = Stream(fusion, inputs, sizes, values)
    budget = WORK_LIMIT * (os.cpu_count() or 1) if limit is None else limit
    coverage = stream.run(
        lambda value, index, part: tallies[value].add(index, part, lock), budget, seed
    )
    verdicts = tuple(tallies[v].verdict() for v in values)
    return Verdict(verdicts, coverage, time.perf_counter() - began)
