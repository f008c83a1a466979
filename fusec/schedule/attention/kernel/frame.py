"""The frame around the graphs of an attention kernel: names, facts about sizes, and scopes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.ir.dim import Dim
from fusec.ir.expression import Var
from fusec.ir.graph import Fusion
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import Alias, Scope, named
from fusec.kernel.names import Names
from fusec.kernel.nodes import Expression
from fusec.schedule.attention.masks import Axes
from fusec.schedule.matmul.kernel.names import c_names, renamed
from fusec.schedule.matmul.operands.operand import BATCH
from fusec.schedule.plan import Kernel, KernelPlan

Scopes = Sequence[tuple[str, frozenset[Var]]]
"""The scopes of a loop nest, outermost first, and the loop variables that each binds."""


@dataclass(frozen=True)
class Frame:
    """A plan's fusion in C names.

    names: C names by those of arguments; reserved: those that the template uses; wide: whether
    indices have 64 bits.
    """

    fusion: Fusion
    names: Mapping[str, str]
    reserved: frozenset[str]
    facts: Facts
    wide: bool

    def emitter(
        self,
        scopes: Scopes,
        axes: Axes | None = None,
        width_name: str = "kWidth",
        stored_under: Expression | None = None,
        sizes: Mapping[str, Dim] | None = None,
    ) -> Emitter:
        """Return an emitter.

        scopes: those inside the kernel; axes: of neighbouring columns in a row; sizes: values of
        the template's constants, where the first of equal ones is used.
        """
        width = 1 if axes is None else axes.width
        return Emitter(
            (Scope("kernel", frozenset()), *(Scope(name, inside) for name, inside in scopes)),
            Names([*self.names.values(), *self.reserved]),
            self.facts,
            lane=axes.lane if axes and width > 1 else None,
            width=width,
            aliases={axes.chunk: Alias("n", width)} if axes else {},
            written=self.fusion.effects.overwritten,
            wide=self.wide,
            width_name=width_name,
            symbols=named(**(sizes or {})),
            stored_under=stored_under or "",
        )


def frame_of(plan: KernelPlan, kernel: Kernel, reserved: frozenset[str], *, wide: bool) -> Frame:
    """Return the frame of a kernel; reserved: names that its template uses."""
    names = c_names(kernel, reserved)
    fusion = renamed(plan.fusion, names)
    return Frame(fusion, names, reserved, Facts(fusion.hints), wide)


def row_scopes(batches: Dim, axes: Axes) -> Scopes:
    """Return the scopes around the computations of a row."""
    return ("batch", frozenset({Var(BATCH, batches)})), ("row", frozenset({axes.row}))


def neighbours(axes: Axes) -> Scopes:
    """Return the scopes of neighbouring columns in a row."""
    return ("vector", frozenset({axes.chunk})), ("lane", frozenset({axes.lane}))
