"""The predicted time of a product's kernel with one CTA per SM over all tiles."""

from __future__ import annotations

from math import gcd

from fusec.schedule.matmul_choice import MULTIPLIERS, MatmulParameters
from fusec.schedule.matmul_once import displaced_bytes
from fusec.schedule.matmul_staged import LINE, staged_columns
from fusec.schedule.matmul_work import ProductWork, part_of_rate
from fusec.segment.protocol import OVERLAP
from fusec.target import Target

# All of what follows is fitted to 2 000 schedules of 63 products on an H200 (decision 118).
_RATES = ((0, 0.0), (64, 0.65), (128, 0.9), (192, 0.97), (256, 1.06))
"""The inner loop's part of the tensor cores' rate, by the columns of one wgmma."""
_TURNS = 1.13
"""The same with ping-pong, where one warpgroup's products follow each other without the other's."""
_FEW_ROWS = 0.87
"""The same where a stage has 64 rows of A for all of its columns of B."""
FP8_RATE = 1.7
"""Of 8-bit floats, whose sums are promoted, over halves (8192 cubed, sums not staged)."""
_INGEST = 1.77e11
"""Bytes a second that an SM takes of L2, where rows begin at lines of memory."""
_LINES = ({16: 3.2, 32: 1.5, 64: 1.2}, {16: 3.5, 32: 2.5, 64: 1.2})
"""What 128 bytes of L2 cost where a tile's runs begin at multiples of so many bytes, in lines that
begin where they do: along K, and along M or N (at 64 bytes estimated)."""
_BEYOND = 3.0
"""The same of rows of a tile that lie beyond A, or B, and arrive as zeros."""
_L2_STAGE, _MEMORY_STAGE = 1.3e-6, 0.75e-6
"""From asking for a stage to having it, where operands are found in L2, and the more of those that
are read from memory; one stage is in the hands of the tensor cores."""
_MEMORY_RATE = 0.97
"""Of the bandwidth, where operands are read once."""
_START = 2.5e-6
"""Beyond a launch, before the first products: what these read comes from memory."""
_PAIR = 1.02
"""How much longer a stage takes where two CTAs hand it back."""
_SHARED_STAGE = {"none": 0.0, "a": 0.57e-6, "b": 0.26e-6}
"""How much later it is there."""
_STAGED, _EXCHANGED = {1: 3.3e-8, 2: 1e-8}, {1: 1.6e-7, 2: 3.2e-8, 8: 2.9e-8}
"""Seconds after a tile's products, for each sum of a thread, in which none run: sums are stored by
so many columns, as rows or as lanes have them, and the next products begin."""
_STORE_RATE = 0.85
"""Of the bandwidth, where results are stored and little else is done."""
_ISSUE = 0.85
"""Of the issue slots, which an epilogue's operations fill."""
_LOAD = 0.8e-6
"""Loads of an operand of the epilogue, for which a warp waits before its next columns."""
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
    rows, columns = -(-sizes.m // p.tile_m), -(-sizes.n // p.columns)
    pairs = sizes.batches * -(-rows // p.pair_rows) * -(-columns // p.pair_columns)
    places = target.sms // p.ctas
    steps = -(-sizes.k // p.tile_k)
    running = min(pairs, places) * p.ctas
    main = steps * _stage_seconds(p, needed, running, pairs * p.ctas * steps, target)
    after = _stored_seconds(p) + epilogue_seconds(p, needed, target)
    turns = -(-pairs // places)
    if p.ctas > 1:
        main *= _PAIR
    taken = turns * (main + after)
    if p.ping_pong:
        taken = turns * max(main, (main + after) / 2) + after
    stores = _lines_stored(p, needed) / (target.bandwidth * _STORE_RATE)
    return _START + (taken**OVERLAP + stores**OVERLAP) ** (1 / OVERLAP)


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
    return stored.bytes * (1 + (LINE - gcd(stored.begin, piece)) / piece)


def _stage_seconds(
    p: MatmulParameters, needed: ProductWork, running: int, stages: int, target: Target
) -> float:
    """Return the time of a stage: of its products, or of what brings the next one.

    running: CTAs at a time; stages: of all tiles.
    """
    a = min(-(-p.tile_m // needed.blocks[0]) * needed.blocks[0], needed.sizes.m)
    b = min(-(-p.columns // needed.blocks[1]) * needed.blocks[1], needed.sizes.n)
    b *= 2 if p.joined else 1
    # Of L2; what a cluster shares is asked for once.
    asked = (a / p.pair_columns, b / p.pair_rows)
    bytes_ = [rows * w * p.tile_k for rows, w in zip(asked, needed.widths, strict=True)]
    lines = (_lines(p.tile_m, needed, 0), _lines(p.columns, needed, 1))
    taken = sum(part * cost for part, cost in zip(bytes_, lines, strict=True))
    beyond = (_beyond(p.tile_m, needed.sizes.m), _beyond(p.columns, needed.sizes.n))
    taken += (
        _BEYOND * p.tile_k * sum(rows * w for rows, w in zip(beyond, needed.widths, strict=True))
    )
    loaded = sum(bytes_)
    from_memory = min(1.0, needed.bytes / max(1, loaded * stages))
    displaced = 1 + displaced_bytes(p, needed, target) / max(1, needed.bytes)
    rate = target.half_flops * part_of_rate(_RATES, p.tile_n) / target.sms
    if needed.is_narrow:
        rate *= FP8_RATE
    if p.ping_pong:
        rate *= _TURNS * (_FEW_ROWS if p.row_blocks == 1 else 1.0)
    parts = (
        2.0 * p.tile_m * p.tile_n * p.tile_k / rate,
        taken / _INGEST,
        (_L2_STAGE + _MEMORY_STAGE * from_memory + _SHARED_STAGE[p.multicast])
        / max(1, p.stages - 1),
        running * loaded * from_memory * displaced / (target.bandwidth * _MEMORY_RATE),
    )
    return sum(part**_NORM for part in parts) ** (1 / _NORM)


def _beyond(extent: int, size: int) -> float:
    """Return the rows of a tile that lie beyond an operand, of all its tiles in the mean."""
    tiles = max(1, -(-size // extent))
    return extent - size / tiles


def _lines(extent: int, needed: ProductWork, operand: int) -> float:
    """Return the cost of a line of A (0) or B (1), of which a tile has so many rows or columns."""
    begin, across = needed.begins[operand], needed.blocks[operand] > 1
    if across:
        begin = gcd(begin, round(extent * needed.widths[operand]))
    return _LINES[across].get(max(16, begin), 1.0)


def epilogue_seconds(p: MatmulParameters, needed: ProductWork, target: Target) -> float:
    """Return the time of a warpgroup's epilogue of a tile beyond a plain one's.

    Rows that are staged are there when the products end; others are waited for.
    """
    sizes, epilogue = needed.sizes, needed.epilogue
    threads = MULTIPLIERS // 2 if p.ping_pong else MULTIPLIERS
    count = min(p.tile_m, sizes.m) * min(p.columns, sizes.n)
    issued = epilogue.flops / (target.flops / 2 * _ISSUE)
    special = epilogue.sfu / target.special
    waits = epilogue.reads > (epilogue.fetched if p.staged else 0)
    turns = -(-count // (threads * p.vector_width)) if waits else 0
    busy = count * max(issued, special) * target.sms
    return busy * (_JOINED if p.joined and not p.ping_pong else 1.0) + turns * _LOAD
