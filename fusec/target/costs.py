"""Coefficients of the cost model, as data: the table `[cost.FAMILY]` of a target file is a record.

Their meaning, unit and source are in comments in `sm_90a.toml`. The suffix of a name is the unit:
`seconds`; `rate`, bytes or elements per second; `reach`, `issue`, `share`, fractions of a rate, of
the issue slots, of a whole; `penalty`, `ratio`, factors.
"""

from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any, cast

from fusec.dataclasses import dataclass, fields
from fusec.diagnostics import FusecError

Curve = tuple[tuple[int, float], ...]
"""Values at increasing integers, interpolated linearly."""
Numbers = tuple[float, ...]
ByCount = Mapping[int, float]


@dataclass(frozen=True)
class MatmulCost:
    """GEMM kernels `split_k`, `mma` and `simt`, and coefficients shared by all GEMM kernels."""

    tensor_reach: Curve
    tile_seconds: float
    cluster_rank_seconds: float
    fp8_cluster_seconds: float
    l2_stage_seconds: float
    memory_stage_seconds: float
    memory_reach: float
    smem_fill_rate: float
    line_penalty_along_k: ByCount
    line_penalty_across_k: ByCount
    converted_weights_rate: float
    computed_rows_issue: float
    computed_rows_seconds: float
    cluster_fill: ByCount
    written_back_bytes: float
    mma_reach: float
    mma_reach_hopper: float
    mma_tf32_reach: Numbers
    unaligned_reach: Numbers
    element_store_seconds: float
    lone_store_share: float
    simt_reach: float
    simt_step_seconds: float
    plain_tile_seconds: float
    plain_start_seconds: float
    sustained_reach: float
    epilogue_load_seconds: float
    reducing_penalty: float
    serial_hand_off_seconds: float
    slice_arrival_seconds: float
    slice_rate: float
    second_kernel_seconds: float
    workspace_rate: float

    @property
    def line_penalties(self) -> tuple[ByCount, ByCount]:
        """Return the penalties of K-major operands, and of the others."""
        return self.line_penalty_along_k, self.line_penalty_across_k


@dataclass(frozen=True)
class MatmulWgmmaCost:
    """GEMM kernel `wgmma`, persistent with one CTA per SM."""

    tensor_reach: Curve
    power_limit: float
    ping_pong_power_ratio: float
    fp8_ratio: float
    tf32_ratio: float
    tf32_rounding_rate: float
    l2_rate: float
    l2_contention: float
    line_penalty: ByCount
    hot_row_limit: float
    shared_a_penalty: Numbers
    smem_fill_rate: float
    out_of_bounds_penalty: float
    stage_seconds: float
    shared_stage_seconds: float
    memory_reach: float
    start_seconds: float
    staged_sum_seconds: ByCount
    exchanged_sum_seconds: ByCount
    store_reach: float
    epilogue_issue: float
    tall_tile_penalty: float
    epilogue_load_seconds: float
    slice_arrival_seconds: float
    slice_rate: float
    dual_epilogue_penalty: float
    dual_stage_share: float
    overlap_exponent: int
    store_overlap_exponent: int

    @property
    def line_penalties(self) -> tuple[ByCount, ByCount]:
        """Return the penalties of K-major operands, and of the others."""
        return self.line_penalty, self.line_penalty


@dataclass(frozen=True)
class MatmulGemvCost:
    """GEMM kernel `gemv`, which streams B."""

    start_seconds: float
    round_seconds: float
    memory_reach: float
    stage_share: ByCount
    row_share: ByCount
    l2_reach: float
    converted_across_rate: float
    computed_rows_issue: float
    slice_arrival_seconds: float
    overlap_exponent: int


@dataclass(frozen=True)
class AttentionCost:
    """Attention forward."""

    warpgroup_reach: ByCount
    single_stage_share: float
    ping_pong_share: float
    step_keys: int
    tile_seconds: float
    masked_share: float
    masked_tile_seconds: float


@dataclass(frozen=True)
class AttentionBackwardCost:
    """Attention backward."""

    one_warpgroup_share: float
    step_rows: int
    tile_seconds: float


@dataclass(frozen=True)
class AttentionDecodeCost:
    """Attention with few queries (decoding)."""

    memory_reach: float
    wave_seconds: float
    uneven_share: float
    uneven_limit_seconds: float
    combine_seconds: float
    further_split_seconds: float


@dataclass(frozen=True)
class GridReduceCost:
    """Latency of reductions across blocks."""

    turn_seconds: float
    level_seconds: float
    next_level_seconds: float
    part_seconds: float
    moments_part_seconds: float
    block_start_seconds: float


@dataclass(frozen=True)
class RowsCost:
    """Reductions and normalizations: families of rows and columns."""

    tile_share: float
    smem_rate: float
    cluster_exchange_seconds: float
    alone_blocks: float
    enough_blocks: int
    tall_skinny_bytes: int
    moments_operations: int
    bytes_in_flight: int
    bytes_per_cycle: int
    missing_blocks_penalty: float


