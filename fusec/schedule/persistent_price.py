"""The predicted time of a product's kernel with one CTA per SM over all tiles."""

from __future__ import annotations

from math import gcd

from fusec.schedule.matmul_beside import clusters
from fusec.schedule.matmul_choice import MULTIPLIERS, MatmulParameters
from fusec.schedule.matmul_once import displaced_bytes
from fusec.schedule.matmul_staged import LINE, staged_columns
from fusec.schedule.matmul_work import ProductWork, line_cost, part_of_rate
from fusec.target import Target

# All of what follows is fitted to 2 500 schedules of 180 products on an H200 (decision 143), but
# for epilogues and other types than halves.
_RATES = ((0, 0.0), (64, 0.97), (128, 1.18), (192, 1.22), (256, 1.26))
"""The inner loop's part of the tensor cores' rate, by the columns of one wgmma."""
_POWERED, _TURNS = 8.5e14, 1.015
"""Operations a second of all SMs, for which the power lasts, and the more with ping-pong (16384 x
4096 x 4096: 701 us, without 734)."""
FP8_RATE = 1.7
"""Of 8-bit floats, whose sums are promoted, over halves (8192 cubed, sums not staged)."""
TF32_RATE = 0.5
"""The same of 10 bits of f32."""
ROUNDED = 8.5e10
"""Bytes a second of an SM that copies in bulk round to 10 bits on their way (8192 cubed)."""
_L2_RATE = 1.39e11
"""Bytes a second that an SM takes of L2, where rows begin at lines of memory, and all SMs do."""
_CROWDED = 0.415
"""The power of the part of the SMs at work by which that takes longer."""
_LINES = ({16: 2.08, 32: 1.42, 64: 1.28},) * 2
"""What 128 bytes of L2 cost where a tile's runs begin at multiples of so many bytes, in lines that
begin where they do: along K, and along M or N."""
_WANTED = 169.0
"""Rows at a time of an operand for which all SMs ask that take twice as long: they lie in few
places of L2 (56 x 15576 x 8224: 93 us, where four CTAs ask once 76)."""
_BESIDE_A = (1.15, 1.3)
"""What B, along K and across it, costs more in L2 where two CTAs share A (464 x 3904 x 10272: 80
us, each CTA by itself 57)."""
_INGEST, _BEYOND = 4.9e11, 19.0
"""Bytes a second that arrive at an SM, and how much longer rows take that lie beyond A, or B, and
arrive as zeros."""
_STAGE, _SHARED_STAGE = 1.02e-6, 0.48e-6
"""From asking for a stage to having it, and the more of one that CTAs share; one stage is in the
hands of the tensor cores."""
_MEMORY_RATE = 0.88
"""Of the bandwidth, where operands are read once."""
_START = 1.3e-6
"""Beyond a launch, before the first products: what these read comes from memory."""
_STAGED = {1: 5.4e-8, 2: 1.11e-8}
_EXCHANGED = {1: 1.6e-7, 2: 2.26e-8, 4: 1.44e-8, 8: 1.96e-8}
"""Seconds after a tile's products, for each sum of a thread, in which none run: sums are stored by
so many columns, as rows or as lanes have them, and the next products begin."""
_STORE_RATE = 0.79
"""Of the bandwidth, where results are stored and little else is done."""
_ISSUE = 0.85
"""Of the issue slots, which an epilogue's operations fill."""
_TALL = 1.8
"""How much longer one takes that reads, of more than 128 rows (5000 x 4104 x 2056, silu(x) * r: 192
x 176 177 us, 256 x 128 186, 128 x 192 161)."""
_LOAD = 0.8e-6
"""Loads of an operand of the epilogue, for which a warp waits before its next columns."""
_ARRIVAL, _SLICE_RATE = 3.65e-6, 8e10
"""From the sums of a part of a tile to those of all, and bytes a second of these."""
_JOINED = 1.15
"""How much longer the operations of an epilogue that joins two products take, where both warpgroups
are at it together (4096 x 11008 x 4096: 1050 us, by ping-pong 1009)."""
_JOINED_STAGE = 0.96
"""The part of a stage's time that one of two joined products takes (8192 x 14336 x 4096: 2389 us,
512 x 14336 x 4096: 160)."""
_NORM, _STORES_NORM = 6, 3
"""Resources of a stage are used together: the time is little above that of the scarcest. Stores are
less evenly spread."""


