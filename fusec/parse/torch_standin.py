"""A stand-in for the few `torch` calls with which scripts create inputs, backed by NumPy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from fusec.generator import manual_seed
from fusec.ir import dtype as dtypes
from fusec.ir.dtype import DType
from fusec.parse.dsl.datatype import as_dtype
from fusec.parse.dsl.lists import is_list
from fusec.parse.torch_standin_tensor import (
    DTYPES,
    Dtype,
    Size,
    Storage,
    Tensor,
    of_array,
    of_dtype,
    refuse,
)

_CHUNK = 1 << 20


class StandIn(ModuleType):
    """A module that rejects, by name, attributes that it does not have."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise refuse(f"{self.__name__}.{name}")


class Missing:
    """A missing attribute of a submodule: rejected by name when it is called, not when imported."""

    def __init__(self, name: str) -> None:
        """Represent `name`."""
        self._name = name

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self._name}.{name}")

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Reject the call."""
        raise refuse(self._name)


class Submodule(ModuleType):
    """A module of PyTorch without any contents in the stand-in."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.__name__}.{name}")


class Module:
    """`torch.nn.Module`: calling it calls its `forward`."""

    forward: Callable[..., Any]

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Return the result of `forward`."""
        return self.forward(*args, **options)


class Generator:
    """The random state: every tensor gets a separate seed when it is created."""

    def __init__(self) -> None:
        """Start at seed 0."""
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Start again at `seed`."""
        self._seeds = np.random.SeedSequence(abs(int(seed)))

    def spawn(self) -> np.random.Generator:
        """Return a generator for one tensor, so that the order of reading does not matter."""
        return np.random.Generator(np.random.SFC64(self._seeds.spawn(1)[0]))


_STATE = Generator()


def _sizes(sizes: tuple[Any, ...], options: dict[str, Any]) -> tuple[int, ...]:
    if "size" in options:
        sizes = (options.pop("size"),)
    if len(sizes) == 1 and not isinstance(sizes[0], int):
        return tuple(int(n) for n in sizes[0])
    return tuple(int(n) for n in sizes)


def _dtype(options: dict[str, Any], default: DType) -> DType:
    return as_dtype(options.get("dtype")) or default


def _filled(
    shape: tuple[int, ...], dtype: DType, fill: Callable[[np.random.Generator, int], Any]
) -> Tensor:
    """Return a tensor whose elements are computed in chunks when they are first read."""
    source, length = _STATE.spawn(), int(np.prod(shape, dtype=np.int64))

    def make() -> Any:
        array = np.empty(length, dtype.numpy)
        for start in range(0, length, _CHUNK):
            count = min(_CHUNK, length - start)
            array[start : start + count] = fill(source, count)
        return array

    return Tensor(Storage(length, dtype, make), shape)


def _wide(dtype: DType) -> Any:
    return np.float64 if dtype.part is dtypes.F64 else np.float32


def _numbers(draw: Callable[..., Any], count: int, dtype: DType, scale: float) -> Any:
    """Return random floats; for a complex type both parts are random, and scaled."""
    if not dtype.is_complex:
        return draw(count, dtype=_wide(dtype))
    parts = draw(2 * count, dtype=_wide(dtype)) * _wide(dtype)(scale)
    return parts.view(dtype.numpy)


def randn(*sizes: Any, **options: Any) -> Tensor:
    """Return normally distributed numbers of variance 1."""
    shape, dtype = _sizes(sizes, options), _dtype(options, dtypes.F32)

    def fill(source: Any, count: int) -> Any:
        return _numbers(source.standard_normal, count, dtype, 0.5**0.5)

    return _filled(shape, dtype, fill)


def rand(*sizes: Any, **options: Any) -> Tensor:
    """Return numbers from [0, 1)."""
    shape, dtype = _sizes(sizes, options), _dtype(options, dtypes.F32)

    def fill(source: Any, count: int) -> Any:
        return _numbers(source.random, count, dtype, 1.0)

    return _filled(shape, dtype, fill)


def randint(low: int, high: Any = None, size: Any = None, **options: Any) -> Tensor:
    """Return integers from [low, high)."""
    if size is None:
        low, high, size = 0, low, high
    return _filled(
        _sizes((size,), {}), _dtype(options, dtypes.I64), lambda r, n: r.integers(low, high, n)
    )


