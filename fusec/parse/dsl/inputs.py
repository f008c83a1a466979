"""The actual inputs of `fd.execute`: adopted from NumPy, PyTorch or the stand-in, and checked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import FusecError
from fusec.ir import dtype as dtypes
from fusec.ir.dim import Dim, shape_text
from fusec.ir.dtype import DType
from fusec.ir.graph import Fusion, Input
from fusec.ops.limits import check_fits, check_layouts, check_sizes
from fusec.parse.dsl.lists import is_list


@dataclass(frozen=True, eq=False)
class Actual:
    """An input passed to `execute`: its properties, and access to its data.

    strides count elements. `array` creates a NumPy array with these strides; `write` stores a
    result into the caller's memory; `wrap` converts an array to a result of the caller's type in a
    stride order. `tensor` is the PyTorch tensor, if any.
    """

    shape: tuple[int, ...] | None
    strides: tuple[int, ...]
    dtype: DType
    array: Callable[[], Any]
    write: Callable[[Any], None]
    wrap: Callable[[Any, tuple[int, ...] | None], Any] | None = None
    tensor: Any = None


def adopt(values: Iterable[Any]) -> tuple[Actual, ...]:
    """Return the inputs that a script passes, with lists (vectors of scalars) flattened."""
    return tuple(_adopt(v) for v in flat(values))


def adopt_all(
    names: Sequence[str], defaults: Mapping[str, Any], values: Iterable[Any]
) -> tuple[Actual, ...]:
    """Return the arguments for inputs, in their order; errors name the input.

    A scalar that is omitted at the end, or passed as None, has its default.
    """
    given = [*flat(values)]
    count = f"got {len(given)} inputs, the fusion takes {len(names)}"
    notes = [f"the fusion takes {', '.join(f'`{n}`' for n in names)}"] if names else []
    if len(given) > len(names):
        raise FusecError(count, notes=notes)
    actuals: list[Actual] = []
    for name, value in zip_longest(names, given):
        value = defaults.get(name) if value is None else value
        if value is None:
            raise FusecError(f"{count}: `{name}` is missing", notes=notes)
        try:
            actuals.append(_adopt(value))
        except FusecError as error:
            raise error.changed(f"input `{name}`: {error.diagnostic.message}") from None
    return tuple(actuals)


def flat(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the inputs that a script passes, with vectors of scalars flattened."""
    for value in values:
        if is_list(value):
            yield from flat(value)
        else:
            yield value


