"""Symbols and strides of a rank's fusion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd, lcm, prod

from fusec.dataclasses import replace
from fusec.diagnostics import FusecError
from fusec.ir.dim import Dim, Shape, Symbol, ceildiv, dim, product, symbol
from fusec.ir.divided import check_shardings
from fusec.ir.expression import contiguous_strides
from fusec.ir.graph import DimFact, Fusion, Input, Value
from fusec.ir.sharding import STREAM, Part, Parts, Sharding
from fusec.ir.substitute import substitute_dims
from fusec.shard.slices import is_strided


def with_shares(fusion: Fusion) -> Fusion:
    """Return the fusion with `p * S` for each symbol S of extents that p ranks divide.

    So S is a rank's own size, also in known facts about it. Extents that streams divide are
    declared multiples if their defaults are; else the last slice overlaps the one before.
    FusecError if ranks do not divide a default, or an extent.
    """
    check_shardings(fusion)
    factors = dict[str, int]()
    for name, sharding in fusion.shardings.items():
        value = fusion.find(name)
        assert value is not None
        for k, parts in enumerate(sharding.dims):
            equal = _equal_parts(sharding, parts)
            _divide(fusion, value, k, equal, factors, sharding)
    values = {name: symbol(name) * factor for name, factor in factors.items()}
    found = substitute_dims(fusion, values)
    facts = tuple(_shared(fact, factors.get(fact.name, 1)) for fact in fusion.dims)
    shardings = {
        name: replace(s, dims=tuple(_substituted(parts, values) for parts in s.dims))
        for name, s in fusion.shardings.items()
    }
    return _with_slices(replace(found, dims=facts, shardings=shardings), fusion)


def _equal_parts(sharding: Sharding, parts: Parts) -> Parts:
    """Return the factors of a dim up to the last one that divides it evenly.

    These are mesh axes, and the slices of a loop over several dims or within blocks.
    """
    slices = is_strided(sharding)
    kinds = (None,) if slices else (None, STREAM)
    along = [k for k, part in enumerate(parts) if part.axis not in kinds]
    return parts[: along[-1] + 1] if along else ()


def _divide(
    fusion: Fusion, value: Value, at: int, parts: Parts, factors: dict[str, int], said: Sharding
) -> None:
    """Make symbols of an extent multiples, so that it is divided into equal parts."""
    extent, where = value.shape[at], f"dim {at} of `{value.name}`"
    declared = [fact.name for fact in fusion.dims]
    count = prod(part.parts.value for part in parts if part.parts.is_const)
    for monomial, coefficient in _with(extent, factors).terms:
        need = count // gcd(count, coefficient)
        if need == 1:
            continue
        names = {a.name for a in monomial if isinstance(a, Symbol)}
        ordered = [n for n in declared if n in names]
        fits = (n for n in ordered if fusion.hints[n] % (need * factors.get(n, 1)) == 0)
        chosen = next(fits, None)
        if chosen is None:
            size = "" if extent.is_const else f", {extent.evaluate(fusion.hints)} by default,"
            raise FusecError(
                f"{where}: an extent of {extent}{size} is not divisible into {count} equal parts",
                span=next((p.span for p in reversed(parts) if p.span is not None), said.span),
                help=_other_axes(fusion, value, at, parts, count),
            )
        factors[chosen] = factors.get(chosen, 1) * need
    whole = product(part.parts for part in parts)
    if _with(extent, factors).divide(_with(whole, factors)) is None:
        raise FusecError(
            f"{where}: {extent} is not known to be a multiple of {whole}", span=said.span
        )


def _other_axes(fusion: Fusion, value: Value, at: int, parts: Parts, count: int) -> str:
    """Return what to change if ranks do not divide a dim: the size, the dim or the mesh."""
    size, axes = value.shape[at].evaluate(fusion.hints), [p.axis for p in parts if p.axis]
    ways = [f"give the dim a default that is a multiple of {count}"]
    others = (e for k, e in enumerate(value.shape) if k != at)
    if any(e.evaluate(fusion.hints) % count == 0 for e in others):
        ways.append("shard another dim")
    if len(axes) == 1 and len(parts) == 1 and axes[0] != STREAM:
        ways.append(f"give the mesh axis `{axes[0]}` a size that divides {size}")
    return ", or ".join(filter(None, [", ".join(ways[:-1]), ways[-1]]))


def _with(extent: Dim, factors: Mapping[str, int]) -> Dim:
    return extent.substitute({n: symbol(n) * f for n, f in factors.items()})


def _shared(fact: DimFact, ranks: int) -> DimFact:
    return replace(
        fact,
        default=fact.default // ranks,
        multiple_of=fact.multiple_of // gcd(fact.multiple_of, ranks),
        buckets=tuple(-(-bucket // ranks) for bucket in fact.buckets),
    )


def _substituted(parts: Parts, values: Mapping[str, Dim]) -> Parts:
    return tuple(replace(part, parts=part.parts.substitute(values)) for part in parts)


# Streams.


def _with_slices(fusion: Fusion, given: Fusion) -> Fusion:
    """Return the fusion with the multiples that streams require, and slices for other extents.

    given: the fusion whose symbols errors use to state extents.
    """
    facts = {fact.name: fact for fact in fusion.dims}
    shardings = dict(fusion.shardings)
    for name, said in fusion.shardings.items():
        at = said.along(STREAM)
        value = fusion.find(name)
        if at is None or value is None or is_strided(said):
            continue
        extent, divided = value.shape[at], dim(1)
        for part in said.dims[at]:
            exact, divided = extent.divide(part.parts), divided * part.parts
            if exact is None:
                if _declared(facts, extent, part.parts):
                    break
                if len(said.dims[at]) > 1:
                    raise _undivided(given, name, at, divided)
                shardings[name] = _uneven(said, at, extent)
                break
            extent = exact
    return replace(fusion, dims=tuple(facts.values()), shardings=shardings)


def _uneven(said: Sharding, at: int, extent: Dim) -> Sharding:
    """Return a sharding with the required number of slices of ceildiv(extent, parts) elements."""
    (part,) = said.dims[at]
    count = ceildiv(extent, ceildiv(extent, part.parts)) if extent.is_const else part.parts
    return replace(
        said, dims=(*said.dims[:at], (Part(STREAM, count, extent),), *said.dims[at + 1 :])
    )


def _declared(facts: dict[str, DimFact], extent: Dim, parts: Dim) -> bool:
    """Declare a symbol a multiple, so that `parts` divides an extent; False if impossible."""
    monomial, coefficient = extent.terms[0] if len(extent.terms) == 1 else ((), 1)
    need = parts.value // gcd(parts.value, coefficient) if parts.is_const else 0
    names = [a.name for a in monomial if isinstance(a, Symbol)]
    for name in (n for n in facts if n in names):
        if need and facts[name].default % need == 0:
            multiple = lcm(facts[name].multiple_of, need)
            facts[name] = replace(facts[name], multiple_of=multiple)
            return True
    return False


def _other_parts(parts: object) -> str:
    return f"give the dim a default that is a multiple of {parts}, or shard another dim"


def _undivided(fusion: Fusion, name: str, at: int, parts: Dim) -> FusecError:
    """Return the error for a dim whose slices, on all ranks together, are uneven."""
    value = fusion.find(name)
    assert value is not None
    extent = value.shape[at]
    size = "" if extent.is_const else f", {extent.evaluate(fusion.hints)} by default,"
    return FusecError(
        f"dim {at} of `{name}`: an extent of {extent}{size} is not divisible into {parts} equal "
        "slices",
        span=fusion.shardings[name].span,
        help=_other_parts(parts),
    )


# Strides.


def local_strides(
    entry: Input, shape: Shape, sharding: Sharding, sizes: Mapping[str, int]
) -> Shape:
    """Return the strides of a rank's part of an input: dense where those of the whole are.

    shape: of the part. sharding: of the input over ranks.
    """
    whole = entry.value.shape
    if whole == shape:
        return entry.strides
    sized = list(zip(entry.strides, whole, range(len(whole)), strict=True))
    sized.sort(key=lambda s: (s[0].evaluate(sizes), s[1].evaluate(sizes), -s[2]))
    reach = 1
    for stride, extent, _ in sized:
        step, count = stride.evaluate(sizes), extent.evaluate(sizes)
        if step and count != 1 and step < reach:
            # Overlapping elements: parts of several blocks become dense, others keep their strides.
            blocks = any(part.axis is None for parts in sharding.dims for part in parts)
            return contiguous_strides(shape) if blocks else entry.strides
        reach += step * (count - 1)
    found: dict[int, Dim] = {}
    for stride, _, axis in sized:
        inner = next(_followed(entry, stride, found), None)
        found[axis] = stride if inner is None else found[inner] * shape[inner]
    return tuple(found[axis] for axis in range(len(whole)))


def _followed(entry: Input, stride: Dim, found: Mapping[int, Dim]) -> Iterator[int]:
    """Yield the dims after which the dim with this stride is the next slower."""
    for axis in reversed(tuple(found)):
        if entry.strides[axis] != 0 and entry.strides[axis] * entry.value.shape[axis] == stride:
            yield axis
