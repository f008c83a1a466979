"""Chooses the kernel of a matrix product and its tile, cluster and splits, by a price of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace

from fusec.diagnostics import FusecError, Unsupported
from fusec.index.access import Facts
from fusec.ir.dim import Dim
from fusec.ir.expression import Atom, Loaded, Var
from fusec.schedule.matmul_problem import Operand, Product
from fusec.schedule.matmul_shared import shared_layout
from fusec.target import Target

CHUNK_BYTES = 16
"""What the bulk copies and cp.async move at once; rows must begin at multiples of it."""

TURN_SECONDS = 2.4e-6
"""One hand-off between the turns of a tile: a bulk reduction completed, its flag seen (H200)."""

# By kernel and columns of a tile: the part of the tensor cores' rate that its inner loop reaches,
# and seconds a tile (its first loads and its epilogue; for split_k also the sum over the cluster).
# Fitted to times on an H200, K from 512 to 524288.
_MEASURED = {
    ("wgmma", 256): (1.06, 1.4e-6),
    ("wgmma", 128): (0.90, 0.8e-6),
    ("wgmma", 64): (0.55, 0.5e-6),
    ("split_k", 128): (0.87, 5e-6),
    ("split_k", 64): (0.50, 5e-6),
}
# mma.sync reaches less of the rate where wgmma exists.
_MMA_RATE, _MMA_RATE_HOPPER = 0.55, 0.25
# The part of the SMs that clusters of this size fill at once (H200, one CTA per SM).
_RESIDENT = {1: 1.0, 2: 0.97, 4: 0.9, 8: 0.75}
# Of the multiply-add rate, for 4 x 4 outputs per thread.
_SIMT_RATE = 0.35

MOST_COORDINATE = 2**31 - 1 - 256
"""Coordinates in a tensor map are ints, also those of what a last tile has too much."""
WIDTHS = {"wgmma": (8, 2, 1), "split_k": (2, 1), "mma": (8, 2, 1), "simt": (4, 2, 1)}
"""Neighbouring columns that a thread has: 2 as the tensor cores leave them, 8 after an exchange."""


@dataclass(frozen=True)
class MatmulParameters:
    """The choices of a matrix product.

    kernel: `wgmma` (Hopper, one CTA per SM over all tiles), `split_k` (Hopper, K split), `mma`
    (mma.sync) or `simt`; tile_m, tile_n, tile_k: one step of a CTA; stages: steps in flight;
    cluster: CTAs that sum along K in shared memory; splits: clusters of a tile that take turns;
    vector_width: columns per access of the epilogue; wide_index: 64-bit addresses.
    """

    kernel: str
    tile_m: int
    tile_n: int
    tile_k: int
    stages: int
    cluster: int = 1
    splits: int = 1
    vector_width: int = 1
    wide_index: bool = False

    @property
    def threads(self) -> int:
        """Return the threads of a CTA."""
        return 384 if self.kernel in ("wgmma", "split_k") else 256


@dataclass(frozen=True)
class Sizes:
    """The extents of a product at hint sizes."""

    batches: int
    m: int
    n: int
    k: int

    @property
    def products(self) -> float:
        """Return the multiply-adds."""
        return float(self.batches) * self.m * self.n * self.k

    def tiles(self, parameters: MatmulParameters) -> int:
        """Return the output tiles."""
        rows, columns = -(-self.m // parameters.tile_m), -(-self.n // parameters.tile_n)
        return self.batches * rows * columns


def sizes_of(problem: Product, hints: Mapping[str, int]) -> Sizes:
    """Return the extents at hint sizes."""
    dims = (problem.batches, problem.m, problem.n, problem.k)
    sizes = Sizes(*(d.evaluate(hints) for d in dims))
    if problem.groups is None:
        return sizes
    count = max(1, problem.groups.count.evaluate(hints))
    if problem.cuts == "depth":
        return replace(sizes, k=-(-sizes.k // count))
    return replace(sizes, m=sizes.m + count * 64 if sizes.m else 0)  # half a tile more per group


def is_vector(operand: Operand, facts: Facts) -> bool:
    """Return whether every contiguous run begins at a multiple of 16 bytes."""
    if operand.cut or not operand.is_dense:
        return False
    by = CHUNK_BYTES // operand.buffer.dtype.size
    return (operand.pitch is None or facts.multiple(operand.pitch, by)) and facts.index_multiple(
        operand.batch, by
    )


def is_chunked(problem: Product, operand: Operand, facts: Facts) -> bool:
    """Return whether contiguous runs are whole chunks, as cp.async copies them.

    It may be told to read less than a chunk, but checkers of memory count it whole all the same.
    """
    by = CHUNK_BYTES // operand.buffer.dtype.size
    return is_vector(operand, facts) and facts.multiple(problem.run(operand), by)


def has_tensor_map(operand: Operand, facts: Facts) -> bool:
    """Return whether a three-dimensional tensor map describes the operand."""
    if not is_vector(operand, facts) or operand.batch.constant != 0:
        return False
    strides = [d for d in (operand.pitch, *(c for _, c in operand.batch.terms)) if d is not None]
    if len(operand.batch.terms) > 1 or any(d == 0 for d in strides):
        return False
    return all(_is_coordinate(atom) for atom, _ in operand.batch.terms)


def _is_coordinate(atom: Atom) -> bool:
    """Return whether an atom is the batch index after divisions and remainders alone."""
    if isinstance(atom, (Var, Loaded)):
        return isinstance(atom, Var)
    inner = atom.inner
    return (
        inner.constant == 0
        and len(inner.terms) == 1
        and inner.terms[0][1] == 1
        and _is_coordinate(inner.terms[0][0])
    )


def kernels(problem: Product, target: Target, sizes: Sizes, facts: Facts) -> dict[str, str]:
    """Return each kernel with the reason why it cannot run the product, empty where it can."""
    found = " and ".join(dict.fromkeys(str(o.buffer.dtype) for o in (problem.a, problem.b)))
    halves = f"{found} operands have no tensor-core kernel" if problem.dtype is None else ""
    hopper = halves or ("" if target.has_wgmma else f"{target.arch} has no wgmma")
    if not hopper and problem.is_converted:
        hopper = f"copies in bulk do not convert {found} operands"
    if not hopper and not all(has_tensor_map(o, facts) for o in (problem.a, problem.b)):
        hopper = "an operand's rows do not begin at multiples of 16 bytes"
    if max(sizes.m, sizes.n, sizes.k) > MOST_COORDINATE:
        hopper = hopper or "coordinates of copies in bulk have 32 bits"
    empty = min(sizes.batches, sizes.m, sizes.n, sizes.k) == 0
    if empty:
        hopper = halves = "nothing is multiplied"
    if problem.cuts == "depth":
        hopper = hopper or "copies in bulk do not end where a group of summed elements does"
    split = hopper or ("groups are not split" if problem.cuts else "")
    return {"wgmma": hopper, "split_k": split, "mma": halves, "simt": ""}


def candidates(sizes: Sizes, allowed: Iterable[str]) -> Iterable[MatmulParameters]:
    """Yield the parameters to price, those of each allowed kernel."""
    names = set(allowed)
    if "wgmma" in names:
        yield MatmulParameters("wgmma", 128, 256, 64, 4)
        yield MatmulParameters("wgmma", 128, 128, 64, 6)
        yield MatmulParameters("wgmma", 128, 64, 64, 8)
    if "split_k" in names:
        steps = -(-sizes.k // 64)
        for cluster in (1, 2, 4, 8):
            for splits in range(1, 33):
                if splits * cluster > 1 and steps >= 8 * splits * cluster:
                    yield MatmulParameters("split_k", 128, 128, 64, 4, cluster, splits)
    if "mma" in names:
        yield MatmulParameters("mma", 128, 128, 32, 3)
    if "simt" in names:
        yield MatmulParameters("simt", 64, 64, 16, 1)


def seconds(p: MatmulParameters, sizes: Sizes, bytes_: int, target: Target) -> float:
    """Return the predicted time without the launch: waves of tiles, or memory, then the turns."""
    tiles = sizes.tiles(p)
    ctas = tiles * p.cluster * p.splits
    resident = max(1, int(target.sms * _RESIDENT.get(p.cluster, 0.5)) // p.cluster * p.cluster)
    work = 2.0 * p.tile_m * p.tile_n * max(1, sizes.k) / (p.cluster * p.splits)
    part, fixed = _MEASURED.get((p.kernel, p.tile_n), (0.8, 1e-6))
    rate = target.half_flops * part
    if p.kernel == "simt":
        rate, resident = target.flops * _SIMT_RATE / 4, target.sms * 4
    elif p.kernel == "mma":
        rate = target.half_flops * (_MMA_RATE_HOPPER if target.capability >= 90 else _MMA_RATE)
    per_cta = work / (rate / target.sms) + fixed
    waves = -(-ctas // resident)
    # About half of the SMs saturate the memory.
    filled = min(1.0, 2 * max(1, min(ctas, resident)) / target.sms)
    moved = bytes_ / (target.bandwidth * filled)
    return max(waves * per_cta, moved + fixed) + (p.splits - 1) * TURN_SECONDS


def choose(
    problem: Product,
    target: Target,
    hints: Mapping[str, int],
    bytes_: int,
    overrides: Mapping[str, object] | None = None,
) -> MatmulParameters:
    """Return the cheapest parameters; `overrides` replace fields of all that are compared."""
    sizes = sizes_of(problem, hints)
    reasons = kernels(problem, target, sizes, Facts(hints))
    wanted = dict(overrides or {})
    kernel = wanted.get("kernel")
    if kernel is not None:
        if kernel not in reasons:
            raise FusecError(f"no matmul kernel `{kernel}`", help=f"one of {', '.join(reasons)}")
        if reasons[str(kernel)]:
            raise Unsupported(f"matmul kernel `{kernel}`: {reasons[str(kernel)]}")
    allowed = [k for k, reason in reasons.items() if not reason and kernel in (None, k)]
    if kernel is None and len(allowed) > 1:
        allowed.remove("simt")
    if kernel is None and "wgmma" in allowed:
        allowed.remove("mma")
    found = [
        _overridden(replace(p, vector_width=_width(problem, p.kernel)), wanted)
        for p in candidates(sizes, allowed)
    ]
    if not found and kernel == "split_k":
        width = _width(problem, "split_k")
        found = [_overridden(MatmulParameters("split_k", 128, 128, 64, 4, 2, 1, width), wanted)]
    *_, best = min(
        (
            (seconds(p, sizes, bytes_, target), i, p)
            for i, p in enumerate(_possible(found, problem, target))
        ),
        key=lambda t: t[:2],
    )
    return best


def relied_on(
    problem: Product, parameters: MatmulParameters, target: Target, hints: Mapping[str, int]
) -> Facts:
    """Return the divisibility that a kernel's copies rely on."""
    facts = Facts(hints)
    if parameters.kernel in ("wgmma", "split_k"):
        kernels(problem, target, sizes_of(problem, hints), facts)
    elif parameters.kernel == "mma":
        for operand in (problem.a, problem.b):
            is_chunked(problem, operand, facts)
    return facts


