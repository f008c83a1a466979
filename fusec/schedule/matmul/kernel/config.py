"""The `Config` of a GEMM kernel: tile, stages, warp roles, and the layout of shared memory."""

from __future__ import annotations

from fusec.index.access import Facts
from fusec.ir.dtype import F32, DType
from fusec.kernel.ctext import compute_type, storage_type
from fusec.kernel.lowering.products import THREADS, boolean, integer, shared_memory, using
from fusec.kernel.nodes import Grouped, Integer, Name, Statement, Type, operand, vector_of
from fusec.schedule.matmul.choice import RASTER_GROUP, MatmulParameters
from fusec.schedule.matmul.cost.occupancy import ctas_per_sm
from fusec.schedule.matmul.epilogue import sums_dtype
from fusec.schedule.matmul.gemv import GemvParameters
from fusec.schedule.matmul.hopper import (
    HopperParameters,
    PersistentParameters,
    SplitKParameters,
)
from fusec.schedule.matmul.kernel.scales import lift
from fusec.schedule.matmul.limits import WARPS
from fusec.schedule.matmul.operands.access import is_chunked
from fusec.schedule.matmul.operands.computed import WRITERS
from fusec.schedule.matmul.operands.operand import Operand
from fusec.schedule.matmul.operands.weights import STAGE
from fusec.schedule.matmul.portable import MmaParameters
from fusec.schedule.matmul.problem import Product
from fusec.schedule.matmul.shared import MatmulKernel, spelled_layout
from fusec.schedule.matmul.sums import SUM_SLICES, partials_dtype, slice_groups, slices_each

TILE_M, TILE_N = Name("kTileM"), Name("kTileN")
_WEIGHED = (40, 232)
"""Registers per producer and per consumer thread for weights with many rows."""


def config(
    p: MatmulParameters, problem: Product, kernel: MatmulKernel, facts: Facts
) -> tuple[Statement, ...]:
    """Return the members of the struct, each with its meaning."""
    band = p.raster_group if isinstance(p, PersistentParameters) else RASTER_GROUP
    return (
        *_tile(p, problem),
        *_roles(p, problem, kernel, facts),
        integer("kRasterGroup", band, "tile rows per raster group"),
        boolean("kAKMajor", problem.a.k_major, "A is K-major, else M-major"),
        boolean("kBKMajor", problem.b.k_major, "B is K-major, else N-major"),
        *(shared_memory(spelled_layout(p, problem)) if kernel.layout.constants else ()),
    )


def _roles(
    p: MatmulParameters, problem: Product, kernel: MatmulKernel, facts: Facts
) -> list[Statement]:
    """Return the kernel-specific members: warp roles, and how partial sums are divided."""
    match p:
        case PersistentParameters():
            return _wgmma(p)
        case SplitKParameters():
            return [*_split_k(p, problem, kernel), *_summers(p, kernel)]
        case GemvParameters():
            return _gemv(p, problem)
        case MmaParameters():
            return _mma(p, problem, facts)
        case _:
            return _simt()


def _summers(p: SplitKParameters, kernel: MatmulKernel) -> list[Statement]:
    """Return how the threads of the kernel that adds slices divide the accumulators."""
    if kernel.template != SUM_SLICES:
        return []
    return [
        integer("kGroups", slice_groups(p), "thread groups of a block"),
        integer("kEach", slices_each(p), "slices per group, at most"),
        integer("kQuads", Name("kMultipliers") / "kGroups", "quads per block"),
        integer("kRuns", Name("kSlab") / "kQuads", "blocks per CTA's share"),
    ]


def sums_type(problem: Product) -> Type:
    """Return the C type of accumulators."""
    return compute_type(sums_dtype(problem.node.output.dtype))


def part_type(problem: Product, p: MatmulParameters) -> Type:
    """Return the C type of four partial sums in a slice."""
    dtype = partials_dtype(problem, p)
    return vector_of(storage_type(dtype), 4) if p.leaves_halves else Type("float4")


def _tile(p: MatmulParameters, problem: Product) -> list[Statement]:
    if p.uses_tma and problem.narrow is not None:
        a, b = (storage_type(dtype) for dtype in problem.narrow)
        kinds = [using("TA", a, "elements of A"), using("TB", b, "elements of B")]
    elif p.uses_tma and problem.dtype == F32:
        rounded = "copies round the operands to 10 mantissa bits"
        kinds = [using("T", Type("fusec::Tf32"), rounded)]
    elif isinstance(problem.dtype, DType) and p.on_tensor_cores:
        kinds = [using("T", storage_type(problem.dtype), "operands in shared memory")]
    else:
        kinds = [using("Acc", sums_type(problem), "operands are converted to it")]
    return [
        *kinds,
        integer("kTileM", p.tile_m, "rows of an output tile"),
        integer(
            "kTileN",
            p.tile_n,
            "columns of two output tiles" if p.products > 1 else "columns of an output tile",
        ),
        *([integer("kColumns", p.columns, "of each of the two GEMMs")] if p.products > 1 else []),
        integer("kTileK", p.tile_k, "elements of K per stage"),
    ]


def _simt() -> list[Statement]:
    return [
        integer("kMicro", 4, "kMicro x kMicro outputs per thread"),
        integer("kThreads", Grouped(TILE_M / "kMicro") * (TILE_N / "kMicro")),
    ]


