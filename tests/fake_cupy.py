"""A module like CuPy for machines without a GPU: NumPy's arrays in a type that hides them.

Its arrays follow NumPy's protocols as CuPy's do, and refuse what CuPy's refuse: conversion to an
array of NumPy's, operations beside one, and the arguments, methods of ufuncs and element types that
CuPy lacks. Elements are arrays of rank 0, views like any other. `get` and scalars (`float`, `if`,
`item`) are counted: on a GPU they wait for it. Kernels written for CuPy are run by a C++ compiler.

`PARAMETERS` and `METHODS` are CuPy 14.2's, which `test_reference_arrays.py` checks where CuPy is.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PARAMETERS = {
    "all": "a axis out keepdims",
    "any": "a axis out keepdims",
    "arange": "start stop step dtype",
    "argmax": "a axis dtype out keepdims",
    "argmin": "a axis dtype out keepdims",
    "argsort": "a axis kind",
    "argwhere": "a",
    "array": "obj dtype copy order subok ndmin blocking",
    "asarray": "a dtype order copy blocking",
    "ascontiguousarray": "a dtype",
    "bincount": "x weights minlength",
    "broadcast_arrays": "args",
    "broadcast_to": "array shape",
    "clip": "a a_min a_max out",
    "concatenate": "tup axis out dtype casting",
    "count_nonzero": "a axis",
    "cumprod": "a axis dtype out",
    "cumsum": "a axis dtype out",
    "einsum": "operands kwargs",
    "empty": "shape dtype order",
    "expand_dims": "a axis",
    "eye": "N M k dtype order",
    "flatnonzero": "a",
    "flip": "a axis",
    "full": "shape fill_value dtype order",
    "full_like": "a fill_value dtype order subok shape",
    "imag": "val",
    "isclose": "a b rtol atol equal_nan",
    "iscomplexobj": "x",
    "isneginf": "x out",
    "isposinf": "x out",
    "isreal": "x",
    "max": "a axis out keepdims",
    "mean": "a axis dtype out keepdims",
    "min": "a axis out keepdims",
    "moveaxis": "a source destination",
    "nan_to_num": "x copy nan posinf neginf",
    "nansum": "a axis dtype out keepdims",
    "ndim": "a",
    "norm": "x ord axis keepdims",
    "ones": "shape dtype order",
    "ones_like": "a dtype order subok shape",
    "partition": "a kth axis",
    "prod": "a axis dtype out keepdims",
    "put_along_axis": "arr indices values axis",
    "ravel": "a order",
    "real": "val",
    "repeat": "a repeats axis",
    "reshape": "a newshape order copy",
    "result_type": "arrays_and_dtypes",
    "roll": "a shift axis",
    "round": "a decimals out",
    "searchsorted": "a v side sorter",
    "shape": "a",
    "sort": "a axis kind",
    "split": "ary indices_or_sections axis",
    "squeeze": "a axis",
    "stack": "tup axis out dtype casting",
    "std": "a axis dtype out ddof keepdims",
    "sum": "a axis dtype out keepdims",
    "swapaxes": "a axis1 axis2",
    "take": "a indices axis out",
    "take_along_axis": "a indices axis",
    "tile": "A reps",
    "transpose": "a axes",
    "tri": "N M k dtype",
    "tril": "m k",
    "triu": "m k",
    "unique": "ar return_index return_inverse return_counts axis equal_nan",
    "var": "a axis dtype out ddof keepdims",
    "where": "condition x y",
    "zeros": "shape dtype order",
    "zeros_like": "a dtype order subok shape",
}
"""The parameters of CuPy's functions, of those that fusec may call."""
METHODS = frozenset(
    (
        "all", "any", "argmax", "argmin", "argsort", "astype", "clip", "conj", "copy", "cumprod",
        "cumsum", "fill", "flatten", "item", "max", "mean", "min", "nonzero", "prod", "ravel",
        "repeat", "reshape", "round", "sort", "squeeze", "std", "sum", "swapaxes", "take", "tolist",
        "transpose", "var", "view",
    )
)  # fmt: skip
"""The methods of CuPy's arrays that are NumPy's."""
MISSING = {"isnat", "matvec", "spacing", "vecdot", "vecmat"}
"""NumPy's ufuncs that CuPy lacks."""
TYPES = "?bBhHiIlLqQefdFD"

waits: Counter[str] = Counter()
"""How often results were waited for, by the method."""


def _given(value: Any) -> Any:
    """Return an argument with NumPy's arrays in place of these."""
    if isinstance(value, ndarray):
        return value._array  # pyright: ignore[reportPrivateUsage]
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, (tuple, list)):
        return type(value)(map(_given, value))
    return value


