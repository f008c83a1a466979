"""The predicted time of a product's kernel with one CTA per SM over all tiles."""

from __future__ import annotations

from math import gcd

from fusec.schedule.matmul_beside import clusters
from fusec.schedule.matmul_choice import MULTIPLIERS, MatmulParameters
from fusec.schedule.matmul_once import displaced_bytes
from fusec.schedule.matmul_staged import LINE, staged_columns
from fusec.schedule.matmul_work import ProductWork, line_cost, part_of_rate
from fusec.target import Target

# All of what follows is fitted to 2 300 schedules of 180 products on an H200 (decisions 118, 124).
_RATES = ((0, 0.0), (64, 0.61), (128, 1.01), (192, 1.01), (256, 1.09))
"""The inner loop's part of the tensor cores' rate, by the columns of one wgmma."""
_POWERED = 9.5e14
"""Operations a second of all SMs, for which the power lasts."""
_TURNS = 1.11
"""The same with ping-pong, where one warpgroup's products follow each other without the other's."""
_FEW_ROWS = 0.89
"""The same where a stage has 64 rows of A for all of its columns of B."""
FP8_RATE = 1.7
"""Of 8-bit floats, whose sums are promoted, over halves (8192 cubed, sums not staged)."""
TF32_RATE = 0.5
"""The same of 10 bits of f32."""
ROUNDED = 8.5e10
"""Bytes a second of an SM that copies in bulk round to 10 bits on their way (8192 cubed)."""
_INGEST = 1.66e11
"""Bytes a second that an SM takes of L2, where rows begin at lines of memory."""
_LINES = ({16: 3.16, 32: 2.1, 64: 2.1}, {16: 3.4, 32: 2.4, 64: 2.0})
"""What 128 bytes of L2 cost where a tile's runs begin at multiples of so many bytes, in lines that
begin where they do: along K, and along M or N."""
_BEYOND = 2.4
"""The same of rows of a tile that lie beyond A, or B, and arrive as zeros."""
_EMPTY = 3.0
"""The same of the tiles of a cluster that lie beyond as a whole: the others wait for these."""
_L2_STAGE, _MEMORY_STAGE = 1.2e-6, 0.75e-6
"""From asking for a stage to having it, where operands are found in L2, and the more of those that
are read from memory; one stage is in the hands of the tensor cores."""
_MEMORY_RATE = 0.97
"""Of the bandwidth, where operands are read once."""
_START = 2.3e-6
"""Beyond a launch, before the first products: what these read comes from memory."""
_PAIR = 1.03
"""How much longer a stage takes where two CTAs hand it back."""
_SHARED_STAGE = {"none": 0.0, "a": 0.59e-6, "b": 0.29e-6, "both": 0.64e-6}
"""How much later it is there."""
_STAGED, _EXCHANGED = {1: 3.4e-8, 2: 1.1e-8}, {1: 1.6e-7, 2: 4.2e-8, 8: 2.3e-8}
"""Seconds after a tile's products, for each sum of a thread, in which none run: sums are stored by
so many columns, as rows or as lanes have them, and the next products begin."""
_STORE_RATE = 0.84
"""Of the bandwidth, where results are stored and little else is done."""
SECTOR, _PARTIAL = 32, 2.3
"""Bytes of a line that memory takes at once, and what it costs to write a part of them, in whole
ones (13288 x 13288 x 32)."""
_ISSUE = 0.85
"""Of the issue slots, which an epilogue's operations fill."""
_LOAD = 0.8e-6
"""Loads of an operand of the epilogue, for which a warp waits before its next columns."""
_ARRIVAL, _SLICE_RATE = 4.9e-6, 4e10
"""From the sums of a part of a tile to those of all, and bytes a second of these."""
_JOINED = 1.15
"""How much longer the operations of an epilogue that joins two products take, where both warpgroups
are at it together (4096 x 11008 x 4096: 1050 us, by ping-pong 1009)."""
_NORM = 8
"""Resources of a stage are used together: the time is little above that of the scarcest."""


