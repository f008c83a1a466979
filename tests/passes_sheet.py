"""A fusion being written by a test of a pass: named nodes, and the lines of what a pass leaves."""

from __future__ import annotations

from collections.abc import Callable

from fusec.ir.dtype import F32, DType
from fusec.ir.graph import Fusion, Value
from fusec.ops.builder.build import GraphBuilder
from fusec.passes.remove_dead import remove_dead


class Sheet:
    """A fusion with dims A, B, C being written: `op` adds a named node."""

    def __init__(self) -> None:
        self.b = GraphBuilder()
        self.A, self.B, self.C = (
            self.b.declare_dim(n, s) for n, s in (("A", 3), ("B", 4), ("C", 5))
        )

    def input(self, name: str, *shape: object, dtype: DType = F32) -> Value:
        return self.b.input(name, dtype, shape)  # type: ignore[arg-type]

    def op(self, name: str, op: str, *operands: object, **attributes: object) -> Value:
        value = self.b.call(op, list(operands), attributes, names=[name])[0]
        assert isinstance(value, Value)
        return value

    def after(self, step: Callable[[Fusion], Fusion], *outputs: Value) -> Fusion:
        for output in outputs:
            self.b.output(output)
        return remove_dead(step(self.b.finish()))

    def lines(self, step: Callable[[Fusion], Fusion], *outputs: Value) -> list[str]:
        return [repr(node) for node in self.after(step, *outputs).nodes]