def _made(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return ndarray(np.asarray(value))
    if isinstance(value, (tuple, list)):
        return tuple(map(_made, value))
    return value


def _called(name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a function of NumPy's makes of these arrays, where CuPy's takes them."""
    if name in PARAMETERS:
        _check_arguments(name, args, kwargs)
    if name in ("zeros", "ones", "empty", "full") and isinstance(args[0], ndarray):
        raise TypeError("an array is no shape")
    if name == "where" and not hasattr(args[0], "astype"):
        raise AttributeError(f"a condition is an array, not {args[0]}")
    _check_order(name, args[0] if args else None, kwargs)
    if name in ("sort", "partition") and not args[0].copy(order="K").flags.c_contiguous:
        raise NotImplementedError("Sorting non-contiguous array is not supported.")
    with np.errstate(all="ignore"):
        found = function(*map(_given, args), **{k: _given(v) for k, v in kwargs.items()})
    return _made(np.asarray(found) if name == "count_nonzero" else found)


def _check_order(name: str, array: Any, kwargs: dict[str, Any]) -> None:
    if name in ("sum", "cumsum") and array.dtype.char in "fF" and "dtype" not in kwargs:
        raise NotImplementedError(f"`{name}` of f32 has an order of its own")


class ndarray:
    """An array of the stand-in."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        """Hide an array."""
        if array.dtype.char not in TYPES:
            raise TypeError(f"Unsupported dtype {array.dtype}")
        self._array = array

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func.__name__ not in PARAMETERS:
            return NotImplemented
        return _called(func.__name__, func, args, kwargs)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if ufunc.__name__ in MISSING:
            return NotImplemented
        if method in ("reduce", "accumulate") and (ufunc, method) != (np.multiply, "reduce"):
            # Those that CuPy has, of sums and products, take neighbours in trees.
            raise NotImplementedError(f"`{ufunc.__name__}.{method}` has an order of its own")
        if method in ("at", "reduceat", "outer"):
            raise NotImplementedError(f"`{ufunc.__name__}.{method}` is not used")
        more = {"axis", "keepdims"} if method != "__call__" else set[str]()
        wrong = kwargs.keys() - {"out", "dtype", "casting"} - more
        if wrong and ufunc.__name__ != "matmul":
            raise TypeError(f"Wrong arguments {wrong}")
        out = kwargs.get("out")
        given = {k: _given(v) for k, v in kwargs.items()}
        with np.errstate(all="ignore"):
            found = getattr(ufunc, method)(*map(_given, inputs), **given)
        return out[0] if out else _made(found)

    def __getattr__(self, name: str) -> Any:
        if name not in METHODS:
            raise AttributeError(name)
        method = getattr(self._array, name)
        if name in ("item", "tolist"):
            waits[name] += 1
            return method

        def call(*args: Any, **kwargs: Any) -> Any:
            if name in PARAMETERS and name not in ("reshape", "transpose"):
                _check_arguments(name, (self, *args), kwargs)
            _check_order(name, self, kwargs)
            given = {k: _given(v) for k, v in kwargs.items()}
            with np.errstate(all="ignore"):
                return _made(method(*map(_given, args), **given))

        return call

    def get(self) -> np.ndarray[Any, Any]:
        """Return a copy for the host."""
        waits["get"] += 1
        return self._array.copy()

    def __getitem__(self, index: Any) -> ndarray:
        index = _index(index)
        found = self._array[index]
        if not isinstance(found, np.ndarray):
            whole = index if isinstance(index, tuple) else (index,)
            found = self._array[(*whole, ...)]
        return ndarray(found)

    def __setitem__(self, index: Any, value: Any) -> None:
        with np.errstate(all="ignore"):
            self._array[_index(index)] = _given(value)

    def __iter__(self) -> Iterator[ndarray]:
        if self.ndim < 2 and self.size > 64:
            raise TypeError("iteration over elements waits for each")
        return (self[i] for i in range(len(self)))

    def __len__(self) -> int:
        return len(self._array)

    def __bool__(self) -> bool:
        waits["bool"] += 1
        return bool(self._array)

    def __int__(self) -> int:
        waits["int"] += 1
        return int(self._array)

    def __float__(self) -> float:
        waits["float"] += 1
        return float(self._array)

    def __complex__(self) -> complex:
        waits["complex"] += 1
        return complex(self._array)

    def __repr__(self) -> str:
        return f"on the GPU: {self._array!r}"

    __hash__ = None  # type: ignore[assignment]

    @property
    def dtype(self) -> Any:
        """Return the element type."""
        return self._array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape."""
        return self._array.shape

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return self._array.size

    @property
    def ndim(self) -> int:
        """Return the rank."""
        return self._array.ndim

    @property
    def flags(self) -> Any:
        """Return how the array lies in memory."""
        return self._array.flags

    @property
    def nbytes(self) -> int:
        """Return the size in bytes."""
        return self._array.nbytes

    @property
    def T(self) -> ndarray:
        """Return the transposed view."""
        return ndarray(self._array.T)

    @property
    def real(self) -> ndarray:
        """Return the real parts, a view."""
        return ndarray(self._array.real)

    @real.setter
    def real(self, value: Any) -> None:
        self._array.real = _given(value)

    @property
    def imag(self) -> ndarray:
        """Return the imaginary parts, a view."""
        return ndarray(self._array.imag)

    @imag.setter
    def imag(self, value: Any) -> None:
        self._array.imag = _given(value)


def _index(index: Any) -> Any:
    """Return an index as NumPy takes it; arrays of the host are copied there, as CuPy does."""
    if isinstance(index, tuple):
        return tuple(map(_index, index))
    return index._array if isinstance(index, ndarray) else index  # pyright: ignore[reportPrivateUsage]


def _check_arguments(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    parameters = PARAMETERS[name].split()
    if name in ("einsum", "broadcast_arrays", "result_type"):
        return
    if len(args) > len(parameters):
        raise TypeError(f"{name}() takes {len(parameters)} arguments")
    wrong = kwargs.keys() - set(parameters)
    if wrong:
        raise TypeError(f"{name}() got an unexpected keyword argument {wrong}")


def _operators() -> None:
    def operator(ufunc: Any, *, swap_ab: bool = False) -> Any:
        def call(self: ndarray, other: Any) -> Any:
            pair = (other, self) if swap_ab else (self, other)
            return self.__array_ufunc__(ufunc, "__call__", *pair)

        return call

    def in_place(ufunc: Any) -> Any:
        def call(self: ndarray, other: Any) -> Any:
            return self.__array_ufunc__(ufunc, "__call__", self, other, out=(self,))

        return call

    binary = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide,
        "floordiv": np.floor_divide, "mod": np.remainder, "pow": np.power, "and": np.bitwise_and,
        "or": np.bitwise_or, "xor": np.bitwise_xor, "lshift": np.left_shift,
        "rshift": np.right_shift, "matmul": np.matmul,
    }  # fmt: skip
    for name, ufunc in binary.items():
        setattr(ndarray, f"__{name}__", operator(ufunc))
        setattr(ndarray, f"__r{name}__", operator(ufunc, swap_ab=True))
        setattr(ndarray, f"__i{name}__", in_place(ufunc))
    compared = {
        "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
        "eq": np.equal, "ne": np.not_equal,
    }  # fmt: skip
    for name, ufunc in compared.items():
        setattr(ndarray, f"__{name}__", operator(ufunc))
    for name, ufunc in {"neg": np.negative, "abs": np.abs, "invert": np.invert}.items():
        setattr(
            ndarray,
            f"__{name}__",
            lambda self, u=ufunc: self.__array_ufunc__(u, "__call__", self),
        )
    ndarray.__pos__ = lambda self: self  # type: ignore[attr-defined]


_operators()


def asarray(a: Any, dtype: Any = None) -> ndarray:
    """Return an array, copied to the GPU if it is one of NumPy's."""
    if isinstance(a, ndarray):
        return ndarray(np.asarray(a._array, dtype))  # pyright: ignore[reportPrivateUsage]
    return array(a, dtype)


def array(obj: Any, dtype: Any = None) -> ndarray:
    """Return a new array."""
    given = obj._array if isinstance(obj, ndarray) else obj  # pyright: ignore[reportPrivateUsage]
    return ndarray(np.array(given, dtype))


class cuda:
    """What CuPy says of the GPU."""

    class Device:
        """The GPU."""

        mem_info = (16 << 30, 24 << 30)


class _Pool:
    def free_bytes(self) -> int:
        return 0


get_default_memory_pool = _Pool


C_TYPES = {
    "f": "float", "d": "double", "F": "std::complex<float>", "D": "std::complex<double>",
    "i": "int", "l": "long", "q": "long long",
}  # fmt: skip


class ElementwiseKernel:
    """A kernel of CuPy's whose arguments are integers and one raw array, run by a C++ compiler."""

    def __init__(self, in_params: str, out_params: str, operation: str, name: str) -> None:
        """Keep what the kernel is made of."""
        self._integers = [p.split() for p in in_params.split(", ")]
        assert all(kind == "int64" for kind, _ in self._integers)
        *self._raw, self._array = out_params.split()
        assert self._raw == ["raw", "T"]
        self._operation, self._name = operation, name

    def __call__(self, *args: Any, size: int) -> ndarray:
        *integers, array = args
        held = array._array
        assert held.flags.c_contiguous, "kernels index what lies along memory"
        arguments = ", ".join(f"long long {name}" for _, name in self._integers)
        text = f"""
            #include <complex>
            typedef {C_TYPES[held.dtype.char]} T;
            extern "C" void run(long long size, {arguments}, T *{self._array}) {{
                for (long long i = 0; i < size; ++i) {{ {self._operation} }}
            }}
        """
        pointer = ctypes.c_void_p(held.ctypes.data)
        compiled(text).run(*map(ctypes.c_longlong, (size, *integers)), pointer)
        return array


@cache
def compiled(text: str) -> ctypes.CDLL:
    """Return a library of C++."""
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "kernel.cc", Path(folder) / "kernel.so"
        source.write_text(text, encoding="ascii")
        flags = ["-O1", "-ffp-contract=off", "-shared", "-fPIC", "-o", library]
        subprocess.run(["g++", *flags, source], check=True)
        return ctypes.CDLL(str(library))


def __getattr__(name: str) -> Any:
    if name not in PARAMETERS and not isinstance(getattr(np, name), np.ufunc):
        raise AttributeError(f"module 'cupy' has no attribute '{name}'")
    function = getattr(np, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        return _called(name, function, args, kwargs)

    return call
