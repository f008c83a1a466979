"""The JSON form of a host program, with sizes as expressions; it reads back to the same program."""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Mapping
from dataclasses import fields
from typing import Any, cast

from fusec.diagnostics import FusecError
from fusec.hostir.program import (
    Alias,
    Allocate,
    Buffer,
    Copy,
    EncodeTensorMap,
    Free,
    HostProgram,
    IndexCheck,
    Launch,
    Memset,
    Scalar,
    check_program,
)
from fusec.ir import dtype as dtypes
from fusec.ir.dim import Dim, ceildiv, dim, floordiv, maximum, minimum, mod, symbol
from fusec.ir.dtype import DType
from fusec.schedule.orders import PlannedOrder, PlannedStage
from fusec.schedule.plan import (
    Guard,
    ScalarArgument,
    SizeArgument,
    TensorArgument,
    TensorMapArgument,
    WorkspaceArgument,
)

SCHEMA_VERSION = 1

_TAGS: dict[type, str] = {
    Allocate: "allocate", Free: "free", Alias: "alias", Memset: "memset", Copy: "copy",
    EncodeTensorMap: "encode", Launch: "launch", Buffer: "buffer", Scalar: "scalar_input",
    Guard: "guard", TensorArgument: "tensor", SizeArgument: "size", ScalarArgument: "scalar",
    WorkspaceArgument: "workspace", TensorMapArgument: "tensor_map", IndexCheck: "check",
}  # fmt: skip
_TYPES = {tag: cls for cls, tag in _TAGS.items()}
_DIMS = frozenset({"value", "offset", "extent", "index"})
_DIM_LISTS = frozenset({"shape", "grid", "extents"})
_OMITTED = frozenset({"of", "part"})
"""Fields that are left out where empty: most scalars are no part of a complex number."""
_LISTS = frozenset({"block", "cluster", "box"})

_MOST_DEPTH = 64
_MOST_RUN = 64
_MOST_WIDTH = 1 << 24
_GROUPS = (1, 16, 32)


def to_json(program: HostProgram) -> dict[str, Any]:
    """Return the program as plain data for json.dumps."""
    return {
        "version": SCHEMA_VERSION,
        "name": program.name,
        "buffers": [_encode(b) for b in program.buffers],
        "scalars": [_encode(s) for s in program.scalars],
        "instructions": [_encode(i) for i in program.instructions],
        "outputs": list(program.outputs),
        "guards": [_encode(g) for g in program.guards],
        "aliases": [list(pair) for pair in program.aliases],
        **({"checks": [_encode(c) for c in program.checks]} if program.checks else {}),
        **({"orders": [_order(*o) for o in program.orders.items()]} if program.orders else {}),
    }


def _order(name: str, order: PlannedOrder) -> dict[str, Any]:
    stages = [{f.name: _encode(getattr(s, f.name)) for f in fields(s)} for s in order.stages]
    return {"name": name, "stages": stages, "group": order.group}


def _encode(item: Any) -> Any:
    if isinstance(item, Dim):
        return item.value if item.is_const else str(item)
    if isinstance(item, DType):
        return item.name
    if isinstance(item, tuple):
        return [_encode(entry) for entry in cast(tuple[Any, ...], item)]
    tag = _TAGS.get(type(item))  # pyright: ignore[reportUnknownArgumentType]
    if tag is None:
        return item
    kept = (f.name for f in fields(item) if f.compare)
    values = {name: _encode(getattr(item, name)) for name in kept}
    return {"is": tag} | {k: v for k, v in values.items() if v or k not in _OMITTED}