def _gemv(p: GemvParameters, problem: Product) -> list[Statement]:
    return [
        *_weights(p, problem),
        integer("kStages", p.stages, "chunks in flight per warp"),
        integer("kWarps", WARPS, "warps that divide K"),
        integer("kThreads", operand(32) * "kWarps"),
        integer("kResident", p.resident, "blocks per SM"),
        integer("kSumsPitch", TILE_N + 4, "row pitch of partial sums, in floats"),
    ]


def _weights(p: MatmulParameters, problem: Product) -> list[Statement]:
    """Return how weights are converted to 16-bit floats."""
    if not p.converted:
        return []
    b, lifted = problem.b, lift(problem) != 0
    name, flip = ("Nibbles", 0x88888888) if b.packed else ("Bytes", 0x80808080)
    flips = (Integer(flip, "u", is_hex=True),) if b.flipped else ()
    kind = Type(f"fusec::{'Lifted' if lifted else name}", (Name("T"), *flips))
    raised = 0 if b.zeros is None or lifted else b.zeros.raised
    zeros = [] if b.zeros is None else [
        integer("kRaised", raised, "bias of the stored weights")
    ]  # fmt: skip
    return [
        using("W", storage_type(b.buffer.dtype), "elements of B in memory"),
        using("Codes", kind, "their conversion to 16-bit floats"),
        boolean("kScaled", b.scales is not None, "scales per group of elements of K"),
        boolean("kLowered", b.zeros is not None, "zero points per group"),
        *zeros,
        integer("kGroup", b.group or STAGE, "elements of K per group"),
        *([] if b.k_major else [boolean("kPaired", b.packed == "row", "a byte holds two columns")]),
    ]


def _mma(p: MmaParameters, problem: Product, facts: Facts) -> list[Statement]:
    def copied(operand: Operand) -> bool:
        return is_chunked(problem, operand, facts)

    return [
        integer("kStages", p.stages, "stages in flight"),
        integer("kWarpM", 64, "rows of the warp tile"),
        integer("kWarpN", 32, "columns of the warp tile"),
        integer("kThreads", operand(32) * (TILE_M / "kWarpM") * (TILE_N / "kWarpN")),
        boolean("kAAsync", copied(problem.a), "A is copied with 16-byte cp.async"),
        boolean("kBAsync", copied(problem.b), "B is copied with 16-byte cp.async"),
    ]


def _hopper(p: HopperParameters, consumers: str) -> list[Statement]:
    threads = 128 * p.tile_warpgroups
    return [
        integer("kStages", p.stages, "stages in flight"),
        integer("kConsumers", p.consumers, consumers),
        THREADS,
        boolean("kSwapAB", p.swap_ab, "columns of B are rows of wgmma"),
        integer("kAccumulators", p.tile_m * p.tile_n // threads, "per consumer thread"),
    ]


def _wgmma(p: PersistentParameters) -> list[Statement]:
    rows = 64 * p.row_blocks
    own = f"{rows} {'columns' if p.swap_ab else 'rows'}"
    how = f"with tiles of {own}" if p.ping_pong else f"with {own} each"
    consumers = f"warpgroups {how}; one more loads"
    members = _hopper(p, consumers)
    if p.ctas > 1:
        members += [
            integer("kClusterM", p.cluster_m, "tile rows of a cluster"),
            integer("kClusterN", p.cluster_n, "tile columns of a cluster"),
        ]
    if p.splits > 1:
        members.append(integer("kSplits", p.splits, "splits of K in the last wave"))
    readers = 4 * p.readers * p.tile_warpgroups
    return [
        *members,
        integer("kReaders", readers, "warps that read a stage"),
        *_moved(*_registers(p)),
    ]


def _moved(producer: int, consumer: int) -> list[Statement]:
    """Return the registers of a producer and of a consumer thread as members."""
    return [
        integer("kProducerRegisters", producer, "per producer thread"),
        integer("kConsumerRegisters", consumer, "per consumer thread"),
    ]


def _registers(p: PersistentParameters) -> tuple[int, int]:
    """Return the registers of a producer and of a consumer thread."""
    if p.consumers == 3:
        return 32, 160
    return (24, 240) if p.sums > 128 or p.ping_pong else (40, 232)


def _split_k(p: SplitKParameters, problem: Product, kernel: MatmulKernel) -> list[Statement]:
    pairs, registers = list[Statement](), list[Statement]()
    if p.uses_setmaxnreg:
        registers = _moved(*_WEIGHED)
    if p.is_multicast:
        pairs = [
            integer("kClusterM", p.cluster_m, "tile rows of a cluster"),
            integer("kClusterN", p.cluster_n, "tile columns of a cluster"),
            integer("kReaders", 4 * 2 * p.ctas, "warps that read a stage"),
        ]
    if problem.computed is not None:
        pairs = [
            integer("kReaders", 4 * p.consumers, "warps that read a stage"),
            integer("kWriters", WRITERS, "warps that compute A"),
        ]
    return [
        *_weights(p, problem),
        *_hopper(p, "warpgroups with 64 rows each; one more loads"),
        *pairs,
        *registers,
        integer("kProducts", p.products, "GEMMs per tile"),
        integer("kMultipliers", operand(128) * "kConsumers", "consumer threads"),
        integer("kCluster", p.cluster_k, "CTAs that split K"),
        integer("kOwned", Name("kAccumulators") / 4 / "kCluster", "quads per thread"),
        integer("kSlab", Name("kOwned") * "kMultipliers", "quads of a CTA's share"),
        integer("kResident", ctas_per_sm(p, kernel.layout.bytes), "CTAs per SM"),
    ]