def persistent_seconds(p: MatmulParameters, needed: ProductWork, target: Target) -> float:
    """Return the time of all tiles: what follows a tile's products adds to them.

    With ping-pong it runs under the products of the next tile, but for the last one's, and where it
    takes longer than these.
    """
    sizes = needed.sizes
    pairs = sizes.clusters(p)
    places = clusters(p, target.sms)
    steps = -(-sizes.k // p.tile_k)
    running, waves = min(pairs, places) * p.ctas, -(-pairs // places)
    main = steps * _stage_seconds(
        p, needed, running, pairs * p.ctas * steps, pairs * p.ctas / waves, target
    )
    after = _stored_seconds(p) + epilogue_seconds(p, needed, target)
    if p.ctas > 1:
        main *= _PAIR
    turn = max(main, (main + after) / 2) if p.ping_pong else main + after
    turns, left = divmod(pairs, places)
    taken = turns * turn
    if p.splits > 1 and 0 < left * p.splits <= places:
        handed = _ARRIVAL + p.splits * p.tile_m * p.tile_n * 4 / _SLICE_RATE
        taken += main * -(-steps // p.splits) / steps + handed + after
    else:
        taken += (turn if left else 0.0) + (after if p.ping_pong else 0.0)
    stores = _lines_stored(p, needed) / (target.bandwidth * _STORE_RATE)
    return _START + (taken**_NORM + stores**_NORM) ** (1 / _NORM)


def _stored_seconds(p: MatmulParameters) -> float:
    """Return the seconds after a tile's products that it takes to store its sums."""
    by = _STAGED if p.staged else _EXCHANGED
    return by[p.vector_width] * p.row_blocks * p.tile_n / 2


def _lines_stored(p: MatmulParameters, needed: ProductWork) -> float:
    """Return the bytes of memory's lines that are touched, once by each piece of a row."""
    stored = needed.stored
    columns = min(p.tile_n, MULTIPLIERS // 8)
    if p.staged:
        columns = staged_columns(p.columns, whole=stored.whole, joined=p.joined)
        # Neighbouring tiles of a cluster fill the line between them together.
        columns *= p.pair_columns if stored.whole else 1
    piece = columns * stored.element
    begin = gcd(stored.begin, piece)
    more = (LINE - begin) * (1.0 if begin >= SECTOR else _PARTIAL)
    return stored.bytes * (1 + more / piece)


def _stage_seconds(
    p: MatmulParameters,
    needed: ProductWork,
    running: int,
    stages: int,
    busy: float,
    target: Target,
) -> float:
    """Return the time of a stage: of its products, or of what brings the next one.

    running: CTAs at a time; stages: of all tiles; busy: CTAs of a wave in the mean.
    """
    a = min(-(-p.tile_m // needed.blocks[0]) * needed.blocks[0], needed.sizes.m)
    b = min(-(-p.columns // needed.blocks[1]) * needed.blocks[1], needed.sizes.n)
    b *= 2 if p.joined else 1
    # Of L2; what a cluster shares is asked for once.
    asked = (a / p.pair_columns, b / p.pair_rows)
    bytes_ = [rows * w * p.tile_k for rows, w in zip(asked, needed.widths, strict=True)]
    lines = (line_cost(needed, 0, _LINES, p.tile_m), line_cost(needed, 1, _LINES, p.columns))
    taken = sum(part * cost for part, cost in zip(bytes_, lines, strict=True))
    beyond = (
        _beyond(p.tile_m, p.pair_rows, needed.sizes.m),
        _beyond(p.columns, p.pair_columns, needed.sizes.n),
    )
    zeros = p.tile_k * sum(part * w for part, w in zip(beyond, needed.widths, strict=True))
    loaded = sum(bytes_)
    from_memory = min(1.0, needed.bytes / max(1, loaded * stages))
    displaced = 1 + displaced_bytes(p, needed, target) / max(1, needed.bytes)
    rate = target.half_flops * part_of_rate(_RATES, p.tile_n) / target.sms
    more = FP8_RATE if needed.is_narrow else TF32_RATE if needed.is_tf32 else 1.0
    rate *= more
    if p.ping_pong:
        rate *= _TURNS * (_FEW_ROWS if p.row_blocks == 1 else 1.0)
    products = 2.0 * p.tile_m * p.tile_n * p.tile_k
    parts = (
        products / rate,
        busy * products / (_POWERED * more),
        (taken + zeros) / _INGEST,
        loaded / ROUNDED if needed.is_tf32 else 0.0,
        (_L2_STAGE + _MEMORY_STAGE * from_memory + _SHARED_STAGE[p.multicast])
        / max(1, p.stages - 1),
        running * loaded * from_memory * displaced / (target.bandwidth * _MEMORY_RATE),
    )
    return sum(part**_NORM for part in parts) ** (1 / _NORM)


def _beyond(extent: int, parts: int, size: int) -> float:
    """Return what a tile's rows beyond an operand cost, in rows within, of all tiles in the mean.

    parts: tiles of a cluster, side by side; all of the last one's may lie beyond.
    """
    tiles = max(1, -(-size // extent))
    placed = -(-tiles // parts) * parts
    return _BEYOND * (extent - size / tiles) + _EMPTY * size * (1 / tiles - 1 / placed)


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
    return busy * (_JOINED if p.joined and not p.ping_pong else 1.0) + turns * _LOAD
