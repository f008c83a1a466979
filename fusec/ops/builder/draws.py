"""The builder's part for random operations without a seed: generator inputs and call numbers."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.dataclasses import replace
from fusec.diagnostics import FusecError, Span, Unsupported
from fusec.generator import DRAWS_PER_CALL, PARTS
from fusec.ir.dtype import U64
from fusec.ir.graph import Input, Value
from fusec.ops.builder.inputs import InputBuilder


class DrawBuilder(InputBuilder):
    """Adds the generator's seed and offset as inputs at the first random operation without a seed.

    Names in the file take precedence: the generator's inputs are renamed on a conflict.
    """

    def __init__(self, name: str) -> None:
        """Start without random operations."""
        super().__init__(name)
        self._draws = 0

    def next_draw(self) -> tuple[Value, Value, int]:
        """Return the generator's seed and offset, and the number of the next random call."""
        if not self._draws:
            if declared := [i.value.name for i in self._inputs if i.generator]:
                raise FusecError(
                    "a random op without a seed, in a fusion that declares the generator's "
                    f"{' and '.join(f'`{n}`' for n in declared)}",
                    help=(
                        "pass an rng_seed and an rng_offset to every random op, as in "
                        "rng_offset=add(rng_offset, 3), with a different number for each"
                    ),
                )
            for part in PARTS:
                self.generator_input(self.fresh_name(f"rng_{part}"), part)
        if self._draws >= DRAWS_PER_CALL:
            raise Unsupported(f"more than {DRAWS_PER_CALL} random ops without a seed in one fusion")
        number, self._draws = self._draws, self._draws + 1
        seed, offset = (self._value(i.value) for i in self._inputs if i.generator)
        return seed, offset, number

    def generator_input(self, name: str, part: str, span: Span | None = None) -> Value:
        """Declare the generator's `seed` or `offset`: a u64[] that no caller passes."""
        if any(i.generator == part for i in self._inputs):
            raise FusecError(f"two inputs are declared as the generator's {part}", span=span)
        value = self.input(name, U64, (), span=span)
        self._inputs[-1] = replace(self._inputs[-1], generator=part)
        return value

    def _given_first(self) -> Sequence[Input]:
        """Return the inputs in the order of a fusion: those that a caller passes come first."""
        return sorted(self._inputs, key=lambda i: PARTS.index(i.generator) if i.generator else -1)

    def rename(self, value: Value, name: str, *, span: Span | None = None) -> Value:
        """Rename the result of a node, or an input that the builder has added, and return it."""
        old = self._value(value)
        for k, entry in enumerate(self._inputs):
            if self._draws and entry.generator and self._value(entry.value) is old:
                super()._claim(name, "value", span)
                slot = self._names[name] = self._names.pop(old.name)
                moved = self._replace(slot, Value(name, old.type))
                self._inputs[k] = replace(entry, value=moved)
                return moved
        return super().rename(value, name, span=span)

    def _claim(self, name: str, what: str, span: Span | None) -> None:
        for entry in self._inputs if self._draws else ():
            value = self._value(entry.value)
            if entry.generator and value.name == name:
                self.rename(value, self._numbered(name, 2))
        super()._claim(name, what, span)