@dataclass(frozen=True)
class BuildCost:
    """Compile time of a kernel with NVRTC, on one CPU core."""

    kernel_seconds: float
    statement_seconds: float
    unrolled_exponent: float
    reduction_seconds: float
    reductions_exponent: float
    special_statements: int


@dataclass(frozen=True)
class RegisterWeights:
    """Registers per word, or per other quantity counted by `schedule/pressure.py`."""

    derived: float
    ahead: float
    flight: float
    lanes: float
    special: float
    doubles: float
    arrays: float
    sums: float


@dataclass(frozen=True)
class RegistersCost:
    """Registers that NVRTC allocates per thread."""

    thread_registers: int
    given_up_registers: int
    spilling_share: float
    weights: RegisterWeights


@dataclass(frozen=True)
class Costs:
    """The coefficients of all families; each field is a table of a target file."""

    matmul: MatmulCost
    matmul_wgmma: MatmulWgmmaCost
    matmul_gemv: MatmulGemvCost
    attention: AttentionCost
    attention_backward: AttentionBackwardCost
    attention_decode: AttentionDecodeCost
    grid_reduce: GridReduceCost
    rows: RowsCost
    registers: RegistersCost
    build: BuildCost

    # Lower bounds over all GEMM kernels, used to prune partitions into segments.

    @property
    def gemm_memory_reach(self) -> float:
        """Return the largest fraction of `bandwidth` that a GEMM kernel reaches."""
        return max(t.memory_reach for t in (self.matmul, self.matmul_wgmma, self.matmul_gemv))

    @property
    def gemm_tensor_reach(self) -> float:
        """Return the largest fraction of `half_flops` that a 16-bit GEMM kernel reaches."""
        curves = (self.matmul.tensor_reach, self.matmul_wgmma.tensor_reach)
        return max(reach for curve in curves for _, reach in curve)

    @property
    def gemm_start_seconds(self) -> float:
        """Return the minimum seconds of a GEMM kernel before its first MMA, launch excluded."""
        return min(self.matmul.plain_start_seconds, self.bulk_gemm_start_seconds)

    @property
    def bulk_gemm_start_seconds(self) -> float:
        """Return the same for kernels that load by bulk copies, or stream."""
        starts = (self.matmul_wgmma.start_seconds, self.matmul_gemv.start_seconds)
        return min(self.matmul.tile_seconds, *starts)


def read_costs(tables: object, path: Path) -> Costs:
    """Return the coefficients in the tables under `cost`.

    FusecError names the file and the table or key that is missing, unknown or of another type.
    """
    return cast("Costs", _read(tables, Costs, "cost", path))


def _read(value: object, record: type[Any], name: str, path: Path) -> object:
    """Return a record, whose fields are the keys of a table."""
    table = _table(value, name, path)
    kinds: dict[str, Any] = {f.name: f.type for f in fields(record)}
    for key in (*kinds, *table):
        if key not in table or key not in kinds:
            problem = "missing" if key not in table else "unknown"
            raise FusecError(f"target file `{path}`: {problem} field `{name}.{key}`")
    return record(**{k: _field(table[k], kind, f"{name}.{k}", path) for k, kind in kinds.items()})


def _table(value: object, name: str, path: Path) -> dict[str, object]:
    if not isinstance(value, dict):
        raise FusecError(f"target file `{path}`: `{name}` must be a table")
    return cast("dict[str, object]", value)


def _field(value: object, kind: Any, name: str, path: Path) -> object:
    if kind not in _KINDS:
        return _read(value, kind, name, path)
    what, convert = _KINDS[kind]
    try:
        return convert(value)
    except (AttributeError, TypeError, ValueError):
        raise FusecError(f"target file `{path}`: `{name}` must be {what}") from None


def _number(value: Any) -> float:
    if not _is_number(value) or not 0 < value < inf:
        raise ValueError
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError
    return value


def _numbers(value: Any) -> Numbers:
    if not isinstance(value, list):
        raise TypeError
    return tuple(_number(each) for each in cast("list[object]", value))


def _by_count(value: Any) -> ByCount:
    return {int(count): _number(each) for count, each in value.items()}


def _curve(value: Any) -> Curve:
    points: Curve = tuple((at, each) for at, each in value)
    rising = [at for at, _ in points]
    if len(points) < 2 or rising != sorted(set(rising)):
        raise ValueError
    if not all(_is_number(each) and 0 <= each < inf for point in points for each in point):
        raise ValueError
    return points


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_KINDS: Mapping[Any, tuple[str, Callable[[Any], object]]] = {
    float: ("a positive number", _number),
    int: ("a positive integer", _count),
    Numbers: ("a list of positive numbers", _numbers),
    ByCount: ("a table of positive numbers by integers", _by_count),
    Curve: ("a list of pairs [integer, number] that rise", _curve),
}
