"""A fusion being drawn: the builder, the values so far and the source of choices."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

from fusec.diagnostics import FusecError
from fusec.ir.dim import Dim, dim
from fusec.ir.dtype import (
    BF16,
    BOOL,
    C64,
    C128,
    F8E4M3,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    DType,
)
from fusec.ir.graph import Value
from fusec.ops import TABLE
from fusec.ops.builder.build import GraphBuilder

T = TypeVar("T")

SIZES = (
    0, 1, 1, 2, 2, 3, 4, 5, 7, 8, 8, 13, 16, 16, 17, 31, 32, 32, 33, 48, 63, 64, 64, 65, 96, 100,
    127, 128, 128, 129, 200, 255, 256, 256, 257, 384, 512, 513, 1000, 1024, 1025, 2048, 4096, 4097,
)  # fmt: skip
MAIN_DTYPES = {
    F32: 36, BF16: 22, F16: 14, F64: 9, I32: 6, I64: 7, BOOL: 2, U8: 2, I16: 1, I8: 1,
    C64: 3, C128: 1,
}  # fmt: skip
OTHER_DTYPES = {
    F32: 30, BF16: 16, F16: 12, F64: 8, I32: 8, I64: 8, BOOL: 6, U8: 4, I16: 3, I8: 3, F8E4M3: 2,
    C64: 1,
}  # fmt: skip


SMOOTH = frozenset(
    {
        "add",
        "sub",
        "mul",
        "neg",
        "abs",
        "relu",
        "minimum",
        "maximum",
        "where",
        "clamp",
        "sin",
        "cos",
    }
    | {"cast", "set", "lerp", "addcmul", "threshold"}
)
EXACT_FAMILIES = frozenset({"movement", "indexing", "sort", "random", "factory", "scalar"})


class Unfit(Exception):
    """What was drawn does not go together; another choice is made."""


class Sketch:
    """Keeps the builder, tensors and scalars; `cap` bounds the elements of a tensor."""

    def __init__(self, rng: random.Random, name: str) -> None:
        """Start with a few named sizes."""
        self.rng = rng
        self.builder = GraphBuilder(name)
        self.cap = 1 << (18 if self.chance(0.04) else 14)
        self.main = self.weighed(MAIN_DTYPES)
        self.dims = [self._named_dim(n) for n in "ABCD"[: self.count(1, 4)]]
        self.tensors: list[Value] = []
        self.scalars: list[Value] = []
        self.indices: set[str] = set()
        """Inputs that hold positions."""
        self._rough: set[str] = set()

    # -- choices

    def chance(self, share: float) -> bool:
        """Return True in this share of the cases."""
        return self.rng.random() < share

    def count(self, low: int, high: int) -> int:
        """Return a whole number from low to high, both included."""
        return self.rng.randint(low, high)

    def pick(self, items: Sequence[T]) -> T:
        """Return one of the items; Unfit where there is none."""
        if not items:
            raise Unfit
        return items[self.rng.randrange(len(items))]

    def weighed(self, weights: dict[T, int]) -> T:
        """Return one of the keys, by weight."""
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def some(self, items: Iterable[T], least: int = 0, share: float = 0.5) -> list[T]:
        """Return a random part of the items, in order."""
        known = list(items)
        chosen = [i for i in known if self.chance(share)]
        if len(chosen) >= least:
            return chosen
        if len(known) < least:
            raise Unfit
        return sorted(self.rng.sample(known, least), key=known.index)

    # -- sizes

    def size_of(self, extent: Dim) -> int:
        """Return the default size of an extent."""
        return extent.evaluate(self.builder.hints)

    def elements(self, shape: Sequence[Dim]) -> int:
        """Return the number of elements of a shape at default sizes."""
        total = 1
        for extent in shape:
            total *= self.size_of(extent)
        return total

    def room(self, shape: Sequence[Dim]) -> int:
        """Return by what a shape may be multiplied below the cap.

        A size of 0 counts as 1: other values have the other extents without it.
        """
        return max(1, self.cap // self.elements([e for e in shape if self.size_of(e)]))

    def _named_dim(self, name: str) -> Dim:
        size = self.pick(SIZES)
        multiple = self.pick([1, 1, 1, 2, 8])
        return self.builder.declare_dim(
            name, size, multiple_of=multiple if size and size % multiple == 0 else 1
        )

    def extent(self, budget: int) -> Dim:
        """Return an extent of at most `budget`: a named size, or a number."""
        named = [d for d in self.dims if self.size_of(d) <= budget]
        if named and self.chance(0.65):
            return self.pick(named)
        # A size of 0 empties everything behind it: that is tried often enough without.
        fit = [s for s in SIZES if s <= budget and (s or self.chance(0.3))]
        return dim(self.pick(fit or [1]))

    def shape(self, rank: int) -> tuple[Dim, ...]:
        """Return a random shape below the cap, its large extents at random places."""
        extents: list[Dim] = []
        for _ in range(rank):
            extents.append(self.extent(self.room(extents)))
        self.rng.shuffle(extents)
        return tuple(extents)

    # -- values

    def dtype(self) -> DType:
        """Return an element type: mostly the main one of this fusion."""
        return self.main if self.chance(0.6) else self.weighed(OTHER_DTYPES)

    def tensor(
        self, least_rank: int = 0, most_rank: int = 99, where: Callable[[Value], bool] | None = None
    ) -> Value:
        """Return a tensor of a rank; the latest ones are the likeliest."""
        fit = [
            t
            for t in self.tensors
            if least_rank <= t.rank <= most_rank and (where is None or where(t))
        ]
        value = self.builder.resolve(self.pick(fit[-3:] if self.chance(0.7) else fit))
        assert isinstance(value, Value)
        return value

    def known(self) -> list[Value]:
        """Return all tensors as they are now."""
        resolved = (self.builder.resolve(t) for t in self.tensors)
        return [v for v in resolved if isinstance(v, Value)]

    def call(self, op: str, operands: Sequence[Any], **attributes: Any) -> tuple[Any, ...]:
        """Call an operation of the table; Unfit where it does not take this."""
        try:
            results = self.builder.call(op, list(operands), attributes)
        except FusecError as error:
            if error.exit_code not in (2, 3):
                raise
            raise Unfit(error.diagnostic.message) from None
        smooth = op in SMOOTH or (op in TABLE and TABLE[op].family in EXACT_FAMILIES)
        if not smooth or any(self.is_rough(o) for o in operands):
            kept = (r for r in results if isinstance(r, Value) and r.dtype.is_float)
            self._rough.update(r.name for r in kept)
        return results

    def is_rough(self, value: Any) -> bool:
        """Return whether many elements may lie beside a whole number, or anywhere: sums, powers.

        What becomes of such an element where it is truncated says nothing of the kernel.
        """
        if isinstance(value, (list, tuple)):
            return any(self.is_rough(v) for v in cast(Sequence[Any], value))
        return isinstance(value, Value) and value.name in self._rough

    def apply(self, op: str, *operands: Any, **attributes: Any) -> Value:
        """Call an operation and return its first result, a tensor."""
        result = self.call(op, operands, **attributes)[0]
        if not isinstance(result, Value):
            raise Unfit
        return result

    def keep(self, *values: Any) -> None:
        """Offer results to later operations, unless they are too large."""
        for value in values:
            if not isinstance(value, Value):
                continue
            if value.is_scalar:
                self.scalars.append(value)
            elif self.elements(value.shape) <= 4 * self.cap and value.rank <= 6:
                self.tensors.append(value)
