"""The device functions of the main loop, and the arguments that depend on the schedule."""

from __future__ import annotations

from fusec.ir.dtype import F32
from fusec.kernel.lowering.products import boolean, integer
from fusec.kernel.nodes import Braced, Listed, Name, Operand, Statement, operand
from fusec.schedule.matmul.choice import MatmulParameters
from fusec.schedule.matmul.gemv import GemvParameters
from fusec.schedule.matmul.hopper import TILE_K, HopperParameters
from fusec.schedule.matmul.kernel.scales import UNSCALED
from fusec.schedule.matmul.portable import MmaParameters
from fusec.schedule.matmul.problem import Product

CONFIG_ROWS, CONFIG_COLUMNS = Name("Config::kClusterM"), Name("Config::kClusterN")


def further(*arguments: Operand) -> Listed:
    """Return arguments that follow others."""
    return Listed(tuple(map(operand, arguments)), further=True)


def row_distance(problem: Product, p: MatmulParameters) -> Listed:
    """Return the template arguments after the Config of functions that store accumulators."""
    return further(1) if p.converted and not problem.b.k_major else further()


def pipeline(
    problem: Product, p: MatmulParameters, once: tuple[bool, bool]
) -> tuple[Statement, ...]:
    """Return the overrides of fusec::PlainPipeline for the stages of a Hopper kernel.

    once: whether A and B are each read once.
    """
    if not isinstance(p, HopperParameters):
        return ()
    reads_a, in_turn = problem.computed is None, p.tile_warpgroups == 1
    panels = (p.tile_k // TILE_K if p.converted else 1) if reads_a else 0
    depth, row = (2 if problem.b.packed == axis else 1 for axis in ("depth", "row"))
    across = row if p.converted and not problem.b.k_major else 0
    last = "is read only once: L2 evict-first"
    members = (
        (p.cluster_m > 1, integer("kRows", CONFIG_ROWS, "tiles of a cluster that share B")),
        (p.cluster_n > 1, integer("kColumns", CONFIG_COLUMNS, "tiles of a cluster that share A")),
        (in_turn, boolean("kPingPong", True, "two warpgroups alternate between tiles")),
        (p.dual, boolean("kDual", True, "half of the columns belong to a second B")),
        (panels > 1, integer("kPanels", panels, "loads per tile of A, 64 elements of K each")),
        (panels == 0, integer("kPanels", 0, "A is computed")),
        (reads_a and once[0], boolean("kOnceA", True, f"A {last}")),
        (once[1], boolean("kOnceB", True, f"B {last}")),
        (depth > 1, integer("kPacked", depth, "elements of K per byte of B")),
        (across > 0, integer("kAcross", across, "columns per byte of B, which is N-major")),
    )
    return tuple(member for differs, member in members if differs)


def loop(problem: Product, p: MatmulParameters) -> str:
    """Return the main loop function of a tile."""
    match p:
        case GemvParameters():
            weights = "multiply_weight_vectors" if problem.b.k_major else "multiply_weights_across"
            rows = "multiply_vectors" if problem.computed is None else "multiply_computed_vectors"
            return weights if p.converted else rows
        case MmaParameters():
            return "multiply_tf32_steps" if problem.dtype == F32 else "multiply_steps"
        case _:
            plain = "multiply_stages" if problem.narrow is None else "multiply_promoted"
            return "multiply_converted" if p.converted else plain


def scaled_by(problem: Product, p: MatmulParameters) -> Listed:
    """Return the scales of wgmma's rows and columns as further arguments of the loop."""
    if p.converted:
        factors = (("b_scales", problem.b.scales), ("b_zeros", problem.b.zeros))
        return further(*(Braced(UNSCALED) if f is None else name for name, f in factors))
    if not problem.scales:
        return further()
    return further("b_scales", "a_scales") if p.swap_ab else further("a_scales", "b_scales")
