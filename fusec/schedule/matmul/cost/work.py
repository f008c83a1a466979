"""What a matrix product needs, whatever its kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import gcd

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.ir.dtype import F32
from fusec.schedule.matmul.choice import Sizes, sizes_of
from fusec.schedule.matmul.epilogue import sums_dtype
from fusec.schedule.matmul.operands.access import is_chunked
from fusec.schedule.matmul.operands.operand import Operand
from fusec.schedule.matmul.problem import Product
from fusec.schedule.matmul.staged import LINE
from fusec.segment.traffic import elements, work
from fusec.target import Target

BLOCK = 64
"""Rows, or columns, of a line's elements of an operand that does not lie along K."""
_TOTAL = {True: 10.0, False: 11.0}
"""Operations for each result that is reduced along its row, or down its column."""
_COMPUTED = 4.0
"""Operations of an element of A that is computed, beside its own: loads, and halves taken apart and
put together (16 x 8192 x 8192 in kernel `gemv`, 48.7 us)."""


@dataclass(frozen=True)
class EpilogueWork:
    """What the epilogue does for an element: operations, and operands read that have as many.

    fetched: those of them that are fetched ahead where rows are staged; reduces: whether results
    are reduced along rows or columns.
    """

    flops: float
    sfu: float
    reads: int
    fetched: int = 0
    reduces: bool = False

    def operations(self, target: Target) -> tuple[float, float]:
        """Return the operations, and special functions, that take as long on the whole GPU."""
        penalty = target.cost.matmul.reducing_penalty if self.reduces else 1.0
        return self.flops * penalty, self.sfu * penalty


@dataclass(frozen=True)
class Stored:
    """What is stored of a product: bytes in all, of an element, and that rows begin multiples of.

    whole: whether a tile's rows are staged from end to end.
    """

    bytes: int
    element: int = 2
    begin: int = LINE
    whole: bool = False


@dataclass(frozen=True)
class ProductWork:
    """What a product needs, whatever its kernel: extents, bytes moved at least, and epilogue.

    begins: the bytes, 16 to 128, at whose multiples runs of A, and of B, begin; widths: bytes of an
    element of A, and of B; loose: operands whose rows are not whole chunks of 16 bytes, so that
    their elements are copied one by one; blocks: rows of A, and columns of B, that copies in bulk
    bring at least at a time; stored: its results; computing: operations of an element of A where
    that is computed, special functions among them.
    """

    sizes: Sizes
    bytes: int
    epilogue: EpilogueWork
    begins: tuple[int, int]
    widths: tuple[float, float] = (2, 2)
    loose: int = 0
    blocks: tuple[int, int] = (1, 1)
    stored: Stored = Stored(0)
    computing: tuple[float, float] = (0.0, 0.0)

    @property
    def is_tf32(self) -> bool:
        """Return whether tensor cores multiply 10 bits of f32."""
        return self.widths == (4, 4)

    @property
    def is_narrow(self) -> bool:
        """Return whether tensor cores multiply 8-bit floats."""
        return self.widths == (1, 1)


def computing_seconds(needed: ProductWork, count: float, part: float, target: Target) -> float:
    """Return how long a part of the issue slots of all SMs computes so many elements of A."""
    flops, sfu = needed.computing
    return count / part * max(flops / (target.flops / 2), sfu / target.special)


def line_cost(
    needed: ProductWork, operand: int, costs: tuple[Mapping[int, float], ...], extent: int = 0
) -> float:
    """Return what 128 bytes of A (0), or B (1), cost in L2, in lines that begin where they do.

    costs: by the bytes at whose multiples runs of a tile begin, along K, and along M or N, where
    every `extent` of them begins a tile.
    """
    begin, across = needed.begins[operand], needed.blocks[operand] > 1
    if across:
        begin = gcd(begin, round(extent * needed.widths[operand]))
    return costs[across].get(max(16, begin), 1.0)


def work_of(product: Product, bytes_: int, hints: Mapping[str, int]) -> ProductWork:
    """Return what a product and its epilogue need at hint sizes; `bytes_`: of its segment."""
    fusion = product.epilogue.fusion
    results = max(1, elements(product.epilogue.sums, hints))
    flops, sfu = work(fusion)
    others = [i.value for i in fusion.inputs if i.value not in product.epilogue.all_sums]
    reads = sum(2 * elements(v, hints) > results for v in others)
    if product.totals:
        each = sum(_TOTAL[t.along_row] for t in product.totals)
        flops += results * each * len(product.totals)  # of several threads hold less at hand
    epilogue = EpilogueWork(
        flops / results, sfu / results, reads, product.slots.fetched, bool(product.totals)
    )
    begins = (_begin(product.a, hints), _begin(product.b, hints))
    facts = Facts(hints)
    loose = sum(not is_chunked(product, o, facts) for o in (product.a, product.b))
    blocks = (1 if product.a.k_major else BLOCK, 1 if product.b.k_major else BLOCK)
    sizes, stored = sizes_of(product, hints), _stored(product, hints)
    widths, before = widths_of(product), _computing(product, hints)
    return ProductWork(sizes, bytes_, epilogue, begins, widths, loose, blocks, stored, before)


def _computing(product: Product, hints: Mapping[str, int]) -> tuple[float, float]:
    """Return the operations, and special functions, of an element of A that is computed."""
    if product.computed is None:
        return 0.0, 0.0
    flops, sfu = work(product.computed.fusion)
    count = max(1, elements(product.computed.value, hints))
    return flops / count + _COMPUTED, sfu / count


def widths_of(product: Product) -> tuple[float, float]:
    """Return the bytes of an element of A, and of B, as tensor cores or conversions take them."""
    if product.dtype == F32:
        return 4, 4
    if sums_dtype(product.node.output.dtype).bits == 64:
        return 8, 8
    if product.narrow is not None:
        return 1, 1
    return 2, 0.5 if product.b.packed else 1 if product.has_converted_weights else 2


def _stored(product: Product, hints: Mapping[str, int]) -> Stored:
    """Return what is stored of a product at hint sizes."""
    outputs = [o.value for o in product.epilogue.fusion.outputs]
    if not outputs:
        return Stored(0)
    element = max(v.dtype.size for v in outputs)
    begin = gcd(product.n.evaluate(hints) * min(v.dtype.size for v in outputs), LINE)
    count = sum(elements(v, hints) * v.dtype.size for v in outputs)
    return Stored(count, element, begin, product.slots.whole)


def part_of_rate(rates: Sequence[tuple[int, float]], columns: int) -> float:
    """Return the inner loop's part of the tensor cores' rate, by the columns of one wgmma.

    rates: the part by columns, rising, between which it is in proportion.
    """
    (below, low), (above, high) = next(
        pair for pair in pairwise(rates) if pair[0][0] < columns <= pair[1][0]
    )
    return low + (high - low) * (columns - below) / (above - below)


def _begin(operand: Operand, hints: Mapping[str, int]) -> int:
    """Return the bytes at whose multiples contiguous runs begin, those of a line at most."""
    pitch = 0 if operand.pitch is None else operand.pitch.evaluate(hints)
    return max(16, gcd(pitch * operand.buffer.dtype.size, LINE))
