"""The `np` of operations and of the reference: NumPy, or CuPy if an evaluation runs on a GPU.

Both are used through NumPy's interface, and CuPy's arrays follow NumPy's protocols: `np.sqrt(x)` of
an array on the GPU is computed there. Functions outside these protocols are looked up in the module
of the current evaluation: functions that create arrays, and the few that CuPy lacks or restricts.
Nothing is copied to the CPU implicitly; `host` copies arrays, and `on_host` runs functions that
CuPy lacks there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, cast

from fusec.dataclasses import dataclass, fields

Array = Any

on_the_host: Counter[str] = Counter()
"""How often each function, by name, ran on the CPU during evaluations on a GPU."""

_module: ContextVar[Any] = ContextVar("arrays", default=None)


@contextmanager
def computed_by(module: Any) -> Generator[None]:
    """Create the arrays of the enclosed code with a module like CuPy; None: with NumPy."""
    token = _module.set(module)
    try:
        yield
    finally:
        _module.reset(token)


def on_gpu() -> bool:
    """Return whether the current evaluation has arrays on a GPU."""
    return _module.get() is not None


def free_bytes() -> int:
    """Return how much memory of the GPU is still available, in bytes."""
    module = _module.get()
    free, _ = module.cuda.Device().mem_info
    return free + module.get_default_memory_pool().free_bytes()


def host(array: Array) -> Array:
    """Return an array, or None, as a NumPy array."""
    return array.get() if _is_there(array) else array


def on_host(name: str, function: Callable[..., Any], *arrays: Array, **given: Any) -> Any:
    """Return the result of a function of NumPy arrays, copied back to the GPU if that evaluates.

    name: the key counted in `on_the_host`. Arrays may be None; results are an array, several or a
    float.
    """
    module = _module.get()
    if module is None:
        return function(*arrays, **given)
    on_the_host[name] += 1
    there = [host(a) for a in arrays]
    with computed_by(None):
        found = function(*there, **given)
    if isinstance(found, (tuple, list)):
        return tuple(module.asarray(each) for each in cast(Sequence[Any], found))
    return found if isinstance(found, float) else module.asarray(found)


def running_extremum(ufunc: Any, array: Array, axis: int) -> Array:
    """Return the running maxima or minima along an axis; ufunc: `np.maximum` or `np.minimum`."""
    if not _is_there(array):
        return ufunc.accumulate(array, axis=axis)
    found = array.copy()
    view, step = found.swapaxes(axis, 0), 1
    while step < len(view):
        view[step:] = ufunc(view[step:], view[:-step])
        step *= 2
    return found


def in_a_row(ufunc: Any, array: Array, axis: int) -> Array:
    """Return the sequential reduction by `np.add` or `np.multiply` along an axis.

    NumPy reduces in this order along an axis that is not contiguous; CuPy reduces in a tree.
    """
    if not _is_there(array):
        return ufunc.reduce(array, axis=axis)
    return running(ufunc, array, axis).take(-1, axis=axis)


def running(ufunc: Any, array: Array, axis: int) -> Array:
    """Return the sequential running results of `np.add` or `np.multiply` along an axis.

    CuPy's own functions combine neighbours in trees.
    """
    if not _is_there(array):
        return ufunc.accumulate(array, axis=axis)
    module = _module.get()
    found = array.copy(order="C")
    count, after = array.shape[axis], prod(array.shape[axis + 1 :])
    if found.size:
        kernel = _in_order(module, "+" if ufunc is np.add else "*")
        kernel(count, after, found, size=found.size // count)
    return found


@cache
def _in_order(module: Any, sign: str) -> Any:
    """Return the CuPy kernel that scans the middle axis of an array [before, n, after].

    Each thread scans one row, in place.
    """
    text = f"""
        const long long first = i / after * count * after + i % after;
        for (long long k = 1; k < count; ++k) {{
            const long long at = first + k * after;
            values[at] = values[at - after] {sign} values[at];
        }}
    """
    return module.ElementwiseKernel("int64 count, int64 after", "raw T values", text, "in_order")


def _is_there(array: Array) -> bool:
    """Return whether an array is on the GPU."""
    module = _module.get()
    return module is not None and isinstance(array, module.ndarray)


@dataclass(frozen=True)
class _Own:
    """Replacements, from a module like CuPy, of NumPy functions that follow no protocol.

    These create arrays, or take fewer arguments in CuPy.
    """

    arange: Any
    array: Any
    asarray: Any
    ascontiguousarray: Any
    empty: Any
    eye: Any
    full: Any
    ones: Any
    tri: Any
    zeros: Any
    divide: Any
    max: Any
    min: Any


@cache
def _own(module: Any) -> _Own:
    import numpy

    def extremum(of_host: Any, reduce: Any, pick: Any) -> Any:
        def reduced(
            array: Array, axis: Any = None, keepdims: bool = False, initial: Any = None,
            where: Array | None = None,
        ) -> Array:  # fmt: skip
            if not isinstance(array, module.ndarray):
                given = {} if initial is None else {"initial": initial}
                return of_host(array, axis=axis, keepdims=keepdims, **given)
            if where is not None:
                array = module.where(where, array, initial)
            if initial is not None and not array.size:
                # CuPy has no extremum of an empty array.
                nothing = numpy.empty(array.shape, array.dtype)
                there = of_host(nothing, axis=axis, keepdims=keepdims, initial=initial)
                return module.asarray(there)
            found = reduce(array, axis=axis, keepdims=keepdims)
            return found if initial is None else pick(found, initial)

        return reduced

    def divide(a: Array, b: Array, out: Array | None = None, where: Array | None = None) -> Array:
        if where is None:
            return module.divide(a, b)
        assert out is not None
        out[...] = module.where(where, module.divide(a, b), out)
        return out

    return _Own(
        module.arange, module.array, module.asarray, module.ascontiguousarray, module.empty,
        module.eye, module.full, module.ones, module.tri, module.zeros,
        divide=divide,
        max=extremum(numpy.max, module.max, module.maximum),
        min=extremum(numpy.min, module.min, module.minimum),
    )  # fmt: skip


_OWN = frozenset(f.name for f in fields(_Own))


class _Arrays:
    """NumPy, imported on first use, since the op table alone must load fast."""

    def __getattr__(self, name: str) -> Any:
        import numpy

        found = getattr(numpy, name)
        if name not in _OWN:
            setattr(self, name, found)  # later look-ups are as fast as a module's
            return found
        module = _module.get()
        return found if module is None else getattr(_own(module), name)


if TYPE_CHECKING:
    import numpy as np  # pyright: ignore[reportUnusedImport]
else:
    np = _Arrays()
