"""The device functions that multiply stages, and the arguments that depend on the schedule."""

from __future__ import annotations

from fusec.codegen.matmul_scales import UNSCALED
from fusec.ir.dtype import F32
from fusec.kernel.nodes import Braced, Listed, Operand, operand
from fusec.schedule.matmul_choice import TILES, MatmulParameters
from fusec.schedule.matmul_problem import Product


def further(*arguments: Operand) -> Listed:
    """Return arguments behind others."""
    return Listed(tuple(map(operand, arguments)), further=True)


def apart(problem: Product, p: MatmulParameters) -> Listed:
    """Return the template arguments behind the Config of what leaves sums in shared memory."""
    return further(1) if p.converted and not problem.b.k_major else further()


def stage_arguments(p: MatmulParameters, *, narrow: bool) -> dict[str, Listed]:
    """Return the template arguments behind the Config of what loads a stage and multiplies it."""
    tiles, is_alone = (p.pair_rows, p.pair_columns), p.multicast == "none"
    shares = (*tiles, True) if p.joined else () if is_alone else tiles
    readers = () if is_alone else tiles
    if not narrow:
        readers = (p.ping_pong, *readers) if p.ping_pong or readers else ()
    return {"shares": further(*shares), "readers": further(*readers)}


def loads(problem: Product, p: MatmulParameters, once: tuple[bool, bool]) -> Listed:
    """Return the template arguments behind the Config of what loads a stage of a split product."""
    if problem.computed is not None:
        return further(True) if once[1] else further()
    panels = p.tile_k // TILES["split_k"]["tile_k"] if p.converted else 1
    halved = [2 if problem.b.packed == axis else 1 for axis in ("depth", "row")]
    across = halved[1] if p.converted and not problem.b.k_major else 0
    given = [p.pair_rows, p.pair_columns, p.joined, panels, *once, halved[0], across]
    plain = (1, 1, False, 1, False, False, 1, 0)
    while given and given[-1] == plain[len(given) - 1]:
        given.pop()
    return further(*given)


def loop(problem: Product, p: MatmulParameters) -> str:
    """Return the function that multiplies the stages of a tile."""
    if p.kernel == "vector":
        weights = "multiply_weight_vectors" if problem.b.k_major else "multiply_weights_across"
        rows = "multiply_vectors" if problem.computed is None else "multiply_computed_vectors"
        return weights if p.converted else rows
    if p.kernel == "mma":
        return "multiply_tf32_steps" if problem.dtype == F32 else "multiply_steps"
    if p.converted:
        return "multiply_converted"
    return "multiply_stages" if problem.narrow is None else "multiply_promoted"


def scaled_by(problem: Product, p: MatmulParameters) -> Listed:
    """Return the scales of wgmma's rows and columns as further arguments of the loop."""
    if p.converted:
        factors = (("b_scales", problem.b.scales), ("b_zeros", problem.b.zeros))
        return further(*(Braced(UNSCALED) if f is None else name for name, f in factors))
    if not problem.scales:
        return further()
    return further("b_scales", "a_scales") if p.swapped else further("a_scales", "b_scales")
