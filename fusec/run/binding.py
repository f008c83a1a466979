"""Binds every symbol of a fusion's inputs to a size, from shapes, strides and scalars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fusec.diagnostics import FusecError
from fusec.ir.dim import Dim, Symbol, shape_text
from fusec.run.arrays import StridedArray, dense_strides, span, strides_of

if TYPE_CHECKING:
    from fusec.ir.evaluate import Sizes
    from fusec.ir.graph import Input
    from fusec.ir.signature import Signature

PAD = 8
"""Padding in elements of a stride known only at run time; keeps rows aligned to 16 bytes."""


def check_facts(fusion: Signature, sizes: Sizes) -> None:
    """Raise FusecError where a size violates a declared fact of its dim."""
    for fact in fusion.dims:
        size = sizes.get(fact.name, fact.default)
        if size < 0 and fact.name not in {i.value.name for i in fusion.inputs}:
            raise FusecError(f"dim `{fact.name}` is {size}, a size cannot be negative")
        if size % fact.multiple_of:
            raise FusecError(
                f"dim `{fact.name}` is {size}, declared a multiple of {fact.multiple_of}"
            )


def _own_strides(entry: Input) -> dict[str, int]:
    """Return the stride symbols that occur in one input only, with their axis."""
    return {
        name: axis
        for axis, stride in enumerate(entry.strides)
        for name in stride.symbols
        if name == f"{entry.value.name}.stride{axis}"
    }


def choose_strides(entry: Input, sizes: dict[str, int], given: set[str]) -> None:
    """Bind the run-time strides of an input that are not given: rows are padded."""
    open_ = {n: a for n, a in _own_strides(entry).items() if n not in given}
    shape = [max(1, d.evaluate(sizes)) for d in entry.value.shape]
    while open_:
        known = [
            (extent, stride.evaluate(sizes))
            for extent, stride in zip(shape, entry.strides, strict=True)
            if not (stride.symbols & open_.keys())
        ]
        # A dim without pending dependences: the innermost one left. On ties dims of extent 1 come
        # first: they leave no gap, so that reading chosen strides gives the same strides.
        name = min(open_, key=lambda n: (max(1, sizes[n]), shape[open_[n]], -open_[n]))
        reach = span([e for e, _ in known], [s for _, s in known])
        sizes[name] = 2 if reach <= 1 else -(-reach // PAD) * PAD + PAD
        del open_[name]


def generator_state(entry: Input, pair: tuple[int, int]) -> StridedArray:
    """Return the generator's seed or offset as an input array."""
    part = pair[0] if entry.generator == "seed" else pair[1]
    return StridedArray(np.array([part & (2**64 - 1)], np.uint64), (), ())


def read_sizes(fusion: Signature, arrays: Mapping[str, Any]) -> dict[str, int]:
    """Return the size of every symbol as `bind_sizes` does, without the checks of operations."""
    sizes: dict[str, int] = {}
    origin: dict[str, str] = {}
    pending: list[tuple[Dim, int, str]] = []
    for entry in fusion.inputs:
        value = entry.value
        if value.is_scalar:
            _bind_scalar(entry, arrays, sizes, origin)
            continue
        if value.name not in arrays:
            raise FusecError(f"input `{value.name}` is missing", span=entry.span)
        shape = tuple(np.shape(arrays[value.name]))
        if len(shape) != value.rank:
            raise FusecError(
                f"input `{value.name}` has {len(shape)} dims {list(shape)}, expected {value.rank}",
                notes=(f"declared {value.dtype}{shape_text(value.shape)}",),
            )
        for axis, (dim, size) in enumerate(zip(value.shape, shape, strict=True)):
            pending.append((dim, size, f"dim {axis} of input `{value.name}`"))
    _solve(pending, sizes, origin)
    for fact in fusion.dims:
        if fact.name not in sizes:
            sizes[fact.name], origin[fact.name] = fact.default, "its default"
    _solve(pending, sizes, origin)
    for entry in fusion.inputs:
        if not entry.value.is_scalar:
            _read_strides(entry, arrays[entry.value.name], sizes, fusion.hints)
    check_facts(fusion, sizes)
    return sizes


