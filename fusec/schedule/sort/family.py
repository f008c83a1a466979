"""Sorts, argsorts and top-k along one axis: radix, in a block or in passes over memory."""

from __future__ import annotations

from typing import ClassVar

from fusec.dataclasses import dataclass, replace
from fusec.ir.dim import dim
from fusec.ir.dtype import U8, U16, U32, U64
from fusec.ir.graph import Fusion
from fusec.kernel.ctext import TEMPLATE_NAMES
from fusec.ops.names import fresh_name
from fusec.schedule.blocks import check_shared
from fusec.schedule.common import INT32_MAX, specialise, tensor_arguments
from fusec.schedule.family import Family
from fusec.schedule.plan import Argument, Kernel, Plan, StepKernel, Workspace
from fusec.schedule.requirements import one_sort
from fusec.schedule.sort.parts import Parts, key_bits, runs_along, split
from fusec.schedule.sort.top import (
    TopParameters,
    check_reduction,
    check_top,
    default_top_parameters,
    top_estimate,
    top_plan,
)
from fusec.schedule.space import COUNTS, POWERS, Field, Parameters, power_above
from fusec.schedule.templates import Template
from fusec.segment.protocol import Estimate, Refusal
from fusec.segment.traffic import traffic, work
from fusec.target import Target

DIGIT_BITS = 8
"""Bits of a digit, as in device/sort.cuh."""
MAX_ROW = {1: 8192, 2: 8192, 4: 8192, 8: 4096}
"""Most elements of a row that a block sorts in registers, by bytes of a key."""
ITEMS = ((1, 32), (2, 64), (4, 512), (8, 8192))
"""Elements per thread, and the longest rows with that many."""
PASS_THREADS = 256
DIGITS = 256


@dataclass(frozen=True)
class SortParameters(Parameters):
    """The schedule parameters of a sort.

    key_bits: bits of the keys.
    """

    key_bits: int
    threads: int
    items: int
    tiles: int
    wide_index: bool
    free: ClassVar = (
        Field("threads", POWERS[5:], "threads of a block"),
        Field("items", POWERS[:6], "keys per thread"),
        Field(
            "tiles",
            COUNTS,
            "tiles of a row; 1: a block sorts whole rows, else a radix sort passes over "
            "memory once per digit",
        ),
    )

    @property
    def passes(self) -> int:
        """Return how many digits a key has."""
        return self.key_bits // DIGIT_BITS


@dataclass(frozen=True)
class PassParameters:
    """One kernel of a sort: the digit that it sorts by, and the buffers of keys and positions.

    source, target: indices of buffers, None for the fusion's own inputs and outputs.
    """

    digit: int
    source: int | None
    target: int | None


SortPlan = Plan[Parts, SortParameters]
AnySortPlan = Plan[Parts, SortParameters | TopParameters]


