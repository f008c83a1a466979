"""The stand-in's tensors: NumPy memory created on first read, viewed with any strides."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fusec.diagnostics import FusecError, Unsupported
from fusec.ir import dtype as dtypes
from fusec.ir.dtype import DType
from fusec.ops.frameworks import find_dotted
from fusec.parse.dsl.inputs import Actual, span, strided
from fusec.parse.dsl.place import here
from fusec.parse.dsl.written import written_call
from fusec.parse.torch_modules import EXPORTED


class Storage:
    """A run of elements; `make` fills it when it is first read."""

    def __init__(self, length: int, dtype: DType, make: Callable[[], Any]) -> None:
        """Take the function that creates `length` elements."""
        self.length, self.dtype, self._make = length, dtype, make
        self._array: Any = None

    @property
    def array(self) -> Any:
        """Return the elements as a 1-D array, the same at every call."""
        if self._array is None:
            self._array = self._make()
        return self._array


class Dtype:
    """A `torch.float32` of the stand-in."""

    def __init__(self, dtype: DType) -> None:
        """Represent an element type."""
        self.fusec_dtype = dtype

    @property
    def is_floating_point(self) -> bool:
        """Return whether it is a float type."""
        return self.fusec_dtype.is_float

    @property
    def itemsize(self) -> int:
        """Return the size in bytes."""
        return self.fusec_dtype.size

    def __repr__(self) -> str:
        return f"torch.{self.fusec_dtype.long}"


DTYPES = {d.long: Dtype(d) for d in dtypes.ALL}


def of_dtype(dtype: DType) -> Dtype:
    """Return the stand-in's dtype of an element type; always the same object."""
    return DTYPES[dtype.long]


class Size(tuple[int, ...]):
    """A shape."""

    __slots__ = ()

    def numel(self) -> int:
        """Return the number of elements."""
        return int(np.prod(self, dtype=np.int64))


def refuse(name: str) -> Unsupported:
    """Return the error for a part of PyTorch that the stand-in lacks."""
    place = here()
    written = written_call(None if place is None else place.span)
    entry = find_dotted(name)
    help = "install PyTorch to run this script"
    if written is not None:
        help = f"for a tensor of the fusion write `{written}`; other tensors need PyTorch"
    elif entry is not None and entry.kind == "unsupported":
        help = f"a fusion has no `{entry.name}`: {entry.note}"
    elif name.startswith("torch.nn."):
        help = EXPORTED
    return Unsupported(
        f"the stand-in for PyTorch has no `{name}`",
        span=None if place is None else place.span,
        help=help,
    )


