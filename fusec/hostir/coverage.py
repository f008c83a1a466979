"""The sizes a build supports, as text: `dynamic: B; specialized: H = 8192 (B up to 131072)`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log2

from fusec.diagnostics import FusecError
from fusec.hostir.program import HostProgram
from fusec.ir.dim import Call, Dim, dim, symbol
from fusec.ir.graph import DimFact
from fusec.schedule.plan import Guard

LARGEST = 2**62
"""A size larger than any memory."""

NAMES = 8
"""Maximum number of sizes to list individually."""


def coverage(guards: Iterable[Guard], dims: Sequence[DimFact]) -> str:
    """Return the sizes of named dims that satisfy the guards; empty where there are no dims."""
    named = [d for d in dims if "." not in d.name]
    every = tuple(guards)
    fixed = {d.name: size for d in named if (size := fixed_size(d.name, every)) is not None}
    free = [d for d in named if d.name not in fixed]
    parts = [f"dynamic: {_listed([d.name for d in free])}"] if free else []
    sizes = _listed([f"{name} = {size}" for name, size in fixed.items()])
    parts += [f"specialized: {sizes}"] if fixed else []
    if not parts:
        return ""
    text = "; ".join(parts)
    limits = [f"{d.name} a multiple of {d.multiple_of}" for d in free if d.multiple_of > 1]
    limits += _limits(every, fixed, {d.name: d.default for d in dims})
    return f"{text} ({', '.join(limits)})" if limits else text


def fitting(
    builds: Sequence[tuple[HostProgram, Sequence[DimFact]]], sizes: Mapping[str, int]
) -> int:
    """Return the index of the build to run at some sizes: the one planned for the nearest.

    builds: each with its dims, and the sizes that it was planned for. FusecError lists the
    supported sizes.
    """
    if len(builds) == 1:
        builds[0][0].check_guards(sizes)
        return 0
    able = [k for k, (program, _) in enumerate(builds) if program.covers(sizes)]
    if not able:
        dims = builds[0][1]
        given = _listed([f"{d.name} = {sizes[d.name]}" for d in dims if "." not in d.name])
        raise FusecError(
            f"not compiled for {given}",
            notes=[f"compiled: {coverage(p.guards, dims)}" for p, dims in builds],
            help="also compile the fusion for these sizes: `--set DIM=SIZE,SIZE,...`",
        )
    return min(able, key=lambda k: sum(_distance(sizes[d.name], d.default) for d in builds[k][1]))


def _distance(size: int, other: int) -> float:
    """Return the distance between two sizes, in powers of two."""
    return abs(log2(max(size, 1)) - log2(max(other, 1)))


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - NAMES} more" if len(texts) > NAMES else ""
    return ", ".join(texts[:NAMES]) + more


def fixed_size(name: str, guards: Iterable[Guard]) -> int | None:
    """Return the only size that a guard permits for a dim, if any."""
    known = (g.bound for g in guards if g.relation == "==" and g.value == symbol(name))
    return next(known, None)


def _limits(
    guards: Iterable[Guard], fixed: Mapping[str, int], hints: Mapping[str, int]
) -> list[str]:
    """Return the other conditions: the range of a single dim, or the relation of several."""
    least: dict[str, int] = {}
    most: dict[str, int] = {}
    others: dict[str, None] = {}
    for guard in guards:
        value = guard.value.substitute({name: dim(size) for name, size in fixed.items()})
        rest = Guard(value, guard.relation, guard.bound)
        names = sorted(value.symbols)
        if not names:
            continue
        if len(names) > 1 or guard.relation != "<=" or _has_remainder(value):
            if rest.relation == "==" and str(value).startswith("-"):
                rest = Guard(value * -1, "==", -rest.bound)  # equivalent, and often present already
            others[str(rest)] = None
            continue
        (name,) = names
        low, high = _range(rest, name, hints[name])
        least[name] = max(low, least.get(name, 0))
        most[name] = min(high, most.get(name, LARGEST))
    ranges = {name: _between(least[name], most[name]) for name in least}
    return [f"{name} {text}" for name, text in ranges.items() if text] + list(others)


def _has_remainder(value: Dim) -> bool:
    return any(isinstance(atom, Call) and atom.function == "mod" for atom in value.atoms())


def _between(low: int, high: int) -> str:
    parts = [f"from {low}"] if low else []
    return " ".join([*parts, f"up to {high}"] if high < LARGEST else parts)


def _range(guard: Guard, name: str, known: int) -> tuple[int, int]:
    """Return the smallest and the largest size that satisfy a guard, which holds for `known`."""
    return _last(guard, name, known, 0), _last(guard, name, known, LARGEST)


def _last(guard: Guard, name: str, holds: int, end: int) -> int:
    if guard.holds({name: end}):
        return end
    while abs(end - holds) > 1:
        middle = (holds + end) // 2
        holds, end = (middle, end) if guard.holds({name: middle}) else (holds, middle)
    return holds
