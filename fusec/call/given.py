"""The arguments of one call, inspected once; errors name the argument and the expectation."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusec.call.frameworks import kind_of
from fusec.diagnostics import FusecError
from fusec.ir.dim import shape_text
from fusec.properties import cached_property

if TYPE_CHECKING:
    from fusec.call.arrays import Kind, View
    from fusec.hostir.program import Buffer
    from fusec.ir.graph import Input
    from fusec.ir.signature import Signature


class Given:
    """Arrays with their views, and numbers, in the order of the fusion's inputs."""

    def __init__(self, fusion: Signature, values: Sequence[Any]) -> None:
        """Inspect the values; FusecError names an invalid argument."""
        self.fusion = fusion
        self.arrays: dict[str, Any] = {}
        self.views: dict[str, View] = {}
        self.numbers: dict[str, Any] = {}
        self.kind: Kind | None = None
        for declared, value in zip(fusion.given, values, strict=True):
            if declared.value.is_scalar:
                self.numbers[declared.value.name] = _number(declared, value)
            else:
                self._add(declared, value)

    def _add(self, declared: Input, array: Any) -> None:
        name, kind = declared.value.name, kind_of(array)
        if kind is None:
            raise FusecError(
                f"argument `{name}` is a {type(array).__name__}, expected an array "
                f"{type_text(declared)}",
                span=declared.span,
                help=(
                    "pass a NumPy, PyTorch, CuPy, JAX or Numba array, or any object with DLPack "
                    "or __cuda_array_interface__"
                ),
            )
        try:
            view = kind.view(array)
        except FusecError as error:
            raise FusecError(
                f"argument `{name}`: {error.diagnostic.message}",
                span=declared.span,
                help=error.diagnostic.help,
            ) from None
        except (BufferError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise FusecError(
                f"argument `{name}` is a {type(array).__name__} that cannot be read: {error}",
                span=declared.span,
            ) from error
        self.kind = self.kind or kind
        self._check(declared, view)
        self.arrays[name], self.views[name] = array, view

    def _check(self, declared: Input, view: View) -> None:
        name, value = declared.value.name, declared.value
        if view.dtype != value.dtype or len(view.shape) != value.rank:
            raise FusecError(
                f"argument `{name}` is {view.dtype}{list(view.shape)}, expected "
                f"{type_text(declared)}",
                span=declared.span,
            )
        for known, other in self.views.items():
            if other.device != view.device:
                raise FusecError(
                    f"argument `{name}` is {_where(view)}, `{known}` is {_where(other)}",
                    help="all arguments must be on one GPU",
                )
        if 0 in view.shape:
            return
        if min(view.strides, default=0) < 0:
            raise FusecError(
                f"argument `{name}` has strides {list(view.strides)}: it goes backwards in memory",
                span=declared.span, help="pass a contiguous copy",
            )  # fmt: skip
        if not view.address:
            raise FusecError(f"argument `{name}` has no memory: it was freed")

    def replace(self, values: Sequence[Any]) -> None:
        """Replace the arrays by others that are known to have the same layout."""
        for declared, value in zip(self.fusion.given, values, strict=False):
            if declared.value.name in self.arrays:
                self.arrays[declared.value.name] = value

    @property
    def device(self) -> int | None:
        """Return the GPU of the arrays; None on the CPU, or without arrays."""
        return next((v.device for v in self.views.values()), None)

    def values(self) -> dict[str, Any]:
        """Return what determines sizes: the layouts of arrays, and numbers."""
        return {**self.views, **self.numbers}

    @cached_property
    def signature(self) -> Hashable:
        """Return a hashable key of everything that determines sizes."""
        sized = (
            self.numbers[i.value.name]
            for i in self.fusion.given
            if i.value.is_scalar and i.value.dim is not None
        )
        return (*((v.shape, v.strides) for v in self.views.values()), *sized)

    @property
    def written(self) -> set[str]:
        """Return the names of the arguments that are written in place."""
        names = {i.value.name for i in self.fusion.inputs}
        return {o.alias for o in self.fusion.outputs if o.alias in names}

    def check_alignments(self, buffers: Mapping[str, Buffer]) -> None:
        """Raise FusecError where an address is less aligned than the accesses of the kernels.

        buffers: of the program that has the kernels.
        """
        for name, view in self.views.items():
            wanted = buffers[name].alignment
            if view.address % wanted and 0 not in view.shape:
                raise FusecError(
                    f"the address of argument `{name}` is {view.address:#x}, expected a multiple "
                    f"of {wanted} bytes",
                    help="pass a copy: x.clone() or x.copy()",
                )

    def check_writes(self) -> None:
        """Raise FusecError where memory that is written in place is also another argument's."""
        for name in self.written:
            for other, view in self.views.items():
                if other != name and overlap(self.views[name], view):
                    raise FusecError(
                        f"argument `{name}` is written in place and shares memory with `{other}`",
                        help="pass a copy of one of them",
                    )

    def check_out(self, name: str, form: View, alignment: int, array: Any) -> None:
        """Raise FusecError for an array that does not have the form of output `name`."""
        kind = kind_of(array)
        if kind is None:
            raise FusecError(f"out: `{name}` is a {type(array).__name__}, expected an array")
        view = kind.view(array)
        same = all(
            e <= 1 or s == t
            for e, s, t in zip(form.shape, form.strides, view.strides, strict=False)
        )
        if (view.dtype, view.shape, view.device) != (
            form.dtype,
            form.shape,
            form.device,
        ) or not same:
            raise FusecError(
                f"out: `{name}` is {_full(view)}, expected {_full(form)}",
            )
        if view.address % alignment and 0 not in view.shape:
            raise FusecError(f"out: the address of `{name}` is not a multiple of {alignment} bytes")
        for other, known in self.views.items():
            if overlap(view, known):
                raise FusecError(f"out: `{name}` shares memory with argument `{other}`")


def merge_arguments(
    placed: Mapping[str, Any], named: Mapping[str, Any], names: Sequence[str], takes: str
) -> dict[str, Any]:
    """Return the arguments of a call by name; FusecError for unknown or duplicate ones."""
    for name in named:
        if name not in names or name in placed:
            what = "is specified twice" if name in names else "is unknown"
            raise FusecError(f"argument `{name}` {what}", help=takes)
    return {**placed, **named}


def require_all(names: Sequence[str], values: Mapping[str, Any], takes: str) -> None:
    """Raise FusecError for the first argument that is missing."""
    missing = next((n for n in names if n not in values), None)
    if missing is not None:
        raise FusecError(f"argument `{missing}` is missing", help=takes)


def ordered(fusion: Signature, arguments: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """Return a call's arguments in order; missing scalars have their defaults."""
    names = [i.value.name for i in fusion.given]
    takes = f"`{fusion.name}` takes {', '.join(names) or 'nothing'}"
    if len(arguments) > len(names):
        raise FusecError(f"got {len(arguments)} arguments, {takes}")
    values = {i.value.name: i.default for i in fusion.given if i.default is not None}
    placed = dict(zip(names, arguments, strict=False))
    values |= merge_arguments(placed, named, names, takes)
    require_all(names, values, takes)
    return [values[n] for n in names]


def overlap(one: View, other: View) -> bool:
    """Return whether two arrays may share memory, comparing their first and last bytes."""
    if one.device != other.device:
        return False
    first, second = one.address + one.bytes, other.address + other.bytes
    return one.address < second and other.address < first


def type_text(declared: Input) -> str:
    """Return an input's type as a file declares it."""
    value = declared.value
    return str(value.dtype) if value.is_scalar else f"{value.dtype}{shape_text(value.shape)}"


def _full(view: View) -> str:
    return f"{view.dtype}{list(view.shape)} with strides {list(view.strides)} {_where(view)}"


def _where(view: View) -> str:
    return "on the CPU" if view.device is None else f"on GPU {view.device}"


def _number(declared: Input, value: Any) -> Any:
    name = declared.value.name
    if getattr(value, "shape", ()) not in ((), None) or isinstance(value, (str, bytes)):
        raise FusecError(f"argument `{name}` is a scalar {declared.value.dtype}, got an array")
    kind = kind_of(value)
    if kind is not None and kind.view(value).device is not None:
        raise FusecError(
            f"argument `{name}` is a scalar, expected a number, got an array on a GPU",
            help=f"pass a number, or declare `{name}` as a tensor {declared.value.dtype}[]",
        )
    number = value.item() if hasattr(value, "item") else value
    kinds = {"bool": (bool, int), "int": (bool, int), "uint": (bool, int)}
    allowed = kinds.get(declared.value.dtype.kind, (bool, int, float))
    if declared.value.dtype.is_complex:
        allowed = (bool, int, float, complex)
    if not isinstance(number, allowed):
        raise FusecError(
            f"argument `{name}` is a {type(value).__name__}, expected a number "
            f"{declared.value.dtype}", span=declared.span,
        )  # fmt: skip
    return number
