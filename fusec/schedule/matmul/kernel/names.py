"""C names of a GEMM kernel: the user's own, unless the templates use them."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.dataclasses import replace
from fusec.ir.dim import symbol
from fusec.ir.graph import Fusion, Node, Operand, Value
from fusec.ir.index_errors import INDEX_ERRORS
from fusec.ir.substitute import substitute_dims
from fusec.kernel.ctext import TEMPLATE_NAMES
from fusec.kernel.names import Names
from fusec.schedule.plan import Kernel, SizeArgument

RESERVED = frozenset([
    "Config", "Index", "K", "M", "N", "Pipeline", "Sums", "ZeroPoints", "a_offset", "a_part",
    "a_rows", "a_scales", "a_stride_k", "a_stride_m", "acc", "acc2", "accumulators",
    "all_depth", "all_rows", "b_columns", "b_offset", "b_part", "b_scales", "b_stride_k",
    "b_stride_n", "b_zero_values", "b_zeros", "batch", "batches", "block", "chunk", "chunks",
    "column", "columns", "e", "finish", "first_column", "first_row", "first_step", "group",
    "groups", "held", "i", "index", "is_consumer", "is_last", "is_mine", "kBlockAccumulators",
    "kWidth", "last_step", "leave", "m", "n", "owner", "pairs", "parity", "part", "place",
    "rank", "reduced", "row", "semaphore", "share", "shared", "slab", "slices", "slot",
    "splits", "stage", "steps", "sums", "sums_tile", "thread_m", "thread_n", "ticket_slot",
    "tile", "tile_columns", "tile_index", "tile_m", "tile_n", "tile_rows", "tiles", "turn",
    "unit", "units", "visit", "visit_part", "warp", "warp_m", "warp_n", "warpgroup", "work",
])  # fmt: skip
"""Names that the templates give to their own constants and variables."""
STREAMED = frozenset([
    "first", "kSlice", "last", "next", "piece", "stride",
])  # fmt: skip
"""The further ones of the kernel that streams B."""
COMPUTED = frozenset(["a_row", "k", "made"])
"""The further ones of kernels that compute A."""
VOCABULARY = RESERVED | STREAMED | COMPUTED | TEMPLATE_NAMES | {"a", "b"}
"""All of them, with those of all templates and of the operands."""


def c_names(kernel: Kernel, reserved: frozenset[str] = RESERVED) -> Mapping[str, str]:
    """Return the C name of each argument, by its name in the plan.

    reserved: names that its own templates use, in addition to those of all templates.
    """
    names = Names([*sorted(reserved | TEMPLATE_NAMES), kernel.name])
    return {
        a.name: names.fresh(a.name, "size" if isinstance(a, SizeArgument) else "tensor")
        for a in kernel.arguments
        if a.name != INDEX_ERRORS
    } | {INDEX_ERRORS: INDEX_ERRORS}


def renamed(fusion: Fusion, names: Mapping[str, str]) -> Fusion:
    """Return the fusion with values and symbols renamed to their C names."""
    if all(name == new for name, new in names.items()):
        return fusion
    sizes = {d.name: symbol(names[d.name]) for d in fusion.dims if d.name in names}
    sized = substitute_dims(fusion, sizes)
    dims = tuple(replace(d, name=names.get(d.name, d.name)) for d in fusion.dims)
    new = {v: Value(names.get(v.name, v.name), v.type) for v in sized.values}

    def operand(item: Operand) -> Operand:
        return new[item] if isinstance(item, Value) else item

    def node(old: Node) -> Node:
        operands = tuple(operand(o) for o in old.operands)
        return replace(old, operands=operands, outputs=tuple(new[v] for v in old.outputs))

    return replace(
        sized,
        inputs=tuple(replace(i, value=new[i.value]) for i in sized.inputs),
        nodes=tuple(node(n) for n in sized.nodes),
        outputs=tuple(
            replace(o, value=new[o.value], alias=target and new[target.value].name)
            for o in sized.outputs
            for target in [sized.effects.into.get(o.value)]
        ),
        dims=dims,
    )