class Sorts(Family[Parts, SortParameters | TopParameters, AnySortPlan]):
    """Accepts one operation that sorts rows, with elementwise operations before and after it.

    Before and after a top-k of short rows there may also be reductions of these rows.
    """

    name = "sort"
    templates: ClassVar = {
        "sort_rows": Template("sort.passes", 46),
        "sort_count": Template("sort.passes", 14),
        "sort_offsets": Template("sort.passes", 14),
        "sort_scatter": Template("sort.passes", 30),
        "topk": Template("sort.top", 28),
        "topk_lanes": Template("sort.lanes"),
    }
    reach = ("sort", "topk")
    vocabulary = TEMPLATE_NAMES

    def problem(self, segment: Fusion) -> Parts | Refusal:
        """Return the segment around the operation that sorts its rows."""
        parts = one_sort(segment) or split(segment, "sort")
        if isinstance(parts, Refusal):
            return parts
        if parts.reduces and (refusal := check_reduction(parts)):
            return refusal
        if parts.length > INT32_MAX // 2:
            return Refusal("row", f"a row has {parts.length} elements, more than 32-bit positions")
        if parts.rows.evaluate(parts.hints) > INT32_MAX:
            return Refusal("rows", "one block per row: a grid has at most 2^31 - 1 blocks")
        return parts

    def default_parameters(self, problem: Parts, target: Target) -> SortParameters | TopParameters:
        """Return the parameters: a row in one block if it fits."""
        return default_top_parameters(problem, target) or _default_parameters(problem)

    def with_derived(
        self, problem: Parts, parameters: SortParameters | TopParameters
    ) -> SortParameters | TopParameters:
        """Return parameters with the derived tiles of a row, unless a block has whole rows."""
        if isinstance(parameters, TopParameters):
            return parameters
        tiles = -(-problem.length // (parameters.threads * parameters.items))
        return parameters if parameters.tiles == 1 else replace(parameters, tiles=tiles)

    def why_illegal(
        self, problem: Parts, parameters: SortParameters | TopParameters, target: Target
    ) -> Refusal | None:
        """Return the rule that the parameters violate, or None if they are legal."""
        if isinstance(parameters, TopParameters):
            return check_top(problem, parameters)
        return _why_illegal(problem, parameters, target)

    def plan(
        self, problem: Parts, parameters: SortParameters | TopParameters, target: Target
    ) -> AnySortPlan:
        """Return a plan of one kernel, or of three for each digit."""
        if isinstance(parameters, TopParameters):
            return top_plan(problem, parameters)
        workspaces: tuple[Workspace, ...] = ()
        kernels: tuple[Kernel, ...] = (_rows_kernel(problem, parameters),)
        if parameters.tiles > 1:
            workspaces = workspaces_of(problem, parameters)
            kernels = _passes(problem, parameters, workspaces)
        fusion, _ = specialise(problem.segment, (d.name for d in problem.fusion.dims))
        return Plan(
            self.name,
            fusion,
            kernels,
            parameters,
            workspaces,
            problem.index[1],
            problem.specialised,
            problem=problem,
        )

    def estimate(self, plan: AnySortPlan, target: Target) -> Estimate:
        """Return the estimate: the inputs and outputs, and the memory traffic of passes."""
        parts, parameters = plan.problem, plan.parameters
        if isinstance(parameters, TopParameters):
            return top_estimate(parts, parameters, target)
        rows = parts.rows.evaluate(parts.hints)
        elements = rows * parts.length
        flops, sfu = work(parts.before)
        moved = parameters.passes * (3 * parameters.key_bits // 8 + 8) * elements
        return Estimate(
            bytes=2 * traffic(parts.segment),
            workspace_bytes=moved if parameters.tiles > 1 else 0,
            flops=2 * flops + 60 * parameters.passes * elements,
            sfu=2 * sfu,
            efficiency=target.reach("sort", "vector" if runs_along(parts) else "strided"),
            ctas=max(1, rows * parameters.tiles),
            kernels=1 if parameters.tiles == 1 else 3 * parameters.passes,
        )


def _why_illegal(parts: Parts, p: SortParameters, target: Target) -> Refusal | None:
    if parts.reduces:
        return Refusal("reduction", "a fused sum needs all of a row in the lanes of a warp")
    tile = p.threads * p.items
    if p.tiles == 1:
        if tile < parts.length:
            return Refusal("tile", f"a block has {tile} elements, a row has {parts.length}")
        if tile > 1 << 16:
            return Refusal("tile", f"positions of {tile} elements do not fit in 16 bits")
        if shared_bytes(p) > target.shared:
            because = (
                f"a row needs {shared_bytes(p)} bytes of shared memory, an SM has {target.shared}"
            )
            return Refusal("shared memory", because)
        return None
    if p.threads != DIGITS:
        return Refusal("block", f"a thread handles one digit per pass: threads must be {DIGITS}")
    # SortedTile of device/sort.cuh, with 32-bit positions, and the destination of each digit.
    bytes_ = tile * (p.key_bits // 8 + 4) + 4 * (DIGITS // 32 * DIGITS + 2 * DIGITS + 16)
    return check_shared(bytes_, "the elements of a tile")


def _default_parameters(parts: Parts) -> SortParameters:
    """Return the parameters: a row in one block if it fits."""
    bits = key_bits(parts.node.inputs[0].dtype)
    wide, length = parts.wide, parts.length
    if length <= MAX_ROW[bits // 8]:
        items = next(i for i, most in ITEMS if length <= most)
        threads = max(32, power_above(-(-length // items)))
        return SortParameters(bits, threads, items, 1, wide)
    items = 8 if bits == 64 else 16
    return SortParameters(bits, PASS_THREADS, items, -(-length // (PASS_THREADS * items)), wide)


def shared_bytes(p: SortParameters) -> int:
    """Return the shared memory of a tile with 16-bit positions, and of its digit counts."""
    tile = p.threads * p.items * (p.key_bits // 8 + 2)
    counts = 4 * (p.threads // 32 * DIGITS + DIGITS + 1 + 8)
    return -(-tile // 16) * 16 + -(-counts // 16) * 16


def _rows_kernel(parts: Parts, parameters: SortParameters) -> StepKernel[PassParameters]:
    return StepKernel(
        name=f"{parts.fusion.name}_sort",
        template="sort_rows",
        step=PassParameters(0, None, None),
        grid=(parts.rows, dim(1), dim(1)),
        block=(parameters.threads, 1, 1),
        arguments=tensor_arguments(parts.fusion),
        shared_bytes=shared_bytes(parameters),
    )


def workspaces_of(parts: Parts, parameters: SortParameters) -> tuple[Workspace, ...]:
    """Return the buffers: keys and positions between passes (two of each), counts, and sums."""
    key = {8: U8, 16: U16, 32: U32, 64: U64}[parameters.key_bits]
    elements = parts.rows * parts.length
    buffers = min(2, parameters.passes - 1)
    made: list[Workspace] = []
    for number in range(buffers):
        made.append(Workspace(f"keys{number}", key, elements))
        made.append(Workspace(f"places{number}", U32, elements))
    made.append(Workspace("digit_counts", U32, parts.rows * (DIGITS * parameters.tiles)))
    made.append(Workspace("digit_totals", U32, parts.rows * DIGITS))
    taken = parts.fusion.names
    return tuple(replace(w, name=fresh_name(taken, w.name)) for w in made)


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
        chosen = PassParameters(digit, source, target)
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
                StepKernel(
                    name=f"{parts.fusion.name}_sort_{step}{digit}",
                    template=f"sort_{step}",
                    step=chosen,
                    grid=(grid, dim(1), dim(1)),
                    block=(parameters.threads, 1, 1),
                    arguments=arguments,
                )
            )
    return tuple(kernels)