def make_tensor(*shape: Any, low: Any = None, high: Any = None, **options: Any) -> Tensor:
    """Return random numbers of a type from [low, high), as `torch.testing.make_tensor`.

    Without bounds floats and complex numbers are in [-9, 9), integers in [-9, 10), unsigned ones in
    [0, 10). exclude_zero: 0 is replaced by the smallest number of the type; other options are
    ignored.
    """
    sizes, dtype = _sizes(shape, options), _dtype(options, dtypes.F32)
    nonzero = bool(options.get("exclude_zero"))

    def fill(source: Any, count: int) -> Any:
        if dtype is dtypes.BOOL:
            return source.integers(0, 2, count)
        if dtype.is_integer:
            least = -9 if dtype.kind == "int" else 0
            found = source.integers(
                least if low is None else low, 10 if high is None else high, count
            )
            return np.where(found == 0, 1, found) if nonzero else found
        first, last = -9.0 if low is None else low, 9.0 if high is None else high
        parts = source.random(2 * count if dtype.is_complex else count, dtype=_wide(dtype))
        found = parts * _wide(dtype)(last - first) + _wide(dtype)(first)
        found = np.where(found == 0, dtype.part.epsilon, found) if nonzero else found
        return found.view(dtype.numpy) if dtype.is_complex else found

    return _filled(sizes, dtype, fill)


def randperm(n: int, **options: Any) -> Tensor:
    """Return a permutation of 0 to n - 1."""
    order = _STATE.spawn().permutation(int(n))
    return of_array(order.astype(_dtype(options, dtypes.I64).numpy))


def full(size: Any, fill_value: Any, **options: Any) -> Tensor:
    """Return one number everywhere."""
    kinds: dict[Any, DType] = {bool: dtypes.BOOL, int: dtypes.I64, float: dtypes.F32}
    dtype = _dtype(options, kinds.get(type(fill_value), dtypes.C64))
    return _filled(_sizes((size,), {}), dtype, lambda _, n: np.full(n, fill_value))


def zeros(*sizes: Any, **options: Any) -> Tensor:
    """Return zeros."""
    return full(_sizes(sizes, options), 0, dtype=_dtype(options, dtypes.F32))


def ones(*sizes: Any, **options: Any) -> Tensor:
    """Return ones."""
    return full(_sizes(sizes, options), 1, dtype=_dtype(options, dtypes.F32))


def empty_strided(size: Any, stride: Any, **options: Any) -> Tensor:
    """Return zeros with given strides."""
    from fusec.parse.dsl.inputs import span

    return zeros(span(tuple(size), tuple(stride)), **options).as_strided(size, stride)


def arange(*bounds: Any, **options: Any) -> Tensor:
    """Return an arithmetic sequence."""
    real = any(isinstance(b, float) for b in bounds)
    dtype = _dtype(options, dtypes.F32 if real else dtypes.I64)
    return of_array(np.arange(*bounds, dtype=dtype.numpy))


def tensor(data: Any, **options: Any) -> Tensor:
    """Return a tensor of numbers."""
    array: Any = np.asarray(data.view_array() if isinstance(data, Tensor) else data)
    default = dtypes.of_numpy(array.dtype)
    if not isinstance(data, (Tensor, np.ndarray)) and default is dtypes.F64:
        default = dtypes.F32
    return of_array(array.astype(_dtype(options, default).numpy))


def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """Return another view of the same memory."""
    return input.as_strided(size, stride, storage_offset)


