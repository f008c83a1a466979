"""What of symbols and strides a rank has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import gcd, lcm, prod

from fusec.diagnostics import FusecError
from fusec.ir.dim import Dim, Shape, Symbol, symbol
from fusec.ir.graph import DimFact, Fusion, Input
from fusec.ir.sharding import STREAM, Mesh, Parts, Sharding
from fusec.ir.substitute import substitute_dims


def with_shares(fusion: Fusion) -> Fusion:
    """Return the fusion with `p * S` for each symbol S of extents that p ranks divide.

    So S is what a rank has, also in what is known of it; what streams divide is declared a
    multiple. FusecError where a default, or an extent, is not divided.
    """
    factors = dict[str, int]()
    for name, sharding in fusion.shardings.items():
        value = fusion.find(name)
        if value is None:
            raise FusecError(f"`{name}` is divided, and no operation makes it", span=sharding.span)
        if len(sharding.dims) != value.rank:
            raise FusecError(
                f"`{name}` has {value.rank} dims, its sharding {len(sharding.dims)}",
                span=sharding.span,
            )
        for k, parts in enumerate(sharding.dims):
            _check_axes(fusion.mesh, name, parts, sharding)
            count = _least_multiple(parts)
            where = f"dim {k} of `{name}`"
            _divide(fusion, value.shape[k], count, factors, sharding, where)
    values = {name: symbol(name) * factor for name, factor in factors.items()}
    found = substitute_dims(fusion, values)
    facts = tuple(_shared(fact, factors.get(fact.name, 1)) for fact in fusion.dims)
    shardings = {
        name: replace(s, dims=tuple(_substituted(parts, values) for parts in s.dims))
        for name, s in fusion.shardings.items()
    }
    found = replace(found, dims=facts, shardings=shardings)
    return replace(found, dims=_multiples(found))


def _least_multiple(parts: Parts) -> int:
    """Return what an extent is a multiple of, if ranks divide it: all factors to the last axis."""
    along = [k for k, part in enumerate(parts) if part.axis not in (None, STREAM)]
    return prod(part.parts.value for part in parts[: along[-1] + 1]) if along else 1


def _check_axes(mesh: Mesh | None, name: str, parts: Parts, sharding: Sharding) -> None:
    known = {} if mesh is None else dict(mesh.axes)
    for part in parts:
        if part.axis in (None, STREAM):
            continue
        if part.axis not in known:
            raise FusecError(f"`{name}`: the mesh has no axis `{part.axis}`", span=sharding.span)
        if part.parts != known[part.axis]:
            raise FusecError(
                f"`{name}`: {part.parts} parts along `{part.axis}`, which has {known[part.axis]} "
                "ranks",
                span=sharding.span,
            )


def _divide(
    fusion: Fusion, extent: Dim, count: int, factors: dict[str, int], said: Sharding, where: str
) -> None:
    """Let symbols of an extent be multiples, so that `count` ranks divide it."""
    declared = [fact.name for fact in fusion.dims]
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
                f"{where}: an extent of {extent}{size} is not divided into {count} equal parts",
                span=said.span,
            )
        factors[chosen] = factors.get(chosen, 1) * need
    if count > 1 and _with(extent, factors).divide(count) is None:
        raise FusecError(f"{where}: {extent} is not known to be a multiple of {count}",
                         span=said.span)  # fmt: skip


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


def _multiples(fusion: Fusion) -> tuple[DimFact, ...]:
    """Return what is known of symbols, with the multiples that streams ask for."""
    facts = {fact.name: fact for fact in fusion.dims}
    for name, said in fusion.shardings.items():
        at = said.along(STREAM)
        value = fusion.find(name)
        if at is None or value is None:
            continue
        extent = value.shape[at]
        for part in said.dims[at]:
            exact = extent.divide(part.parts)
            if exact is None:
                where = f"dim {at} of `{name}`"
                _declare(facts, extent, part.parts, said, where)
                break
            extent = exact
    return tuple(facts.values())


def _declare(
    facts: dict[str, DimFact], extent: Dim, parts: Dim, said: Sharding, where: str
) -> None:
    """Declare a symbol a multiple, so that an extent is one of `parts`."""
    monomial, coefficient = extent.terms[0] if len(extent.terms) == 1 else ((), 1)
    need = parts.value // gcd(parts.value, coefficient) if parts.is_const else 0
    names = [a.name for a in monomial if isinstance(a, Symbol)]
    for name in (n for n in facts if n in names):
        if need and facts[name].default % need == 0:
            multiple = lcm(facts[name].multiple_of, need)
            facts[name] = replace(facts[name], multiple_of=multiple)
            return
    sizes = {n: f.default for n, f in facts.items()}
    size = "" if extent.is_const else f", {extent.evaluate(sizes)} by default,"
    raise FusecError(
        f"{where}: an extent of {extent}{size} is not divided into {parts} equal slices",
        span=said.span,
    )


# Strides.


def local_strides(entry: Input, shape: Shape, sizes: Mapping[str, int]) -> Shape:
    """Return the strides of what a rank holds of an input: dense where those of the whole are."""
    whole = entry.value.shape
    if whole == shape:
        return entry.strides
    sized = list(zip(entry.strides, whole, range(len(whole)), strict=True))
    sized.sort(key=lambda s: (s[0].evaluate(sizes), s[1].evaluate(sizes), -s[2]))
    found: dict[int, Dim] = {}
    for stride, _, axis in sized:
        inner = next(_followed(entry, stride, found), None)
        found[axis] = stride if inner is None else found[inner] * shape[inner]
    return tuple(found[axis] for axis in range(len(whole)))


def _followed(entry: Input, stride: Dim, found: Mapping[int, Dim]) -> Iterator[int]:
    """Yield the dims of which the one with this stride is the next slower."""
    for axis in reversed(tuple(found)):
        if entry.strides[axis] != 0 and entry.strides[axis] * entry.value.shape[axis] == stride:
            yield axis