def _bind_scalar(
    entry: Input, arrays: Mapping[str, Any], sizes: dict[str, int], origin: dict[str, str]
) -> None:
    value = entry.value
    given = arrays.get(value.name, entry.default)
    if given is None:
        raise FusecError(f"scalar input `{value.name}` is missing", span=entry.span)
    if np.shape(given):
        raise FusecError(f"input `{value.name}` is a scalar, got shape {list(np.shape(given))}")
    if value.dtype.is_integer and value.dim is not None:
        sizes[value.name] = int(given)
        origin[value.name] = f"scalar input `{value.name}`"


def _solve(
    pending: list[tuple[Dim, int, str]], sizes: dict[str, int], origin: dict[str, str]
) -> None:
    """Bind symbols in rounds: solve dims with one unknown symbol, alone in a linear term."""
    progress = True
    while progress:
        progress = False
        for dim, size, place in pending:
            unknown = _unknown(dim, sizes)
            if unknown is None:
                continue
            solution = _solve_one(dim, unknown, size, sizes)
            if solution is None:
                raise FusecError(f"{place} is {size}, which `{dim}` cannot be")
            sizes[unknown], origin[unknown], progress = solution, place, True
    for dim, size, place in pending:
        if not dim.symbols <= sizes.keys():
            continue
        expected = dim.evaluate(sizes)
        if size != expected:
            name = f" (`{dim}`)" if dim.symbols else ""
            notes = [
                f"`{s}` is {sizes[s]} from {origin[s]}" for s in sorted(dim.symbols) if s in origin
            ]
            raise FusecError(f"{place}{name} is {size}, expected {expected}", notes=notes)


def _unknown(dim: Dim, sizes: Sizes) -> str | None:
    """Return the only unbound symbol of a dim if it stands alone in a linear term."""
    unknown = [s for s in dim.symbols if s not in sizes]
    if len(unknown) != 1:
        return None
    carriers = [m for m, _ in dim.terms if any(unknown[0] in _symbols(a) for a in m)]
    plain = len(carriers) == 1 and sum(unknown[0] in _symbols(a) for a in carriers[0]) == 1
    return (
        unknown[0]
        if plain and any(isinstance(a, Symbol) and a.name == unknown[0] for a in carriers[0])
        else None
    )


def _symbols(atom: Any) -> frozenset[str]:
    return (
        frozenset({atom.name})
        if isinstance(atom, Symbol)
        else atom.left.symbols | atom.right.symbols
    )


def _solve_one(dim: Dim, name: str, size: int, sizes: Sizes) -> int | None:
    base = dim.evaluate({**sizes, name: 0})
    slope = dim.evaluate({**sizes, name: 1}) - base
    if slope == 0:
        return 1 if size == base else None
    return (size - base) // slope if (size - base) % slope == 0 else None


def _stride_of(
    entry: Input, axis: int, actual: Sequence[int], shape: Sequence[int], sizes: Sizes
) -> int:
    """Return a stride from an array; for a dim of one element, derive it from other strides."""
    for k, stride in enumerate(entry.strides if shape[axis] == 1 else ()):
        factor = stride.divide(entry.strides[axis])
        if shape[k] > 1 and factor is not None and factor.symbols <= sizes.keys():
            times = factor.evaluate(sizes)
            if times and actual[k] % times == 0:
                return actual[k] // times
    return actual[axis]


def _read_strides(entry: Input, array: Any, sizes: dict[str, int], hints: Sizes) -> None:
    """Bind run-time strides to those of an array, or FusecError where others are not as declared.

    NumPy arrays of other layouts are copied before they are used: their strides are chosen.
    """
    actual = strides_of(array)
    if any(stride < 0 for stride in actual):
        # A view with negative strides is copied first, so strides are never negative.
        actual = dense_strides(np.shape(array))
    shape, own = tuple(np.shape(array)), _own_strides(entry)
    for name, axis in own.items():
        sizes[name] = _stride_of(entry, axis, actual, shape, sizes)
    strides = tuple(s.evaluate(sizes) for s in entry.strides)
    for axis, (found, expected) in enumerate(zip(actual, strides, strict=True)):
        if shape[axis] == 1 or 0 in shape or found == expected:
            continue  # its stride addresses no element, or only one
        if isinstance(array, np.ndarray):
            sizes |= {name: hints[name] for name in own}
            choose_strides(entry, sizes, set())
            return
        raise FusecError(
            f"input `{entry.value.name}` has stride {found} in dim {axis}, expected {expected}",
            notes=(f"declared strides {shape_text(entry.strides)}",),
        )