def _like(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def like(other: Tensor, *rest: Any, **options: Any) -> Tensor:
        options.setdefault("dtype", other.dtype)
        if function is randint:
            return randint(*rest, size=other.shape, **options)
        return function(other.shape, *rest, **options)

    return like


_TOLERANCE = {"f16": 1e-3, "bf16": 1.6e-2, "f32": 1.3e-6, "f64": 1e-7}


def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Return whether two tensors are equal within a tolerance."""
    a, b = (np.asarray(_array(t), dtype=np.complex128) for t in (input, other))
    return bool(np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan))


def _array(value: Any) -> Any:
    return value.view_array() if isinstance(value, Tensor) else np.asarray(value)


def assert_close(
    actual: Any, expected: Any, *, rtol: float | None = None, atol: float | None = None,
    equal_nan: bool = False, check_dtype: bool = True, **_: Any,
) -> None:  # fmt: skip
    """Raise an error if two tensors differ in type, shape or by more than a tolerance."""
    if is_list(actual):
        for a, b in zip(actual, expected, strict=True):
            assert_close(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=check_dtype)
        return
    a, b = _array(actual), _array(expected)
    if a.shape != b.shape:
        raise AssertionError(f"the shapes differ: {a.shape} and {b.shape}")
    if check_dtype and a.dtype != b.dtype:
        raise AssertionError(f"the element types differ: {a.dtype} and {b.dtype}")
    exact = [dtypes.of_numpy(v.dtype) for v in (a, b)]
    relative = max(_TOLERANCE.get(d.name, 0.0) for d in exact) if rtol is None else rtol
    absolute = (1e-5 if relative else 0.0) if atol is None else atol
    if not allclose(actual, expected, relative, absolute, equal_nan):
        difference = np.abs(a.astype(np.complex128) - b.astype(np.complex128)).max()
        raise AssertionError(f"the tensors differ by up to {difference:g}")


def equal(input: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have the same shape and elements."""
    a, b = input.view_array(), other.view_array()
    return a.shape == b.shape and bool((a == b).all())


def device(name: Any = "cuda", index: int = 0) -> str:
    """Return a device's name; one memory represents all devices."""
    return name if isinstance(name, str) else f"cuda:{index}"


def _manual_seed(seed: int) -> None:
    """Seed the tensors that are created from now on, and the random numbers of fusions."""
    _STATE.reset(seed)
    manual_seed(seed)


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing, as there is no device here."""


def _capability(*_: Any) -> tuple[int, int]:
    return 9, 0


_SUBMODULES = (
    "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.special", "torch.linalg",
    "torch.optim", "torch.utils", "torch.utils.data",
)  # fmt: skip
"""Modules that scripts import before they use their contents."""


def make_modules() -> dict[str, ModuleType]:
    """Return `torch` and its submodules, with a random state of their own."""
    _STATE.reset(0)
    torch, testing, cuda = (StandIn(n) for n in ("torch", "torch.testing", "torch.cuda"))
    makers = (randn, rand, randint, randperm, full, zeros, ones, empty_strided, arange, tensor)
    for function in (*makers, as_strided, allclose, equal, device):
        setattr(torch, function.__name__, function)
    for function in (randn, rand, randint, full, zeros, ones):
        setattr(torch, f"{function.__name__}_like", _like(function))
    shapes = ("transpose", "permute", "reshape", "unsqueeze", "squeeze", "flatten", "clone")
    named: dict[str, Any] = {
        **DTYPES,
        **{short: DTYPES[dtypes.find(short).long] for short in ("float", "half", "double", "long")},
        **{name: getattr(Tensor, name) for name in shapes},
        "int": DTYPES["int32"], "cfloat": DTYPES["complex64"], "cdouble": DTYPES["complex128"],
        "empty": zeros, "empty_like": _like(zeros), "Tensor": Tensor, "Size": Size, "dtype": Dtype,
        "manual_seed": _manual_seed, "seed": _nothing, "no_grad": contextlib.nullcontext,
        "inference_mode": contextlib.nullcontext, "set_default_device": _nothing,
        "get_default_dtype": lambda: of_dtype(dtypes.F32), "from_numpy": of_array,
        "testing": testing, "cuda": cuda, "__version__": "0.0.0+fusec",
    }  # fmt: skip
    for name, value in named.items():
        setattr(torch, name, value)
    testing.assert_close = assert_close  # pyright: ignore[reportAttributeAccessIssue]
    testing.make_tensor = make_tensor  # pyright: ignore[reportAttributeAccessIssue]
    stubs: dict[str, Any] = {
        "is_available": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0,
        "synchronize": _nothing, "empty_cache": _nothing, "manual_seed": _manual_seed,
        "manual_seed_all": _manual_seed, "set_device": _nothing,
        "get_device_capability": _capability, "get_device_name": device,
    }  # fmt: skip
    for name, value in stubs.items():
        setattr(cuda, name, value)
    made: dict[str, ModuleType] = {"torch": torch, "torch.testing": testing, "torch.cuda": cuda}
    for name in _SUBMODULES:
        made[name] = Submodule(name)
        owner, _, last = name.rpartition(".")
        setattr(made[owner], last, made[name])
    made["torch.nn"].Module = Module  # pyright: ignore[reportAttributeAccessIssue]
    return made


def need_known(name: str, modules: dict[str, ModuleType]) -> ModuleType:
    """Return a module of the stand-in, or reject it by name."""
    if name not in modules:
        raise refuse(name)
    return modules[name]
