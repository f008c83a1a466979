"""An operand of a GEMM: the buffer it is read from, its strides and its scales."""

from __future__ import annotations

from fusec.dataclasses import dataclass, replace
from fusec.index.domain import Refusal
from fusec.ir.dim import Dim, dim, product
from fusec.ir.expression import (
    Index,
    Quotient,
    Remainder,
    Var,
    delinearize,
    index,
    of_var,
)
from fusec.ir.graph import Value
from fusec.schedule.matmul.operands.addresses import ResolvedAddress
from fusec.schedule.matmul.operands.block_scales import (
    BlockScales,
    Found,
    Zeros,
    scales_of,
    zeros_of,
)

BATCH = "batch"


@dataclass(frozen=True)
class Operand:
    """A factor: the buffer it is read from, and the strides of its address, in elements.

    batch: the part of the address that depends on the batch index, constants included. row: the
    stride along M for A, along N for B; depth: along K; None where that axis has one element. cut:
    whether groups may begin at any position along its contiguous axis; scales: what its values are
    multiplied by, if they are; packed: `row` or `depth`, along which two neighbours share a byte
    (strides count bytes there); flipped: whether their highest bits are inverted (`Codes`); zeros:
    zero points that are subtracted first.
    """

    buffer: Value
    batch: Index
    row: Dim | None
    depth: Dim | None
    cut: bool = False
    scales: BlockScales | None = None
    packed: str = ""
    flipped: bool = False
    zeros: Zeros | None = None

    @property
    def group(self) -> int:
        """Return the elements of K that share scales and zero points; 0 if all do."""
        return max((s.group for s in self.factors), default=0)

    @property
    def factors(self) -> tuple[BlockScales, ...]:
        """Return the scales, and the zero points' addresses."""
        zeros = () if self.zeros is None else (self.zeros.values,)
        return zeros if self.scales is None else (self.scales, *zeros)

    @property
    def k_major(self) -> bool:
        """Return whether the operand is K-major; if unknown, whether to assume so."""
        return self.depth is None or self.depth == 1 or self.row not in (None, 1)

    @property
    def is_dense(self) -> bool:
        """Return whether the operand is contiguous along K or along its rows."""
        return (self.depth if self.k_major else self.row) in (None, 1)

    @property
    def pitch(self) -> Dim | None:
        """Return the stride between contiguous runs; None if there is only one."""
        return self.row if self.k_major else self.depth


def weighed(operand: Operand, found: Found, own: tuple[Var, ...], depth: Var) -> Operand | Refusal:
    """Return an operand with its scales and zero points, or why these cannot be read."""
    scales, zeros = scales_of(found.scales, own, depth), zeros_of(found.zeros, own, depth)
    if isinstance(scales, Refusal):
        return scales
    if isinstance(zeros, Refusal):
        return zeros
    packed = "" if found.packed is None else "depth" if found.packed == depth else "row"
    made = replace(operand, scales=scales, zeros=zeros, packed=packed, flipped=found.flipped)
    if len({s.group for s in made.factors if s.group}) > 1:
        because = (
            f"the scales and zero points of `{operand.buffer.name}` have different groups along K"
        )
        return Refusal("operand", because)
    return made


def operand_of(
    resolve_address: ResolvedAddress, batch: tuple[Var, ...], own: tuple[Var, ...], depth: Var
) -> Operand | Refusal:
    """Return an operand if its address is linear in its own axes and in K."""
    buffer, address = resolve_address
    zero = {axis: index(0) for axis in (*own, depth)}
    strides = [address.coefficient(a) for a in (*own, depth) if a.extent != 1]
    if None in strides:
        return Refusal("operand", f"`{buffer.name}` has no single stride along an axis")
    number = of_var(Var(BATCH, product(a.extent for a in batch)))
    at = delinearize(number, [a.extent for a in batch])
    base = _merged(address.substitute(zero).substitute(dict(zip(batch, at, strict=True))))
    rows = [address.coefficient(a) for a in own if a.extent != 1]
    return Operand(
        buffer,
        base,
        rows[-1] if rows else None,
        address.coefficient(depth) if depth.extent != 1 else None,
    )


def _merged(value: Index) -> Index:
    """Return an index with x % (a * b) / a as x / a % b, which may merge x / (a * b) into x / a."""
    total = index(value.constant)
    for atom, coefficient in value.terms:
        new = Index(((atom, dim(1)),), dim(0))
        if isinstance(atom, Quotient) and len(atom.inner.terms) == 1 and atom.inner.constant == 0:
            ((inner, scale),) = atom.inner.terms
            if isinstance(inner, Remainder) and scale == 1:
                exact = inner.divisor.divide(atom.divisor)
                new = new if exact is None else inner.inner // atom.divisor % exact
        total = total + new * coefficient
    return total
