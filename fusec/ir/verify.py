"""Check that a fusion is well formed: order, names, types, outputs and aliases."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.diagnostics import FusecError, InternalError
from fusec.ir.dim import Dim
from fusec.ir.divided import check_shardings
from fusec.ir.graph import Fusion, Node, Value
from fusec.ir.overrides import IDENTIFIER, check_overrides


def verify(fusion: Fusion) -> None:
    """Raise InternalError at the first rule that the fusion breaks."""
    defined = _check_inputs(fusion)
    for node in fusion.nodes:
        _check_node(node, defined)
        for value in node.outputs:
            _define(value, defined)
            _check_sizes(f"`{value.name}`", value.shape, fusion)
    _check_outputs(fusion, defined)
    check_overrides(fusion, fusion.schedules)
    check_shardings(fusion)
    for pin in fusion.pins:
        for name in pin.values:
            if name not in defined:
                raise FusecError(
                    f"segment `{pin.name}` names `{name}`, which no operation produces",
                                 span=pin.span)  # fmt: skip


def _define(value: Value, defined: dict[str, Value]) -> None:
    if not IDENTIFIER.match(value.name):
        raise InternalError(f"the name `{value.name}` is not an identifier")
    if value.name in defined:
        raise InternalError(f"`{value.name}` is defined twice")
    defined[value.name] = value


def _check_inputs(fusion: Fusion) -> dict[str, Value]:
    defined: dict[str, Value] = {}
    for entry in fusion.inputs:
        _define(entry.value, defined)
        if len(entry.strides) != entry.value.rank:
            raise InternalError(
                f"input `{entry.value.name}` has {entry.value.rank} dims and"
                f" {len(entry.strides)} strides"
            )
        used = [*entry.value.shape, *entry.strides]
        _check_sizes(f"input `{entry.value.name}`", used, fusion)
    return defined


def _check_sizes(where: str, sizes: Iterable[Dim], fusion: Fusion) -> None:
    used = frozenset[str]().union(*(size.symbols for size in sizes))
    for name in sorted(used - fusion.hints.keys()):
        raise InternalError(f"{where} uses the undeclared dim `{name}`")


def _check_node(node: Node, defined: dict[str, Value]) -> None:
    for operand in node.inputs:
        if defined.get(operand.name) is not operand:
            raise InternalError(f"`{node}` uses `{operand.name}` before it is defined")
    if node.op.family == "composite":
        raise InternalError(f"`{node}`: a composite is expanded when it is called")
    _check_arity(node)
    names = {p.name for p in node.op.attributes}
    missing = names - {"keepdim"} - node.attributes.keys()
    surplus = node.attributes.keys() - names
    for name in sorted(missing | surplus):
        what = "lacks" if name in missing else "has an unknown"
        raise InternalError(f"`{node}` {what} attribute `{name}`")
    try:
        inferred = node.op.infer(node.operands, node.attributes)
    except FusecError as error:
        diagnostic = error.diagnostic
        message = f"`{node}`: {diagnostic.message}"
        raise InternalError(message, span=node.span, notes=diagnostic.notes) from error
    if len(inferred) != len(node.outputs):
        raise InternalError(f"`{node}` has {len(node.outputs)} results, not {len(inferred)}")
    for value, expected in zip(node.outputs, inferred, strict=True):
        if value.type != expected:
            raise InternalError(f"`{node}`: `{value.name}` is {value.type}, not {expected}")


def _check_arity(node: Node) -> None:
    params = node.op.operands
    least = sum(p.kind != "optional" for p in params)
    most = None if any(p.kind == "operands" for p in params) else len(params)
    count = len(node.operands)
    if count < least or (most is not None and count > most):
        wanted = least if most is None else most
        raise InternalError(f"`{node}` has {count} operands, not {wanted}")


def _check_outputs(fusion: Fusion, defined: dict[str, Value]) -> None:
    inputs = {entry.value.name: entry.value for entry in fusion.inputs}
    seen: set[Value] = set()
    written: set[str] = set()
    for output in fusion.outputs:
        value = output.value
        if defined.get(value.name) is not value:
            raise InternalError(f"output `{value.name}` is not defined")
        if value.name in inputs:
            raise InternalError(f"output `{value.name}` is an input")
        if value in seen:
            raise InternalError(f"`{value.name}` is an output twice")
        seen.add(value)
        if value.is_scalar:
            raise InternalError(f"output `{value.name}` is a scalar")
        order = output.stride_order
        if order is not None and sorted(order) != list(range(value.rank)):
            raise InternalError(f"stride_order of output `{value.name}` is not a permutation")
        if output.strides is not None:
            if len(output.strides) != value.rank or order is not None:
                count = len(output.strides)
                raise InternalError(
                    f"output `{value.name}` of rank {value.rank} has {count} strides"
                )
            _check_sizes(f"output `{value.name}`", output.strides, fusion)
        if output.alias is None:
            continue
        target = inputs.get(output.alias)
        if target is None:
            raise InternalError(f"output `{value.name}` aliases `{output.alias}`, not an input")
        if target.type != value.type:
            raise InternalError(
                f"output `{value.name}` is {value.type}; its alias `{target.name}` is {target.type}"
            )
        if output.alias in written:
            raise InternalError(f"two outputs are written to `{output.alias}`")
        written.add(output.alias)
