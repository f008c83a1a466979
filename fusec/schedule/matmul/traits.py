"""The traits of a GEMM that determine which parameters are worth comparing."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.dataclasses import dataclass
from fusec.ir.dtype import DType
from fusec.schedule.matmul.choice import Sizes, divides, sizes_of
from fusec.schedule.matmul.problem import Product
from fusec.schedule.matmul.shared import Kinds, kinds_of
from fusec.schedule.matmul.staged import StagedSlots

NO_SLOTS = StagedSlots()
WIDEST = 8
"""Most neighbouring columns per thread."""


@dataclass(frozen=True)
class Traits:
    """A GEMM without its names, its addresses and the operations around it.

    GEMMs with equal traits have the same parameters to compare: those of a model differ in their
    prologues and epilogues more often than in these. columns: the largest power of two, up to
    `WIDEST`, that divides N for all sizes, 0 if N is 0; kinds: the layout of operands in stages;
    slots: the tensors staged in addition, for kernels that support it.
    """

    sizes: Sizes
    dtype: DType | None
    kinds: Kinds
    staged_width: int
    columns: int
    cuts: str
    is_narrow: bool
    is_plain: bool
    is_dual: bool
    is_computed: bool
    has_totals: bool
    has_converted_weights: bool
    slots: StagedSlots = NO_SLOTS

    @property
    def is_b_k_major(self) -> bool:
        """Return whether B is K-major."""
        return self.kinds[1][0]


def traits_of(product: Product, hints: Mapping[str, int]) -> Traits:
    """Return the traits of a GEMM at hint sizes, without slots."""
    n = product.n
    is_empty = n.is_const and n.value == 0
    columns = 0 if is_empty else next(w for w in (WIDEST, 4, 2, 1) if divides(n, w))
    return Traits(
        sizes=sizes_of(product, hints),
        dtype=product.dtype,
        kinds=kinds_of(product),
        staged_width=product.staged_width,
        columns=columns,
        cuts=product.cuts,
        is_narrow=product.narrow is not None,
        is_plain=product.is_plain,
        is_dual=product.dual is not None,
        is_computed=product.computed is not None,
        has_totals=bool(product.totals),
        has_converted_weights=product.has_converted_weights,
    )
