"""The predicted time of a GEMM kernel with one persistent CTA per SM."""

from __future__ import annotations

from math import gcd

from fusec.schedule.matmul.cost.cache_hints import displaced_bytes
from fusec.schedule.matmul.cost.work import ProductWork, line_cost, part_of_rate
from fusec.schedule.matmul.hopper import MULTIPLIERS, PersistentParameters
from fusec.schedule.matmul.staged import LINE, staged_columns
from fusec.target import Target
from fusec.target.costs import MatmulWgmmaCost


def persistent_seconds(p: PersistentParameters, needed: ProductWork, target: Target) -> float:
    """Return the time of all tiles, including the epilogues.

    With ping-pong an epilogue overlaps with the main loop of the next tile, except the last one and
    except where it takes longer than that main loop.
    """
    sizes, cost = needed.sizes, target.cost.matmul_wgmma
    places = p.resident_clusters(target)
    waves, left = divmod(sizes.clusters(p), places)
    steps = -(-sizes.k // p.tile_k)
    after = _stored_seconds(p, cost) + epilogue_seconds(p, needed, target)
    stage = _Stage(p, needed, target)

    def turn(count: int) -> float:
        main = steps * stage.seconds(count * p.ctas)
        return max(main, (main + after) / 2) if p.ping_pong else main + after

    taken = waves * turn(places) if waves else 0.0
    if p.splits > 1 and 0 < left * p.splits <= places:
        main = -(-steps // p.splits) * stage.seconds(left * p.splits * p.ctas)
        slices = p.splits * p.tile_m * p.tile_n * 4
        taken += main + cost.slice_arrival_seconds + slices / cost.slice_rate + after
    else:
        taken += (turn(left) if left else 0.0) + (after if p.ping_pong else 0.0)
    stores = _lines_stored(p, needed) / (target.bandwidth * cost.store_reach)
    norm = cost.store_overlap_exponent
    return cost.start_seconds + (taken**norm + stores**norm) ** (1 / norm)


def _stored_seconds(p: PersistentParameters, cost: MatmulWgmmaCost) -> float:
    """Return the seconds that it takes to store the accumulators of a tile."""
    by = cost.staged_sum_seconds if p.epilogue_smem else cost.exchanged_sum_seconds
    return by[p.vector_width] * p.sums


def _lines_stored(p: PersistentParameters, needed: ProductWork) -> float:
    """Return the bytes of memory lines written, counting a line once per segment of a row."""
    stored = needed.stored
    columns = min(p.tile_n, MULTIPLIERS // 8)
    if p.epilogue_smem:
        columns = staged_columns(p.columns, whole=stored.whole, dual=p.dual)
        # Neighbouring tiles together fill the line between them.
        columns *= min(2, p.cluster_n) if stored.whole else 1
    piece = columns * stored.element
    return stored.bytes * (1 + (LINE - gcd(stored.begin, piece)) / piece)


class _Stage:
    """The time of one stage, as a function of the number of concurrent CTAs.

    It is bound by the wgmma of the stage, or by the loads of the next one.
    """

    def __init__(self, p: PersistentParameters, needed: ProductWork, target: Target) -> None:
        """Add up the bytes of a stage and the cost of their lines."""
        self.target, sizes, depth = target, needed.sizes, p.tile_k
        self.cost = cost = target.cost.matmul_wgmma
        extents = (p.tile_m, p.columns)
        loaded = [
            -(-extent // block) * block
            for extent, block in zip(extents, needed.blocks, strict=True)
        ]
        within = [min(x, size) for x, size in zip(loaded, (sizes.m, sizes.n), strict=True)]
        # From L2; an operand that a cluster shares is loaded once.
        shared, products = (p.cluster_n, p.cluster_m), (1, p.products)
        bytes_ = [
            depth * n * rows * width
            for n, rows, width in zip(products, within, needed.widths, strict=True)
        ]
        asked = [each / by for each, by in zip(bytes_, shared, strict=True)]
        wanted = _rows_in_flight(p, needed, p.resident_clusters(target) * p.ctas)
        dearer = (
            1.0,
            cost.shared_a_penalty[needed.blocks[1] > 1]
            if (p.cluster_m, p.cluster_n) == (1, 2)
            else 1.0,
        )
        self.taken = sum(
            part * line_cost(needed, side, cost.line_penalties, extents[side])
            * (1 + cost.hot_row_limit / wanted[side]) * dearer[side]
            for side, part in enumerate(asked)
        )  # fmt: skip
        beyond = sum(
            depth * width * max(0.0, rows - size / max(1, -(-size // extent)))
            for width, rows, size, extent in zip(
                needed.widths, loaded, (sizes.m, sizes.n), extents, strict=True
            )
        )
        stages = sizes.clusters(p) * p.ctas * -(-sizes.k // depth)
        from_memory = min(1.0, needed.bytes / max(1, sum(asked) * stages))
        displaced = 1 + displaced_bytes(p, needed, target) / max(1, needed.bytes)
        self.from_memory = sum(asked) * from_memory * displaced
        more = cost.fp8_ratio if needed.is_narrow else cost.tf32_ratio if needed.is_tf32 else 1.0
        self.products = 2.0 * p.tile_m * p.tile_n * depth / more
        rate = target.half_flops * part_of_rate(cost.tensor_reach, p.across) / target.sms
        latency = cost.stage_seconds + (cost.shared_stage_seconds if p.ctas > 1 else 0.0)
        alone = (
            self.products / rate,
            (sum(bytes_) + cost.out_of_bounds_penalty * beyond) / cost.smem_fill_rate,
            sum(asked) / cost.tf32_rounding_rate if needed.is_tf32 else 0.0,
            latency / max(1, p.stages - 1),
        )
        self.part = cost.dual_stage_share if p.dual else 1.0
        self.powered = cost.power_limit * (cost.ping_pong_power_ratio if p.ping_pong else 1.0)
        self.alone = sum(part**cost.overlap_exponent for part in alone)

    def seconds(self, running: int) -> float:
        """Return the time of a stage with `running` concurrent CTAs."""
        cost, norm = self.cost, self.cost.overlap_exponent
        parts = (
            running * self.products / self.powered,
            self.taken / cost.l2_rate * (running / self.target.sms) ** (1 - cost.l2_contention),
            running * self.from_memory / (self.target.bandwidth * cost.memory_reach),
        )
        taken = (self.alone + sum(part**norm for part in parts)) ** (1 / norm)
        return taken * self.part


def _rows_in_flight(
    p: PersistentParameters, needed: ProductWork, running: int
) -> tuple[float, float]:
    """Return the rows of A and of B that `running` concurrent CTAs load."""
    sizes = needed.sizes
    down, across = -(-sizes.m // p.tile_m), -(-sizes.n // p.columns)
    rows = min(down, max(p.raster_group, running / across))
    columns = min(across, running / rows)
    return min(sizes.m, rows * p.tile_m), p.products * min(sizes.n, columns * p.columns)


def epilogue_seconds(p: PersistentParameters, needed: ProductWork, target: Target) -> float:
    """Return the extra time of a warpgroup's epilogue of a tile over a plain one.

    Staged rows are loaded before the main loop ends; others are waited for.
    """
    sizes, epilogue, cost = needed.sizes, needed.epilogue, target.cost.matmul_wgmma
    threads = 128 * p.tile_warpgroups
    count = min(p.tile_m, sizes.m) * min(p.columns, sizes.n)
    flops, sfu = epilogue.operations(target)
    issued = flops / (target.flops / 2 * cost.epilogue_issue)
    special = sfu / target.special
    waits = epilogue.reads > (epilogue.fetched if p.epilogue_smem else 0)
    turns = -(-count // (threads * p.vector_width)) if waits else 0
    busy = count * max(issued, special) * target.sms
    busy *= cost.tall_tile_penalty if epilogue.reads and p.tile_m > 128 else 1.0
    busy *= cost.dual_epilogue_penalty if p.dual and not p.ping_pong else 1.0
    return busy + turns * cost.epilogue_load_seconds