def persistent_seconds(p: MatmulParameters, needed: ProductWork, target: Target) -> float:
    """Return the time of all tiles: what follows a tile's products adds to them.

    With ping-pong it runs under the products of the next tile, but for the last one's, and where it
    takes longer than these.
    """
    sizes = needed.sizes
    places = clusters(p, target)
    waves, left = divmod(sizes.clusters(p), places)
    steps = -(-sizes.k // p.tile_k)
    after = _stored_seconds(p) + epilogue_seconds(p, needed, target)
    stage = _Stage(p, needed, target)

    def turn(count: int) -> float:
        main = steps * stage.seconds(count * p.ctas)
        return max(main, (main + after) / 2) if p.ping_pong else main + after

    taken = waves * turn(places) if waves else 0.0
    if p.splits > 1 and 0 < left * p.splits <= places:
        main = -(-steps // p.splits) * stage.seconds(left * p.splits * p.ctas)
        taken += main + _ARRIVAL + p.splits * p.tile_m * p.tile_n * 4 / _SLICE_RATE + after
    else:
        taken += (turn(left) if left else 0.0) + (after if p.ping_pong else 0.0)
    stores = _lines_stored(p, needed) / (target.bandwidth * _STORE_RATE)
    return _START + (taken**_STORES_NORM + stores**_STORES_NORM) ** (1 / _STORES_NORM)


def _stored_seconds(p: MatmulParameters) -> float:
    """Return the seconds after a tile's products that it takes to store its sums."""
    by = _STAGED if p.staged else _EXCHANGED
    return by[p.vector_width] * p.sums


def _lines_stored(p: MatmulParameters, needed: ProductWork) -> float:
    """Return the bytes of memory's lines that are touched, once by each piece of a row."""
    stored = needed.stored
    columns = min(p.tile_n, MULTIPLIERS // 8)
    if p.staged:
        columns = staged_columns(p.columns, whole=stored.whole, joined=p.joined)
        # Neighbouring tiles fill the line between them together.
        columns *= min(2, p.pair_columns) if stored.whole else 1
    piece = columns * stored.element
    return stored.bytes * (1 + (LINE - gcd(stored.begin, piece)) / piece)


class _Stage:
    """What the time of a stage follows from, whatever runs beside it.

    It is that of its products, or of what brings the next one.
    """

    def __init__(self, p: MatmulParameters, needed: ProductWork, target: Target) -> None:
        """Add up the bytes of a stage and what their lines cost."""
        self.target, sizes, depth = target, needed.sizes, p.tile_k
        extents = (p.tile_m, p.columns)
        loaded = [
            -(-extent // block) * block
            for extent, block in zip(extents, needed.blocks, strict=True)
        ]
        within = [min(x, size) for x, size in zip(loaded, (sizes.m, sizes.n), strict=True)]
        # Of L2; what a cluster shares is asked for once.
        shared, products = (p.pair_columns, p.pair_rows), (1, p.products)
        bytes_ = [
            depth * n * rows * width
            for n, rows, width in zip(products, within, needed.widths, strict=True)
        ]
        asked = [each / by for each, by in zip(bytes_, shared, strict=True)]
        wanted = _rows_at_once(p, needed, clusters(p, target) * p.ctas)
        dearer = (1.0, _BESIDE_A[needed.blocks[1] > 1] if p.multicast == "a" else 1.0)
        self.taken = sum(
            part * line_cost(needed, side, _LINES, extents[side]) * (1 + _WANTED / wanted[side])
            * dearer[side]
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
        more = FP8_RATE if needed.is_narrow else TF32_RATE if needed.is_tf32 else 1.0
        self.products = 2.0 * p.tile_m * p.tile_n * depth / more
        rate = target.half_flops * part_of_rate(_RATES, p.across) / target.sms
        latency = _STAGE + (_SHARED_STAGE if p.ctas > 1 else 0.0)
        alone = (
            self.products / rate,
            (sum(bytes_) + _BEYOND * beyond) / _INGEST,
            sum(asked) / ROUNDED if needed.is_tf32 else 0.0,
            latency / max(1, p.stages - 1),
        )
        self.part = _JOINED_STAGE if p.joined else 1.0
        self.powered = _POWERED * (_TURNS if p.ping_pong else 1.0)
        self.alone = sum(part**_NORM for part in alone)

    def seconds(self, running: int) -> float:
        """Return the time of a stage of so many CTAs at once."""
        parts = (
            running * self.products / self.powered,
            self.taken / _L2_RATE * (running / self.target.sms) ** (1 - _CROWDED),
            running * self.from_memory / (self.target.bandwidth * _MEMORY_RATE),
        )
        taken = (self.alone + sum(part**_NORM for part in parts)) ** (1 / _NORM)
        return taken * self.part


def _rows_at_once(p: MatmulParameters, needed: ProductWork, running: int) -> tuple[float, float]:
    """Return the rows of A, and of B, that so many CTAs ask for at once."""
    sizes = needed.sizes
    down, across = -(-sizes.m // p.tile_m), -(-sizes.n // p.columns)
    rows = min(down, max(p.band, running / across))
    columns = min(across, running / rows)
    return min(sizes.m, rows * p.tile_m), p.products * min(sizes.n, columns * p.columns)


def epilogue_seconds(p: MatmulParameters, needed: ProductWork, target: Target) -> float:
    """Return the time of a warpgroup's epilogue of a tile beyond a plain one's.

    Rows that are staged are there when the products end; others are waited for.
    """
    sizes, epilogue = needed.sizes, needed.epilogue
    threads = 128 * (1 if p.ping_pong else p.consumers)
    count = min(p.tile_m, sizes.m) * min(p.columns, sizes.n)
    issued = epilogue.flops / (target.flops / 2 * _ISSUE)
    special = epilogue.sfu / target.special
    waits = epilogue.reads > (epilogue.fetched if p.staged else 0)
    turns = -(-count // (threads * p.vector_width)) if waits else 0
    busy = count * max(issued, special) * target.sms
    busy *= _TALL if epilogue.reads and p.tile_m > 128 else 1.0
    return busy * (_JOINED if p.joined and not p.ping_pong else 1.0) + turns * _LOAD
