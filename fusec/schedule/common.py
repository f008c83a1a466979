"""Shared by schedulers: specialized sizes, arguments, index width, and a segment's traffic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from fusec.index.access import span_of
from fusec.index.domain import Refusal
from fusec.ir.dim import Dim, dim, product, symbol
from fusec.ir.dtype import U64, DType
from fusec.ir.graph import Fusion, Node, Value
from fusec.ir.identity_cache import IdentityCache
from fusec.ir.index_errors import INDEX_ERRORS
from fusec.ir.substitute import substitute_dims
from fusec.ops.checks import CHECK_INDEX
from fusec.schedule.plan import (
    Argument,
    Guard,
    ScalarArgument,
    SizeArgument,
    TensorArgument,
    Workspace,
    WorkspaceArgument,
)
from fusec.segment.limits import MOST_ARMS

MEMORY_BOUND = frozenset(
    {"pointwise", "movement", "factory", "scalar", "reduction", "indexing", "random"}
)
"""Families of operations that run on an iteration domain."""

INT32_MAX = 2**31 - 1
_CACHE: IdentityCache[Fusion] = IdentityCache()


def dynamic_symbols(fusion: Fusion) -> frozenset[str]:
    """Return the symbols that can stay kernel parameters: those that occur only as leading extents.

    A symbol inside a shape, an attribute, or a stride other than a run-time one is specialized, so
    that strides and divisors are constants.
    """
    if not fusion.dims:
        return frozenset()
    leading: set[str] = set()
    inner: set[str] = set()
    for shape in {v.shape for v in fusion.values}:
        for position, extent in enumerate(shape):
            if extent.symbols:
                bare = len(extent.terms) == 1 and extent == _symbol_of(extent)
                (leading if position == 0 and bare else inner).update(extent.symbols)
    for value in fusion.values:
        if value.dim is not None:
            leading |= value.dim.symbols
    for given in (*fusion.inputs, *fusion.outputs):
        for stride in given.strides or ():
            known = stride.symbols & fusion.hints.keys()
            inner |= {s for s in known if "." not in s}
            leading |= {s for s in known if "." in s}
    for node in fusion.nodes:
        if node.op.family != "movement":
            continue
        for attribute in node.attributes.values():
            single = (attribute,)
            items = cast(
                "tuple[object, ...]", attribute if isinstance(attribute, tuple) else single
            )
            for item in items:
                if (
                    isinstance(item, Dim)
                    and item.symbols
                    and item not in [v.shape[0] for v in node.outputs if v.shape]
                ):
                    inner |= item.symbols
    return frozenset(leading - inner)


def _symbol_of(extent: Dim) -> Dim | None:
    names = extent.symbols
    return symbol(next(iter(names))) if len(names) == 1 else None


def specialise(fusion: Fusion, keep: Iterable[str] = ()) -> tuple[Fusion, Mapping[str, int]]:
    """Return the segment with every symbol except `keep` replaced by its hint, and those sizes."""
    kept = set(keep)
    sizes = {d.name: d.default for d in fusion.dims if d.name not in kept}
    values = {name: dim(size) for name, size in sizes.items()}
    return _CACHE.of(fusion, tuple(sizes), lambda: substitute_dims(fusion, values)), sizes


def tensor_arguments(
    fusion: Fusion, workspaces: Iterable[Workspace] = (), sizes: Iterable[SizeArgument] = ()
) -> tuple[Argument, ...]:
    """Return a kernel's arguments: inputs, outputs, workspaces, scalars, then dynamic sizes.

    An aliased output is written through its input's pointer; pointers to buffers that are both read
    and written are not restrict.
    """
    written = fusion.effects.overwritten
    arguments: list[Argument] = [
        TensorArgument(
            i.value.name, i.value.dtype, i.value.name in written, i.value.name not in written
        )
        for i in fusion.inputs
        if not i.value.is_scalar
    ]
    arguments += [
        TensorArgument(o.value.name, o.value.dtype, True)
        for o in fusion.effects.fresh
        if not o.value.is_scalar
    ]
    arguments += [WorkspaceArgument(w.name, w.dtype) for w in workspaces]
    arguments += [
        ScalarArgument(i.value.name, i.value.dtype) for i in fusion.inputs if i.value.is_scalar
    ]
    scalar_names = {i.value.name for i in fusion.inputs if i.value.is_scalar}
    arguments += [
        SizeArgument(d.name, symbol(d.name), wide=True)
        for d in fusion.dims
        if d.name not in scalar_names
    ]
    if any(n.op is CHECK_INDEX for n in fusion.nodes):
        arguments.append(WorkspaceArgument(INDEX_ERRORS, U64))
    return (*arguments, *sizes)


def needs_wide_index(fusion: Fusion, *, in_memory: bool = False) -> tuple[bool, tuple[Guard, ...]]:
    """Return whether hint sizes need 64-bit indices; if not, the guards that keep it so.

    Values that are never in memory also count if loops iterate over them; in_memory: none are.
    """
    found = dict.fromkeys((*_spans(fusion), *(() if in_memory else _made(fusion))))
    if any(elements.evaluate(fusion.hints) > INT32_MAX // 2 for elements in found):
        return True, ()
    open_ = [elements for elements in found if not elements.is_const]
    # If an extent is 0, nothing is addressed, so the larger of two bounds is enough; a run-time
    # stride (its name contains a dot) may be 0.
    dense = [elements for elements in open_ if not any("." in s for s in elements.symbols)]
    largest = (e for e in open_ if not any(o is not e and (o - e).at_least(0) for o in dense))
    return False, tuple(Guard(e, "<=", INT32_MAX // 2, "32-bit addresses") for e in largest)


def _spans(fusion: Fusion) -> list[Dim]:
    """Return the number of elements that each input and output spans in memory."""
    values = [i.value for i in fusion.inputs] + [o.value for o in fusion.outputs]
    return [span_of(fusion, v) for v in values if not v.is_scalar]


def _made(fusion: Fusion) -> list[Dim]:
    """Return the number of elements of each node's result."""
    return [product(v.shape) for n in fusion.nodes for v in n.outputs if v.shape]


