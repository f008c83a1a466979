"""What every template's view holds, and how the body of an elementwise loop nest is composed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import cast

from fusec.codegen.render import Parameter, parameters
from fusec.escape import c_comment
from fusec.index.instances import Instance, Lowering
from fusec.ir.access import Conditions
from fusec.ir.dim import product
from fusec.ir.expression import Index, Var, linearize
from fusec.ir.graph import Const, Fusion, Node, Output
from fusec.kernel.ctext import TEMPLATE_NAMES, identifier, storage_type
from fusec.kernel.emit import Emitter
from fusec.kernel.names import Names, camel
from fusec.kernel.nest import StoreKind
from fusec.kernel.nodes import (
    Assign,
    Declare,
    Element,
    Evaluate,
    If,
    Name,
    Statement,
    Type,
    both,
    call,
    item,
    vector_of,
)
from fusec.schedule.plan import Kernel, KernelPlan, Staged

RIGHT = Name("columns") - "column"
"""How far the end of a row lies behind a vector's first element."""

_MAX_EQUATIONS = 16


@dataclass(frozen=True, kw_only=True)
class KernelView:
    """The head of a kernel.

    purpose: what it computes; source: the fusion's file; equations: its operations; schedule: one
    sentence; parameters: what it may read; least_blocks: blocks that an SM is to hold at least, 0
    to leave that to the assembler, which spills registers rather than fill an SM less than it
    likes.
    """

    name: str
    purpose: str
    source: str
    equations: tuple[str, ...]
    schedule: str
    parameters: tuple[Parameter, ...]
    least_blocks: int = 0