def from_json(data: Mapping[str, Any]) -> HostProgram:
    """Return the program that `data` describes; FusecError where it is damaged."""
    try:
        if data["version"] != SCHEMA_VERSION:
            raise FusecError(
                f"the host program has version {data['version']}, expected {SCHEMA_VERSION}",
                help="compile again",
            )
        scalars = frozenset(s["name"] for s in data["scalars"])
        program = HostProgram(
            name=str(data["name"]),
            buffers=tuple(_decode(b, scalars) for b in data["buffers"]),
            scalars=tuple(_decode(s, scalars) for s in data["scalars"]),
            instructions=tuple(_decode(i, scalars) for i in data["instructions"]),
            outputs=tuple(data["outputs"]),
            guards=tuple(_decode(g, scalars) for g in data["guards"]),
            aliases=tuple((a, b) for a, b in data["aliases"]),
            checks=tuple(_decode(c, scalars) for c in data.get("checks", ())),
            orders=dict(_order_of(o, scalars) for o in data.get("orders", ())),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FusecError(f"the host program is damaged: {error!r}", help="compile again") from None
    check_program(program)
    return program


def _decode(item: Mapping[str, Any], scalars: frozenset[str]) -> Any:
    cls = _TYPES[item["is"]]
    values: dict[str, Any] = {}
    for field in fields(cls):
        if not field.compare:
            continue
        name = field.name
        if name in _OMITTED and name not in item:
            continue
        raw = item[name]
        if name == "dtype":
            values[name] = dtypes.find(raw)
        elif name in _DIMS:
            values[name] = None if raw is None else parse_dim(raw, scalars)
        elif name in _DIM_LISTS or name == "strides":
            values[name] = tuple(parse_dim(d, scalars) for d in raw)
        elif name in _LISTS:
            values[name] = tuple(int(n) for n in raw)
        elif name == "arguments":
            values[name] = tuple(_decode(a, scalars) for a in raw)
        elif name == "map":
            values[name] = _decode(raw, scalars)
        else:
            values[name] = raw
    return cls(**values)


def _order_of(item: Mapping[str, Any], scalars: frozenset[str]) -> tuple[str, PlannedOrder]:
    name = item["name"]
    if not isinstance(name, str):
        raise TypeError(f"the name of a sum cannot be {name!r}")
    stages = tuple(_stage_of(s, scalars) for s in item["stages"])
    return name, PlannedOrder(stages, _whole(item, "group", _GROUPS))


def _stage_of(item: Mapping[str, Any], scalars: frozenset[str]) -> PlannedStage:
    chain = parse_dim(item["chain"], scalars)
    if chain.is_const and chain.value < 1:
        raise ValueError(f"a chain of {chain} terms")
    return PlannedStage(
        chain,
        _whole(item, "depth", range(_MOST_DEPTH + 1)),
        _whole(item, "width", range(_MOST_WIDTH + 1)),
        _whole(item, "run", range(1, _MOST_RUN + 1)),
        _whole(item, "cut", range(1 << 62)),
    )


def _whole(item: Mapping[str, Any], key: str, allowed: Container[int]) -> int:
    value = item[key]
    if type(value) is not int or value not in allowed:
        raise ValueError(f"`{key}` of an order of additions cannot be {value!r}")
    return value


def parse_dim(text: str | int, scalars: frozenset[str] = frozenset()) -> Dim:
    """Return the Dim that prints as `text`; symbols named in `scalars` may be less than 1."""
    if isinstance(text, int):
        return dim(text)
    try:
        return _dim_of(ast.parse(text, mode="eval").body, scalars)
    except (SyntaxError, ValueError, RecursionError, KeyError):
        raise FusecError(f"`{text}` is not a size expression") from None


_BINARY: dict[type[ast.operator], Callable[[Dim, Dim], Dim]] = {
    ast.Add: Dim.__add__,
    ast.Sub: Dim.__sub__,
    ast.Mult: Dim.__mul__,
    ast.FloorDiv: floordiv,
    ast.Mod: mod,
}
_CALLS = {"ceildiv": ceildiv, "min": minimum, "max": maximum}


def _dim_of(node: ast.expr, scalars: frozenset[str]) -> Dim:
    match node:
        case ast.Constant(value=int(value)):
            return dim(value)
        case ast.Name(id=name):
            return symbol(name, extent=name not in scalars)
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            return symbol(f"{name}.{attribute}")
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_dim_of(operand, scalars)
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](_dim_of(left, scalars), _dim_of(right, scalars))
        case ast.Call(func=ast.Name(id=name), args=[left, right], keywords=[]):
            return _CALLS[name](_dim_of(left, scalars), _dim_of(right, scalars))
        case _:
            raise ValueError("not an integer expression")
