"""The work of a GEMM, independent of its kernel."""

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
"""Rows or columns covered by a line of an operand that is not K-major."""
_TOTAL = {True: 10.0, False: 11.0}
"""Operations per result that is reduced along its row (true) or its column."""
_COMPUTED = 4.0
"""Extra operations per computed element of A: loads, and unpacking and packing of 16-bit floats (16
x 8192 x 8192 in kernel `gemv`, 48.7 us)."""


@dataclass(frozen=True)
class EpilogueWork:
    """Operations of the epilogue per element, and its operands with as many elements.

    fetched: those of them that are prefetched if rows are staged; reduces: whether results are
    reduced along rows or columns.
    """

    flops: float
    sfu: float
    reads: int
    fetched: int = 0
    reduces: bool = False

    def operations(self, target: Target) -> tuple[float, float]:
        """Return the counts of operations and special functions that take as long on the GPU."""
        penalty = target.cost.matmul.reducing_penalty if self.reduces else 1.0
        return self.flops * penalty, self.sfu * penalty


@dataclass(frozen=True)
class Stored:
    """The stores of a GEMM: bytes in all and per element, and the alignment of rows in bytes.

    whole: whether a tile's rows are staged in full width.
    """

    bytes: int
    element: int = 2
    begin: int = LINE
    whole: bool = False


@dataclass(frozen=True)
class ProductWork:
    """The work of a GEMM with any kernel: extents, compulsory traffic in bytes, and epilogue.

    begins: alignment of contiguous runs of A and of B, 16 to 128 bytes; widths: bytes per element
    of A and of B; loose: operands whose rows are not whole 16-byte chunks, so that their elements
    are copied one by one; blocks: least rows of A and columns of B per bulk copy; stored: its
    results; computing: operations per element of A if that is computed, and special functions among
    them.
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
        """Return whether tensor cores multiply f32 as TF32 (10 mantissa bits)."""
        return self.widths == (4, 4)

    @property
    def is_narrow(self) -> bool:
        """Return whether tensor cores multiply 8-bit floats."""
        return self.widths == (1, 1)


def computing_seconds(needed: ProductWork, count: float, part: float, target: Target) -> float:
    """Return how long it takes to compute `count` elements of A with a part of all issue slots."""
    flops, sfu = needed.computing
    return count / part * max(flops / (target.flops / 2), sfu / target.special)


def line_cost(
    needed: ProductWork, operand: int, costs: tuple[Mapping[int, float], ...], extent: int = 0
) -> float:
    """Return the relative cost in L2 of loading A (0) or B (1), by the alignment of its lines.

    costs: by the alignment in bytes of a tile's runs, for K-major and for MN-major operands; for
    the latter a tile begins every `extent` elements.
    """
    begin, across = needed.begins[operand], needed.blocks[operand] > 1
    if across:
        begin = gcd(begin, round(extent * needed.widths[operand]))
    return costs[across].get(max(16, begin), 1.0)


def work_of(product: Product, bytes_: int, hints: Mapping[str, int]) -> ProductWork:
    """Return the work of a GEMM and its epilogue at hint sizes; `bytes_`: its segment's traffic."""
    fusion = product.epilogue.fusion
    results = max(1, elements(product.epilogue.sums, hints))
    flops, sfu = work(fusion)
    others = [i.value for i in fusion.inputs if i.value not in product.epilogue.all_sums]
    reads = sum(2 * elements(v, hints) > results for v in others)
    if product.totals:
        each = sum(_TOTAL[t.along_row] for t in product.totals)
        flops += results * each * len(product.totals)  # several leave threads fewer registers
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
    """Return the operations and special functions per element of A if that is computed."""
    if product.computed is None:
        return 0.0, 0.0
    flops, sfu = work(product.computed.fusion)
    count = max(1, elements(product.computed.value, hints))
    return flops / count + _COMPUTED, sfu / count


def widths_of(product: Product) -> tuple[float, float]:
    """Return the bytes per element of A and of B, as tensor cores or conversions load them."""
    if product.dtype == F32:
        return 4, 4
    if sums_dtype(product.node.output.dtype).bits == 64:
        return 8, 8
    if product.narrow is not None:
        return 1, 1
    return 2, 0.5 if product.b.packed else 1 if product.has_converted_weights else 2


def _stored(product: Product, hints: Mapping[str, int]) -> Stored:
    """Return the stores of a GEMM at hint sizes."""
    outputs = [o.value for o in product.epilogue.fusion.outputs]
    if not outputs:
        return Stored(0)
    element = max(v.dtype.size for v in outputs)
    begin = gcd(product.n.evaluate(hints) * min(v.dtype.size for v in outputs), LINE)
    count = sum(elements(v, hints) * v.dtype.size for v in outputs)
    return Stored(count, element, begin, product.slots.whole)


def part_of_rate(rates: Sequence[tuple[int, float]], columns: int) -> float:
    """Return the fraction of the tensor core rate that the main loop reaches at a wgmma's width.

    rates: fractions by columns, ascending, interpolated linearly.
    """
    (below, low), (above, high) = next(
        pair for pair in pairwise(rates) if pair[0][0] < columns <= pair[1][0]
    )
    return low + (high - low) * (columns - below) / (above - below)


def _begin(operand: Operand, hints: Mapping[str, int]) -> int:
    """Return the alignment in bytes of contiguous runs, at most that of a line."""
    pitch = 0 if operand.pitch is None else operand.pitch.evaluate(hints)
    return max(16, gcd(pitch * operand.buffer.dtype.size, LINE))
