"""The common content of every template's view."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from fusec.codegen.parameters import Parameter, parameters
from fusec.dataclasses import dataclass, fields
from fusec.escape import c_comment
from fusec.ir.graph import Const, Fusion, Node
from fusec.kernel.ctext import index_type
from fusec.kernel.nodes import Type
from fusec.schedule.blocks import BlockParameters
from fusec.schedule.plan import Kernel, KernelPlan, Plan

_MAX_EQUATIONS = 16


@dataclass(frozen=True, kw_only=True)
class KernelView:
    """The head of a kernel.

    purpose: what it computes; source: the fusion's file; equations: its operations; schedule: one
    sentence; parameters: what it may read; least_blocks: minimum resident blocks per SM, 0 to leave
    that to the assembler, which spills registers rather than reduce the occupancy below its own
    target.
    """

    name: str
    purpose: str
    source: str
    equations: tuple[str, ...]
    schedule: str
    parameters: tuple[Parameter, ...]
    least_blocks: int = 0


V = TypeVar("V", bound=KernelView)


@dataclass(frozen=True, kw_only=True)
class NestView(KernelView):
    """A kernel over rows of columns: its indices, its block and the accesses of its threads."""

    index_type: Type
    threads_x: int
    threads_y: int
    vector_width: int


def view_of(
    kind: type[V],
    plan: Plan[object, BlockParameters],
    kernel: Kernel,
    nodes: object,
    schedule: str,
    **others: Any,
) -> V:
    """Return the view of a kernel over rows of columns.

    nodes: as for `head`; others: further fields. All other fields are parameters of the plan.
    """
    p = plan.parameters
    known: dict[str, Any] = {
        **head(plan, kernel, nodes),
        "schedule": f"Schedule: {schedule}.",
        "index_type": index_type(wide=p.wide_index),
        **others,
    }
    names = (f.name for f in fields(kind))
    return kind(**{name: known[name] if name in known else getattr(p, name) for name in names})


def head(
    plan: KernelPlan, kernel: Kernel, nodes: object, names: Mapping[str, str] | None = None
) -> dict[str, object]:
    """Return the fields of KernelView except `schedule`, as keyword arguments.

    nodes: the record of a kernel's statements, whose fields are in its view, too; names: C names by
    those of arguments, if they differ.
    """
    fusion = plan.fusion
    return {
        **vars(nodes),
        "name": kernel.name,
        "purpose": c_comment(fusion.doc.strip().split("\n")[0])
        or f"{plan.scheduler} kernel of {fusion.name}.",
        # Without its folders: the source does not depend on how the path was typed.
        "source": c_comment(os.path.basename(fusion.source)),
        "equations": equations(fusion),
        "parameters": parameters(kernel, names),
        "least_blocks": kernel.least_blocks,
    }


def equations(fusion: Fusion) -> tuple[str, ...]:
    """Return the lines of the user's file that a kernel computes, or its operations."""
    nodes = [n for n in fusion.nodes if n.op.family != "scalar"]
    nodes.sort(key=lambda n: n.span.line if n.span else 0)
    lines = list(dict.fromkeys(_line(n) for n in nodes))
    if len(lines) > _MAX_EQUATIONS:
        rest = len(lines) - _MAX_EQUATIONS
        lines = [*lines[:_MAX_EQUATIONS], f"... and {rest} more lines"]
    return tuple(lines)


def _line(node: Node) -> str:
    """Return the line of the user's file that an operation comes from, else the operation."""
    if node.span is None or not node.span.text.strip():
        return _equation(node)
    return f"{node.span.line}: {c_comment(node.span.text.strip().removeprefix('- '))}"


def _equation(node: Node) -> str:
    operands = [repr(o.value).lower() if isinstance(o, Const) else o.name for o in node.operands]
    attributes = [f"{k}={_attribute(v)}" for k, v in node.attributes.items() if v is not None]
    results = ", ".join(v.name for v in node.outputs)
    return f"{results} = {node.op.name}({', '.join([*operands, *attributes])})"


def _attribute(value: object) -> str:
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        return "[" + ", ".join(_attribute(v) for v in items) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)