def _width(problem: Product, kernel: str) -> int:
    """Return the widest access of the epilogue whose columns divide N."""
    columns = problem.n
    if columns.is_const and columns.value == 0:
        return 1
    return next(w for w in WIDTHS[kernel] if _divides(columns, w))


def _divides(value: Dim, by: int) -> bool:
    return all(c % by == 0 for _, c in value.terms)


def _overridden(p: MatmulParameters, wanted: Mapping[str, object]) -> MatmulParameters:
    known = {f.name for f in fields(MatmulParameters)}
    for name in wanted:
        if name not in known:
            raise FusecError(
                f"matmul has no parameter `{name}`", help=f"one of {', '.join(sorted(known))}"
            )
    return replace(p, **wanted)  # pyright: ignore[reportArgumentType]


def _possible(
    found: Iterable[MatmulParameters], problem: Product, target: Target
) -> list[MatmulParameters]:
    """Return those that a kernel has; where there is none, raise what is wrong with the first."""
    possible: list[MatmulParameters] = []
    first: Unsupported | None = None
    for p in found:
        try:
            _check(p, problem, target)
        except Unsupported as error:
            first = first or error
        else:
            possible.append(p)
    if not possible and first is not None:
        raise first
    return possible


def _check(p: MatmulParameters, problem: Product, target: Target) -> None:
    """Raise Unsupported for parameters that no kernel has."""
    tiles = {
        "wgmma": ({128}, {64, 128, 256}, {64}),
        "split_k": ({128}, {64, 128, 256}, {64}),
        "mma": ({128}, {128}, {32}),
        "simt": ({64}, {64}, {16}),
    }[p.kernel]
    for name, value, allowed in zip(
        ("tile_m", "tile_n", "tile_k"), (p.tile_m, p.tile_n, p.tile_k), tiles, strict=True
    ):
        if value not in allowed:
            options = ", ".join(str(v) for v in sorted(allowed))
            raise Unsupported(f"matmul kernel `{p.kernel}` with {name} {value} (it has {options})")
    if p.kernel == "split_k":
        if p.cluster not in (1, 2, 4, 8) or p.splits < 1:
            raise Unsupported(f"a product split over {p.splits} clusters of {p.cluster} CTAs")
    elif (p.cluster, p.splits) != (1, 1):
        raise Unsupported(f"matmul kernel `{p.kernel}` does not split K")
    if p.vector_width not in WIDTHS[p.kernel]:
        raise Unsupported(f"matmul kernel `{p.kernel}` with vector_width {p.vector_width}")
    if not _divides(problem.n, p.vector_width):
        raise Unsupported(f"vector_width {p.vector_width} where it does not divide {problem.n}")
    if p.stages < (1 if p.kernel == "simt" else 2):
        raise Unsupported(f"matmul kernel `{p.kernel}` with {p.stages} stages")
    if shared_bytes(p, problem) > target.shared:
        raise Unsupported(
            f"matmul kernel `{p.kernel}` needs {shared_bytes(p, problem)} bytes of shared memory; "
            f"{target.arch} has {target.shared}"
        )


def shared_bytes(p: MatmulParameters, problem: Product) -> int:
    """Return the dynamic shared memory of a CTA."""
    return shared_layout(p, problem).bytes