def _adopt(value: Any) -> Actual:
    import numpy as np

    if isinstance(value, Actual):
        return value
    own = getattr(value, "fusec_actual", None)
    if own is not None:
        return own()
    if type(value).__module__.split(".")[0] == "torch" and hasattr(value, "storage_offset"):
        return _adopt_torch(value)
    if type(value) is np.ndarray:
        array: Any = value  # pyright: ignore[reportUnknownVariableType]
        _check_memory(array)
        return Actual(
            tuple(int(n) for n in array.shape),
            tuple(int(s) // array.itemsize for s in array.strides),
            dtypes.of_numpy(array.dtype),
            lambda: array,
            lambda result: np.copyto(array, result),
        )
    if isinstance(value, (bool, int, float, complex, np.generic)):
        return _adopt_number(value)
    raise FusecError(
        f"an input of type {type(value).__name__} cannot be used",
        help="pass NumPy arrays, PyTorch tensors and Python numbers",
    )


def _check_memory(array: Any) -> None:
    """Raise FusecError for a NumPy array with negative strides, or exceeding its base's memory."""
    import numpy as np

    if not array.size:
        return
    help = "give a copy: numpy.ascontiguousarray(x)"
    for axis, (extent, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
        if stride < 0 and extent > 1:
            message = f"the stride of dim {axis} of an input array is {stride} bytes"
            raise FusecError(message, help=help)
    owner: Any = array
    while getattr(owner, "base", None) is not None:
        owner = owner.base
    try:
        memory: Any = owner if hasattr(owner, "ctypes") else np.frombuffer(owner, np.uint8)
    except (TypeError, ValueError, BufferError):
        return  # memory of another library, whose size is unknown here
    offset = array.ctypes.data - memory.ctypes.data
    reach = span(array.shape, array.strides) - 1 + array.itemsize
    if offset < 0 or offset + reach > memory.nbytes:
        raise FusecError(
            f"an input array spans {reach} bytes, more than the {memory.nbytes} bytes of its base",
            help="strides of numpy.lib.stride_tricks.as_strided are in bytes",
        )


def _adopt_number(number: Any) -> Actual:
    scalar: Any = number.item() if hasattr(number, "item") else number
    kinds: dict[Any, DType] = {bool: dtypes.BOOL, int: dtypes.I64, float: dtypes.F64}
    dtype = kinds.get(type(scalar), dtypes.C128)
    return Actual(None, (), dtype, lambda: scalar, _cannot_write)


def _cannot_write(_: Any) -> None:
    raise FusecError("a scalar input cannot be written")


def _adopt_torch(tensor: Any) -> Actual:

    torch = sys.modules["torch"]
    dtype = dtypes.find(str(tensor.dtype).removeprefix("torch."))
    bits: Any = {1: torch.uint8, 2: torch.int16}.get(dtype.size)
    has_numpy = dtype.numpy.isbuiltin == 1
    shape = tuple(int(n) for n in tensor.shape)
    strides = tuple(int(s) for s in tensor.stride())

    def array() -> Any:
        # The memory is copied unchanged, so strides and sharing between elements survive.
        length = span(shape, strides)
        flat = torch.as_strided(tensor.detach(), (length,), (1,), tensor.storage_offset()).cpu()
        flat = flat.numpy() if has_numpy else flat.view(bits).numpy().view(dtype.numpy)
        return strided(flat, shape, strides, 0)

    def write(result: Any) -> None:
        if result is not tensor:
            tensor.copy_(to_torch(result, None, tensor.device))

    def wrap(result: Any, order: tuple[int, ...] | None) -> Any:
        return to_torch(result, order, tensor.device)

    return Actual(shape, strides, dtype, array, write, wrap, tensor)


def to_torch(result: Any, order: tuple[int, ...] | None, device: Any) -> Any:
    """Return an array as a PyTorch tensor on a device; `order`: each dim's rank, 0 the fastest.

    PyTorch tensors that are already on the GPU are returned unchanged.
    """
    import numpy as np

    torch = sys.modules["torch"]
    if isinstance(result, torch.Tensor):
        return result
    # Not ascontiguousarray, which makes 0-dim arrays 1-dim.
    result = np.require(result, requirements=["C", "W"])
    own = dtypes.of_numpy(result.dtype)
    if result.dtype.isbuiltin == 1:
        made = torch.from_numpy(result)
    else:
        raw = np.uint8 if own.size == 1 else np.int16
        made = torch.from_numpy(result.view(raw)).view(getattr(torch, own.long))
    made = made.to(device)
    if order is None:
        return made
    slow_to_fast = sorted(range(made.ndim), key=lambda axis: -order[axis])
    back = sorted(range(made.ndim), key=slow_to_fast.__getitem__)
    return made.permute(slow_to_fast).contiguous().permute(back)


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return how many elements of memory a tensor spans."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def strided(flat: Any, shape: Sequence[int], strides: Sequence[int], offset: int) -> Any:
    """Return a view of a 1-D array with any strides, in elements."""
    import numpy as np

    raw: Any = np.asarray(flat).view(np.uint8)
    size = flat.dtype.itemsize
    return np.ndarray(
        tuple(shape), flat.dtype, buffer=raw, offset=offset * size,
        strides=tuple(s * size for s in strides),
    )  # fmt: skip


def bind(fusion: Fusion, actuals: Sequence[Actual]) -> Fusion:
    """Return the fusion with sizes and scalars of `actuals` as defaults, after checking them."""
    sizes: dict[str, tuple[int, str]] = {}
    inputs: list[Input] = []
    pending: list[tuple[Dim, int, str, Input]] = []
    strides: list[tuple[Dim, int, str, Input]] = []
    for declared, actual in zip(fusion.given, actuals, strict=True):
        value = declared.value
        _check_kind(declared, actual)
        if value.is_scalar:
            number = actual.array()
            number = number if actual.shape is None else number.item()
            inputs.append(replace(declared, default=number))
            if value.dim is not None:
                pending.append((value.dim, int(number), value.name, declared))
            continue
        inputs.append(declared)
        shape = actual.shape or ()
        for axis, (extent, stride) in enumerate(zip(value.shape, declared.strides, strict=True)):
            place = f"dim {axis} of `{value.name}`"
            pending.append((extent, shape[axis], place, declared))
            if shape[axis] != 1 and 0 not in shape:
                strides.append((stride, actual.strides[axis], f"the stride of {place}", declared))
    _solve([*pending, *strides], sizes)
    hints = {name: size for name, (size, _) in sizes.items()}
    inputs += [i for i in fusion.inputs if i.generator]
    bound = with_hints(replace(fusion, inputs=tuple(inputs)), hints)
    check_sizes(bound)
    check_fits(bound)
    return bound


def with_hints(fusion: Fusion, hints: Mapping[str, int]) -> Fusion:
    """Return the fusion with other default sizes."""
    if not hints:
        return fusion
    facts = tuple(replace(f, default=hints.get(f.name, f.default)) for f in fusion.dims)
    check_layouts(fusion, {fact.name: fact.default for fact in facts})
    return replace(fusion, dims=facts)


def _check_kind(declared: Input, actual: Actual) -> None:
    value = declared.value
    name, span_ = value.name, declared.span
    if value.is_scalar:
        if actual.shape not in (None, ()):
            raise FusecError(f"`{name}` is a scalar, got a tensor", span=span_)
        if dtypes.category(actual.dtype) > max(1, dtypes.category(value.dtype)):
            raise FusecError(f"`{name}` is {value.dtype}, got {actual.dtype}", span=span_)
        return
    if actual.shape is None:
        raise FusecError(f"`{name}` is a tensor, got a number", span=span_)
    declared_text = f"{value.dtype}{shape_text(value.shape)}"
    given_text = f"{actual.dtype}{shape_text(actual.shape)}"
    if actual.dtype != value.dtype or len(actual.shape) != value.rank:
        what = "type" if actual.dtype != value.dtype else "rank"
        raise FusecError(
            f"`{name}` is declared {declared_text}, got {given_text}: the {what} differs",
            span=span_,
        )


def _solve(
    pending: Sequence[tuple[Dim, int, str, Input]], sizes: dict[str, tuple[int, str]]
) -> None:
    """Match declared sizes with actual ones: first plain symbols, then all others."""
    for size, actual, place, declared in pending:
        name = str(size)
        # A symbol of an extent may be used as a stride, but only a stride's own symbol is solved
        # for.
        if name in size.symbols and ("." in name or not place.startswith("the stride")):
            known = sizes.setdefault(str(size), (actual, place))
            if known[0] != actual:
                raise FusecError(
                    f"{place} is {actual}, {known[1]} is {known[0]}, and they must be equal",
                    span=declared.span,
                    help="only a dim declared as 1 broadcasts",
                )
    values = {name: size for name, (size, _) in sizes.items()}
    for size, actual, place, declared in pending:
        if not size.symbols <= values.keys():
            continue
        expected = size.evaluate(values)
        if expected != actual:
            text = str(size) if size.is_const else f"{size} = {expected}"
            raise FusecError(f"{place} is {actual}, it is declared as {text}", span=declared.span)


def sizes_of(
    declared: Sequence[tuple[str, int | None]], actuals: Sequence[Actual]
) -> dict[tuple[str, int | None], int | float]:
    """Return the sizes of inputs, declared by name and rank, and the values of scalars."""
    sizes: dict[tuple[str, int | None], int | float] = {}
    for (name, rank), actual in zip(declared, actuals, strict=True):
        if rank is None:
            if actual.shape is None and actual.dtype.kind != "complex":
                sizes[name, None] = actual.array()
        elif actual.shape is None or len(actual.shape) != rank:
            raise FusecError(f"`{name}` has {rank} dims, the input has a different rank")
        else:
            sizes.update({(name, axis): size for axis, size in enumerate(actual.shape)})
    return sizes