def head(plan: KernelPlan, kernel: Kernel) -> dict[str, object]:
    """Return the fields of KernelView but `schedule`, as keyword arguments."""
    fusion = plan.fusion
    return {
        "name": kernel.name,
        "purpose": c_comment(fusion.doc.strip().split("\n")[0])
        or f"{plan.scheduler} kernel of {fusion.name}.",
        # Without its folders: the text does not depend on how the path was typed.
        "source": c_comment(os.path.basename(fusion.source)),
        "equations": equations(fusion),
        "parameters": parameters(kernel),
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


@dataclass(frozen=True)
class Body:
    """The statements of a loop nest: once per kernel, for all rows of a column, for each vector.

    arrays, places, loads: where vectors are loaded before the first of them is used, what holds
    them, the statements before their addresses, and those that fill it; once: those that fill it
    for all rows of a column; inside: those that ask whether vectors lie in their tensors.
    """

    kernel: tuple[Statement, ...]
    column: tuple[Statement, ...]
    statements: tuple[Statement, ...]
    arrays: tuple[Statement, ...] = ()
    places: tuple[Statement, ...] = ()
    loads: tuple[Statement, ...] = ()
    once: tuple[Statement, ...] = ()
    inside: tuple[Statement, ...] = ()


@dataclass(frozen=True)
class StorePlan:
    """An output, the instance it stores, and where: in a buffer of its own, or in an input's.

    conditions: hold at one point of the loops for each element; overwrites: whether the buffer is
    an input's, so that all that is read of it comes before; kind: how the store stays inside.
    """

    output: Output
    instance: Instance
    address: Index
    conditions: Conditions
    buffer: str
    overwrites: bool
    kind: StoreKind

    @property
    def variables(self) -> frozenset[Var]:
        """Return the loop variables on which it depends where, and whether, it is stored."""
        return self.address.variables.union(*(c.position.variables for c in self.conditions))


def plan_stores(
    lowering: Lowering,
    outputs: Iterable[Output],
    kind: StoreKind | Callable[[Output], StoreKind],
    is_looped: Callable[[StorePlan], bool] = lambda plan: False,
) -> tuple[StorePlan, ...]:
    """Return where each output is stored, with the conditions under which one thread stores it.

    What is the same along an axis, or repeated, is computed at several points and stored at one.
    kind: `Nest.store_kind` of the emitter of the stores, or STAGED of some outputs; is_looped:
    whether a store stands in the loop over what is reduced.
    """
    effects, plans = lowering.fusion.effects, list[StorePlan]()
    for output in outputs:
        value = output.value
        if product(value.shape) == 0:
            continue  # there is no element to store
        coordinates, conditions = lowering.home(value)
        address = linearize(coordinates, effects.strides(value))
        instance = lowering.at(value, coordinates, conditions)
        buffer, overwrites = effects.buffer(value), value in effects.into
        own = kind if isinstance(kind, StoreKind) else kind(output)
        plan = StorePlan(output, instance, address, conditions, buffer, overwrites, own)
        where = lowering.stored_where(value, in_loop=is_looped(plan))
        plans.append(replace(plan, conditions=where))
    return tuple(plans)


def emit_store(emitter: Emitter, plan: StorePlan, phase: int) -> None:
    """Emit an element-wise store: through a vector filled by the lanes, or element by element.

    The lines of scope `after` follow the loop over lanes.
    """
    emitter.check_store(plan.output.value.name, plan.kind)
    dtype = plan.output.value.dtype
    value = emitter.to_storage(plan.instance, dtype, phase)
    base = emitter.vector_base(plan.address, plan.conditions)
    if base is not None and emitter.lane is not None:
        number = len(emitter.scopes) - 2
        name = emitter.fresh(f"{plan.output.value.name}_vec", "vec", phase, number)
        held = Declare(vector_of(storage_type(dtype), emitter.width_name), name)
        emitter.add(phase, emitter.scopes[number].name, held)
        emitter.add(phase, "lane", Assign(item(name, emitter.lane.name), value))
        function = "fusec::store_part" if emitter.part else "fusec::store"
        pointer = emitter.pointer(plan.buffer, base, phase)
        line = Evaluate(call(function, pointer, name, *emitter.part))
        tested = emitter.at_lane_zero(plan.conditions)
        emitter.add(phase, "after", guarded(emitter, tested, line, phase), last=plan.overwrites)
        return
    place = Element(Name(identifier(plan.buffer)), emitter.index(plan.address, phase))
    line = guarded(emitter, plan.conditions, Assign(place, value), phase, emitter.guard)
    emitter.add(phase, emitter.scopes[-1].name, line, last=plan.overwrites)


def guarded(
    emitter: Emitter, conditions: Conditions, line: Statement, phase: int, guard: str = ""
) -> Statement:
    """Return a statement that is executed where a guard, a variable, and conditions hold."""
    tests = [Name(guard)] if guard else []
    test = both([*tests, *([emitter.condition(conditions, phase)] if conditions else [])])
    return line if test is None else If(test, (line,), braces=False)


@dataclass(frozen=True)
class RegisterArray:
    """An array in a thread's registers: name and element type."""

    name: str
    type: Type


@dataclass(frozen=True)
class SharedArray:
    """A staged array in shared memory: name, element type, the constant of its first byte.

    vectors: whether it is one of vectors, not of elements.
    """

    name: str
    type: Type
    place: str
    offset: int
    vectors: bool = True

    @property
    def each(self) -> Type:
        """Return the C type of what it is made of."""
        return vector_of(self.type) if self.vectors else self.type


def shared_array(names: Names, name: str, staged: Staged) -> SharedArray:
    """Return a staged array as the plan lays it out."""
    kind, place = storage_type(staged.instance.dtype), names.fresh(f"k{camel(name)}", "offset")
    return SharedArray(name, kind, place, staged.offset)


def parameter_names(kernel: Kernel) -> Names:
    """Return a name allocator that knows the kernel's parameters and the templates' own names."""
    taken = [identifier(a.name) for a in kernel.arguments]
    return Names([*taken, *sorted(TEMPLATE_NAMES)])