def access(width: int) -> str:
    """Return the key in `Target.reach` of contiguous loads of `width` elements."""
    return "vector" if width > 1 else "scalar"


def unsupported_nodes(fusion: Fusion, families: Iterable[str]) -> Refusal | None:
    """Return a refusal that names the first operation without a kernel in `families`, or None."""
    foreign = foreign_nodes(fusion, families)
    if foreign is not None:
        return foreign
    for node in fusion.nodes:
        access = node.op.access
        if access is not None and access.concat_dim is not None and len(node.operands) > MOST_ARMS:
            because = f"`{node.output.name}` concatenates {len(node.operands)} tensors: a kernel"
            return Refusal("arms", f"{because} takes {MOST_ARMS}")
    return None


def foreign_nodes(fusion: Fusion, families: Iterable[str]) -> Refusal | None:
    """Return a refusal that names the first operation outside `families`, or type, or None."""
    allowed = families if isinstance(families, (set, frozenset)) else set(families)
    first, untyped, at = _FIRST.of(fusion, None, lambda: _first_nodes(fusion))
    foreign = next((n for f, (_, n) in first.items() if f not in allowed), None)
    # Nodes of `first` are in order, so the first foreign one is found first.
    if foreign is not None and first[foreign.op.family][0] <= at:
        because = f"`{foreign.op.name}` ({foreign.op.family})"
        return Refusal("operation", f"the scheduler does not support {because}")
    return untyped


_FIRST = IdentityCache[tuple[dict[str, tuple[int, Node]], Refusal | None, int]]()


def _first_nodes(fusion: Fusion) -> tuple[dict[str, tuple[int, Node]], Refusal | None, int]:
    """Return the first node of each family with its index, and the first type without kernels.

    The last number is the index of that type's node. Cached, since every scheduler needs this.
    """
    first: dict[str, tuple[int, Node]] = {}
    untyped, at = None, len(fusion.nodes)
    for place, node in enumerate(fusion.nodes):
        first.setdefault(node.op.family, (place, node))
        for value in node.outputs:
            if untyped is None and _has_no_kernel(value.dtype):
                untyped, at = _no_kernel(value), place
    if untyped is None:
        given = next((i.value for i in fusion.inputs if _has_no_kernel(i.value.dtype)), None)
        untyped = None if given is None else _no_kernel(given)
    return first, untyped, at


def _has_no_kernel(kind: DType) -> bool:
    return kind.kind == "complex" or kind.bits < 8 or kind.name == "f8e8m0"


def _no_kernel(value: Value) -> Refusal:
    return Refusal("dtype", f"no kernel supports {value.dtype} of `{value.name}` yet")


def is_empty(fusion: Fusion) -> bool:
    """Return whether some tensor of the segment has no elements at hint sizes."""
    sizes = fusion.hints
    return any(e.evaluate(sizes) == 0 for v in fusion.values for e in v.shape)