class Tensor:
    """A view of a storage with a shape, strides in elements, and an offset."""

    def __init__(
        self, storage: Storage, shape: Sequence[int], strides: Sequence[int] | None = None,
        offset: int = 0,
    ) -> None:  # fmt: skip
        """View `storage`; without strides in row-major order."""
        self._storage, self._offset = storage, offset
        self._shape = Size(int(operator.index(n)) for n in shape)
        self._strides = contiguous_strides(self._shape) if strides is None else tuple(strides)
        if len(self._strides) != len(self._shape) or any(s < 0 for s in self._strides):
            raise FusecError(f"shape {self._shape} and strides {self._strides} do not go together")
        if offset + span(self._shape, self._strides) > storage.length:
            raise FusecError(
                f"shape {tuple(self._shape)} with strides {self._strides} goes beyond a storage of "
                f"{storage.length} elements"
            )

    def fusec_actual(self) -> Actual:
        """Return the tensor as an input of a fusion."""

        def write(result: Any) -> None:
            np.copyto(self.view_array(), result)

        return Actual(
            tuple(self._shape), self._strides, self._storage.dtype, self.view_array, write, of_array
        )

    def view_array(self) -> Any:
        """Return a NumPy view of the elements."""
        return strided(self._storage.array, self._shape, self._strides, self._offset)

    def _with(
        self, shape: Sequence[int], strides: Sequence[int], offset: int | None = None
    ) -> Tensor:
        return Tensor(self._storage, shape, strides, self._offset if offset is None else offset)

    is_cuda = True
    device = "cuda:0"

    @property
    def shape(self) -> Size:
        """Return the shape."""
        return self._shape

    @property
    def dtype(self) -> Dtype:
        """Return the element type."""
        return of_dtype(self._storage.dtype)

    @property
    def ndim(self) -> int:
        """Return the number of dims."""
        return len(self._shape)

    @property
    def T(self) -> Tensor:
        """Return the transposed matrix."""
        return self.t()

    def size(self, dim: int | None = None) -> Any:
        """Return the shape, or one size."""
        return self._shape if dim is None else self._shape[dim]

    def stride(self, dim: int | None = None) -> Any:
        """Return the strides, or one of them."""
        return self._strides if dim is None else self._strides[dim]

    def storage_offset(self) -> int:
        """Return the offset of the first element."""
        return self._offset

    def dim(self) -> int:
        """Return the number of dims."""
        return len(self._shape)

    def numel(self) -> int:
        """Return the number of elements."""
        return self._shape.numel()

    def __len__(self) -> int:
        return self._shape[0]

    def as_strided(
        self, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
    ) -> Tensor:
        """Return another view of the same memory."""
        return self._with(size, stride, storage_offset)

    def permute(self, *dims: Any) -> Tensor:
        """Return a view with the dims reordered."""
        order = [d % self.ndim for d in _listed(dims)]
        return self._with([self._shape[d] for d in order], [self._strides[d] for d in order])

    def transpose(self, dim0: int, dim1: int) -> Tensor:
        """Return a view with two dims swapped."""
        order = list(range(self.ndim))
        order[dim0], order[dim1] = order[dim1], order[dim0]
        return self.permute(order)

    def t(self) -> Tensor:
        """Return the transposed matrix."""
        return self if self.ndim < 2 else self.permute(1, 0)

    def unsqueeze(self, dim: int) -> Tensor:
        """Return a view with a dim of size 1 inserted."""
        at = dim % (self.ndim + 1)
        stride = self._shape[at] * self._strides[at] if at < self.ndim else 1
        shape, strides = list(self._shape), list(self._strides)
        shape.insert(at, 1)
        strides.insert(at, stride)
        return self._with(shape, strides)

    def squeeze(self, *dims: Any) -> Tensor:
        """Return a view without some or all dims of size 1."""
        chosen = {d % self.ndim for d in _listed(dims)} if dims else set(range(self.ndim))
        kept = [d for d in range(self.ndim) if self._shape[d] != 1 or d not in chosen]
        return self._with([self._shape[d] for d in kept], [self._strides[d] for d in kept])

    def expand(self, *sizes: Any) -> Tensor:
        """Return a view with dims of size 1 repeated by stride 0."""
        wanted = _listed(sizes)
        lead = len(wanted) - self.ndim
        shape, strides = [1] * lead + [*self._shape], [0] * lead + [*self._strides]
        for axis, size in enumerate(wanted):
            if size not in (-1, shape[axis]):
                if shape[axis] != 1:
                    raise FusecError(f"size {shape[axis]} cannot be expanded to {size}")
                shape[axis], strides[axis] = size, 0
        return self._with(shape, strides)

    def is_contiguous(self) -> bool:
        """Return whether the elements are contiguous in row-major order."""
        wanted = contiguous_strides(self._shape)
        return all(
            n == 1 or a == b for n, a, b in zip(self._shape, self._strides, wanted, strict=True)
        )

    def contiguous(self) -> Tensor:
        """Return the tensor in row-major order, copied only if needed."""
        return self if self.is_contiguous() else self.clone()

    def clone(self) -> Tensor:
        """Return a copy in row-major order."""
        return self._lazily(self._storage.dtype)

    def reshape(self, *sizes: Any) -> Tensor:
        """Return the elements in another shape, copied only if needed."""
        wanted = list(_listed(sizes))
        if -1 in wanted:
            rest = int(np.prod([n for n in wanted if n != -1], dtype=np.int64))
            wanted[wanted.index(-1)] = self.numel() // max(1, rest)
        if int(np.prod(wanted, dtype=np.int64)) != self.numel():
            raise FusecError(f"shape {tuple(self._shape)} cannot be viewed as {tuple(wanted)}")
        whole = self.contiguous()
        return whole._with(wanted, contiguous_strides(wanted))

    view = reshape

    def flatten(self) -> Tensor:
        """Return the elements in one dim."""
        return self.reshape(-1)

    def to(self, *args: Any, **options: Any) -> Tensor:
        """Return the tensor converted to another element type; devices are ignored."""
        for value in (*args, options.get("dtype")):
            if isinstance(value, Dtype):
                same = value.fusec_dtype == self._storage.dtype
                return self if same else self._lazily(value.fusec_dtype)
        return self

    def _lazily(self, dtype: DType) -> Tensor:
        def make() -> Any:
            return np.ascontiguousarray(self.view_array()).astype(dtype.numpy).reshape(-1)

        return Tensor(Storage(self.numel(), dtype, make), self._shape)

    def detach(self) -> Tensor:
        """Return the tensor: there are no gradients here."""
        return self

    def same(self, *_: Any, **__: Any) -> Tensor:
        """Return the tensor: one device represents all."""
        return self

    cpu = cuda = requires_grad_ = same

    def numpy(self) -> Any:
        """Return a NumPy view of the elements."""
        return self.view_array()

    def item(self) -> Any:
        """Return the only element as a number."""
        return self.view_array().item()

    def tolist(self) -> Any:
        """Return the elements as nested lists."""
        return self.view_array().tolist()

    def __getitem__(self, index: Any) -> Tensor:
        return of_array(self.view_array()[index])

    def __neg__(self) -> Tensor:
        return _compute(operator.mul, self, -1)

    def __iter__(self) -> Any:
        return (self[k] for k in range(len(self)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise refuse(f"Tensor.{name}")

    def __repr__(self) -> str:
        return f"tensor({list(self._shape)}, dtype={self.dtype!r})"


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of row-major order, in PyTorch's convention."""
    strides, step = list[int](), 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(1, size)
    return tuple(reversed(strides))


def of_array(array: Any, order: tuple[int, ...] | None = None) -> Tensor:
    """Return a tensor on a NumPy array; memory is shared if the array is in this order."""
    made: Any = np.asarray(array)
    axes = sorted(range(made.ndim), key=lambda axis: -order[axis] if order else axis)
    flat = np.ascontiguousarray(made.transpose(axes)).reshape(-1)
    strides = [
        math.prod(made.shape[a] for a in axes[axes.index(k) + 1 :]) for k in range(made.ndim)
    ]
    return Tensor(
        Storage(flat.size, dtypes.of_numpy(made.dtype), lambda: flat), made.shape, strides
    )


def _listed(values: tuple[Any, ...]) -> tuple[int, ...]:
    if len(values) == 1 and not isinstance(values[0], int):
        return tuple(values[0])
    return values


def _install_casts_and_arithmetic() -> None:
    casts = {
        "float": "float32", "half": "float16", "bfloat16": "bfloat16", "double": "float64",
        "int": "int32", "long": "int64", "bool": "bool",
    }  # fmt: skip
    for method, name in casts.items():

        def cast(self: Tensor, target: Dtype = DTYPES[name]) -> Tensor:
            return self.to(target)

        setattr(Tensor, method, cast)
    for name in ("add", "sub", "mul", "truediv", "pow"):
        function = getattr(operator, name)

        def forward(self: Tensor, other: Any, function: Any = function) -> Tensor:
            return _compute(function, self, other)

        def backward(self: Tensor, other: Any, function: Any = function) -> Tensor:
            return _compute(function, other, self)

        setattr(Tensor, f"__{name}__", forward)
        setattr(Tensor, f"__r{name}__", backward)


def _compute(function: Callable[[Any, Any], Any], a: Any, b: Any) -> Tensor:
    tensors = [v._storage.dtype for v in (a, b) if isinstance(v, Tensor)]  # pyright: ignore[reportPrivateUsage]
    scalars = [dtypes.F64 if isinstance(v, float) else dtypes.I64
               for v in (a, b) if not isinstance(v, Tensor)]  # fmt: skip
    target = dtypes.result_type(tensors, (), scalars)
    wide = [
        v.view_array().astype(target.compute.numpy) if isinstance(v, Tensor) else v for v in (a, b)
    ]
    return of_array(np.asarray(function(*wide)).astype(target.numpy))


_install_casts_and_arithmetic()
