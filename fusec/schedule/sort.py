"""Sorts, argsorts and top-k along one axis: by radix, in a block or in passes over memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusec.ir.dim import dim
from fusec.ir.dtype import U8, U16, U32, U64
from fusec.ir.graph import Fusion
from fusec.schedule.common import (
    INT32_MAX,
    needs_wide_index,
    specialise,
    tensor_arguments,
    unsupported_nodes,
)
from fusec.schedule.plan import Argument, Kernel, KernelPlan, Workspace
from fusec.schedule.sort_parts import Parts, free_name, key_bits, runs_along, split
from fusec.schedule.sort_top import top_choice, top_estimate, top_plan
from fusec.segment.price import traffic, work
from fusec.segment.protocol import Estimate, Proposal, Refusal
from fusec.target import Target

FAMILIES = frozenset({"pointwise", "movement", "factory", "scalar", "indexing", "random", "sort"})
DIGIT_BITS = 8
"""Bits that a pass orders by, as in device/sort.cuh."""
MAX_ROW = {1: 8192, 2: 8192, 4: 8192, 8: 4096}
"""Elements of a row that a block orders in its registers, by bytes of a key."""
ITEMS = ((1, 32), (2, 64), (4, 512), (8, 8192))
"""Elements per thread, and the longest rows that have as many."""
PASS_THREADS = 256
DIGITS = 256


@dataclass(frozen=True)
class SortParameters:
    """The choices of a sort.

    key_bits: bits of the keys; threads, items: of a tile that a block orders; tiles: of a row; 1
    where a block orders whole rows, else every digit is a pass over memory.
    """

    key_bits: int
    threads: int
    items: int
    tiles: int
    wide_index: bool

    @property
    def passes(self) -> int:
        """Return how many digits a key has."""
        return self.key_bits // DIGIT_BITS


@dataclass(frozen=True)
class PassParameters:
    """One kernel of a sort: the digit that it orders by, and the buffers of keys and places.

    source, target: numbers of buffers, None for the fusion's own inputs and outputs.
    """

    sort: SortParameters
    digit: int
    source: int | None
    target: int | None


class Sorts:
    """Accepts one operation that orders rows, with elementwise operations before and after it."""

    name = "sort"

    def propose(self, segment: Fusion, target: Target) -> Proposal:
        """Return a price: the inputs and outputs, and what passes move through memory."""
        refusal = unsupported_nodes(segment, FAMILIES)
        if refusal is not None:
            return refusal
        parts = split(segment, "sort")
        if isinstance(parts, Refusal):
            return parts
        if parts.length > INT32_MAX // 2:
            return Refusal("row", f"a row has {parts.length} elements, places take 32 bits")
        if parts.rows.evaluate(parts.fusion.hints) > INT32_MAX:
            return Refusal("rows", "there is a block for each row, and a grid has 2^31 - 1 blocks")
        top = top_choice(parts, target)
        if top is not None:
            return top_estimate(parts, segment, top, target)
        parameters = choose(parts)
        elements = parts.rows.evaluate(parts.fusion.hints) * parts.length
        flops, sfu = work(parts.before)
        moved = parameters.passes * (3 * parameters.key_bits // 8 + 8) * elements
        rows = parts.rows.evaluate(parts.fusion.hints)
        return Estimate(
            bytes=2 * traffic(segment),
            workspace_bytes=moved if parameters.tiles > 1 else 0,
            flops=2 * flops + 60 * parameters.passes * elements,
            sfu=2 * sfu,
            efficiency=target.reach("sort", "vector" if runs_along(parts) else "strided"),
            ctas=max(1, rows * parameters.tiles),
            kernels=1 if parameters.tiles == 1 else 3 * parameters.passes,
        )

    def build(self, segment: Fusion, target: Target) -> KernelPlan:
        """Return a plan of one kernel, or of three for each digit."""
        parts = split(segment, "sort")
        assert isinstance(parts, Parts)
        top = top_choice(parts, target)
        if top is not None:
            return top_plan(parts, segment, top)
        parameters = choose(parts)
        _, guards = needs_wide_index(parts.fusion)
        if parameters.tiles == 1:
            workspaces: tuple[Workspace, ...] = ()
            kernels = (_rows_kernel(parts, parameters),)
        else:
            workspaces = workspaces_of(parts, parameters)
            kernels = _passes(parts, parameters, workspaces)
        known = {d.name: d.default for d in segment.dims if d.name not in parts.fusion.hints}
        fusion, _ = specialise(segment, (d.name for d in parts.fusion.dims))
        return KernelPlan(self.name, fusion, kernels, parameters, workspaces, guards, known)


def choose(parts: Parts) -> SortParameters:
    """Return the parameters: a row in one block where it fits."""
    bits = key_bits(parts.node.inputs[0].dtype)
    wide, _ = needs_wide_index(parts.fusion)
    length = parts.length
    if length <= MAX_ROW[bits // 8]:
        items = next(i for i, most in ITEMS if length <= most)
        threads = max(32, 1 << max(0, -(-length // items) - 1).bit_length())
        return SortParameters(bits, threads, items, 1, wide)
    items = 8 if bits == 64 else 16
    return SortParameters(bits, PASS_THREADS, items, -(-length // (PASS_THREADS * items)), wide)


def shared_bytes(p: SortParameters) -> int:
    """Return the shared memory of a tile with 16-bit places, and of the counts of its digits."""
    tile = p.threads * p.items * (p.key_bits // 8 + 2)
    counts = 4 * (p.threads // 32 * DIGITS + DIGITS + 1 + 8)
    return -(-tile // 16) * 16 + -(-counts // 16) * 16


def _rows_kernel(parts: Parts, parameters: SortParameters) -> Kernel:
    return Kernel(
        name=f"{parts.fusion.name}_sort",
        template="sort_rows",
        parameters=parameters,
        grid=(parts.rows, dim(1), dim(1)),
        block=(parameters.threads, 1, 1),
        arguments=tensor_arguments(parts.fusion),
        shared_bytes=shared_bytes(parameters),
    )


def workspaces_of(parts: Parts, parameters: SortParameters) -> tuple[Workspace, ...]:
    """Return the buffers: keys and places between passes (two of each), counts, and their sums."""
    key = {8: U8, 16: U16, 32: U32, 64: U64}[parameters.key_bits]
    elements = parts.rows * parts.length
    buffers = min(2, parameters.passes - 1)
    made: list[Workspace] = []
    for number in range(buffers):
        made.append(Workspace(f"keys{number}", key, elements))
        made.append(Workspace(f"places{number}", U32, elements))
    made.append(Workspace("digit_counts", U32, parts.rows * (DIGITS * parameters.tiles)))
    made.append(Workspace("digit_totals", U32, parts.rows * DIGITS))
    return tuple(replace(w, name=free_name(w.name, parts.fusion)) for w in made)


def _passes(
    parts: Parts, parameters: SortParameters, workspaces: tuple[Workspace, ...]
) -> tuple[Kernel, ...]:
    """Return the kernels: for each digit a count, the offsets of the tiles, and a scatter."""
    kernels: list[Kernel] = []
    last = parameters.passes - 1
    blocks = parts.rows * parameters.tiles
    for digit in range(parameters.passes):
        source = None if digit == 0 else (digit - 1) % 2
        target = None if digit == last else digit % 2
        chosen = PassParameters(parameters, digit, source, target)
        inputs = parts.fusion.inputs if source is None or target is None else ()
        outputs = parts.fusion.outputs if target is None else ()
        counting = replace(parts.fusion, inputs=inputs if source is None else (), outputs=())
        moving = replace(parts.fusion, inputs=inputs, outputs=outputs)
        counts, totals = workspaces[-2], workspaces[-1]
        read = workspaces[2 * source : 2 * source + 2] if source is not None else ()
        write = workspaces[2 * target : 2 * target + 2] if target is not None else ()
        steps: list[tuple[str, tuple[Argument, ...], object]] = [
            ("count", tensor_arguments(counting, (*read[:1], counts)), blocks),
            ("offsets", tensor_arguments(replace(counting, inputs=()), (counts, totals)), None),
            ("scatter", tensor_arguments(moving, (*read, *write, counts, totals)), blocks),
        ]
        for step, arguments, _ in steps:
            grid = parts.rows * DIGITS if step == "offsets" else blocks
            kernels.append(
                Kernel(
                    name=f"{parts.fusion.name}_sort_{step}{digit}",
                    template=f"sort_{step}",
                    parameters=chosen,
                    grid=(grid, dim(1), dim(1)),
                    block=(parameters.threads, 1, 1),
                    arguments=arguments,
                )
            )
    return tuple(kernels)
