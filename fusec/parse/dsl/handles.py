"""The handles of a script: tensors, scalars and vectors, with Python's operators."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn, cast, overload

from fusec.diagnostics import FusecError, Unsupported, WrongType
from fusec.ir.dim import Dim
from fusec.ir.dtype import BOOL
from fusec.ir.graph import Const, Operand
from fusec.ops import TABLE
from fusec.parse.dsl.datatype import DataType, is_device, of_dtype
from fusec.parse.dsl.foreign import method_named, on_tensors
from fusec.parse.dsl.indexing import index, written_update
from fusec.parse.dsl.place import placed
from fusec.parse.dsl.refused import MissingName, refuse
from fusec.parse.dsl.scheduled import Scheduled
from fusec.parse.dsl.written import without_pair
from fusec.parse.syntax.operators import BINARY, COMPARISONS, UNARY

if TYPE_CHECKING:
    from fusec.parse.dsl.definition import FusionDefinition
    from fusec.parse.dsl.loops import Loops
    from fusec.parse.dsl.typed import Methods
else:
    Methods = object  # the types of a value's operations are only in typed.pyi


_AS_IT_IS = "a scalar of the fusion is used as it is, without `int` or `float`: `x * s`"


class Method:
    """A method of a value; it is an error to use it as a value instead of calling it."""

    def __init__(self, name: str, function: Callable[..., Any], owner: Handle) -> None:
        """Call `function` with the owner as the first argument."""
        self._name, self._function, self._owner = name, function, owner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of the operation on the owner and further arguments."""
        return self._function(self._owner, *args, **kwargs)

    def __repr__(self) -> str:
        return f"a method: write `.{self._name}()`, with its arguments"


class Handle(Methods):
    """A value of a definition; `handle.name(...)` is `fd.ops.name(handle, ...)`."""

    device = None
    """A fusion runs on one GPU, so PyTorch's `device=x.device` is ignored."""

    __array_ufunc__ = None  # so that NumPy numbers leave operators to the handle

    def __init__(
        self, definition: FusionDefinition, const: Const | None = None, *, rank: int = 0
    ) -> None:
        """Represent a constant, or a result of the definition's steps; `rank`: if these fail."""
        self.definition = definition
        self.const = const
        self.guessed_rank = rank

    @property
    def operand(self) -> Operand:
        """Return the current value: unifying two sizes may have changed its type."""
        return self.const or self.definition.operand_of(self)

    @property
    def dtype(self) -> DataType:
        """Return the element type."""
        return of_dtype(self.operand.type.dtype)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        with placed() as place:
            is_result = name in ("values", "indices")
            pair = without_pair(place.span) if place is not None and is_result else None
            if pair is not None:
                message = f"`{pair[0]}` along a dim returns its values alone"
                raise MissingName(message, help=f"write `{pair[1]}`")
            function = method_named(self.definition.ops, name)
        if function is None and name not in TABLE:
            raise refuse(name, type(self).__name__, TABLE)
        function = function or getattr(self.definition.ops, name)
        return Method(name, function, self)

    def is_tensor(self) -> bool:
        """Return whether this is a tensor; scalars of nvFuser are values too."""
        return isinstance(self, Tensor)

    def is_symbolic(self) -> bool:
        """Return whether the value is not a constant."""
        return self.const is None

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> bool:
        if self.const is not None:
            return bool(self.const.value)
        with placed() as place:
            from fusec.parse.dsl.choices import choice_help

            is_bool = not self.definition.knows(self) or self.operand.type.dtype is BOOL
            raise FusecError(
                "a value of a fusion has no truth value while the fusion is being defined",
                help=choice_help(None if place is None else place.span, is_bool=is_bool),
            )

    @classmethod
    def __torch_function__(cls, function: Any, *_: Any, **__: Any) -> NoReturn:
        """Reject PyTorch's functions, which PyTorch passes to a value of another library."""
        name = getattr(function, "__name__", str(function))
        with placed():
            message = f"`torch.{name}` of a value of a fusion"
            raise WrongType(message, help=on_tensors(f"torch.{name}"))

    def __repr__(self) -> str:
        known = self.const is not None or self.definition.knows(self)
        return repr(self.operand) if known else f"a {type(self).__name__.lower()}"


class Tensor(Scheduled, Handle):
    """A tensor of a definition; has the methods of PyTorch's tensors that are operations here."""

    @property
    def loops(self) -> Loops:
        """Return the loop domain."""
        return self.definition.loops_of(self)

    @property
    def known_shape(self) -> Sequence[Dim]:
        """Return the extents of the dims, as far as they are known."""
        return self.operand.shape if self.definition.knows(self) else ()

    def transformed(self, text: str, change: Callable[[], None]) -> None:
        """Change the loop domain by a call with this text."""
        self.definition.transform(self, text, change)

    @property
    def ndim(self) -> int:
        """Return the number of dims."""
        known = self.definition.knows(self)
        return len(self.operand.shape) if known else self.guessed_rank

    @property
    def shape(self) -> Vector:
        """Return the sizes; nvFuser spells it `t.shape()`, and a vector may be called."""
        sizes: Vector = self.definition.ops.shape(self)
        return sizes

    @overload
    def size(self) -> Vector: ...

    @overload
    def size(self, dim: int) -> Scalar: ...

    def size(self, dim: int | None = None) -> Scalar | Vector:
        """Return the size of one dim; without a dim the shape, as PyTorch does."""
        if dim is None:
            return self.shape
        size: Scalar = self.definition.ops.size(self, dim)
        return size

    @property
    def data(self) -> Tensor:
        """Return the tensor itself: a fusion records no gradients."""
        return self

    def dim(self) -> int:
        """Return the number of dims."""
        return self.ndim

    def numel(self) -> Any:
        """Return the number of elements."""
        first, *rest = self.shape or [1]
        return prod(rest, start=first)

    def to(self, *args: Any, dtype: Any = None, **_: Any) -> Tensor:
        """Return the tensor converted to a type, or to another's; PyTorch devices are ignored."""
        given = [a.dtype if isinstance(a, Handle) else a for a in (*args, dtype)]
        types = [a for a in given if not (a is None or isinstance(a, bool) or is_device(a))]
        converted: Tensor = self.definition.ops.cast(self, types[0]) if types else self.cuda()
        return converted

    def cuda(self, *_: Any, **__: Any) -> Tensor:
        """Return a copy, as in PyTorch for a tensor that is on the GPU."""
        copy: Tensor = self.definition.ops.set(self)
        return copy

    @property
    def T(self) -> Tensor:
        """Return the tensor with its dims in reverse order; of fewer than 2 dims, itself."""
        if self.ndim < 2:
            return self
        turned: Tensor = self.definition.ops.permute(self, [*reversed(range(self.ndim))])
        return turned

    @property
    def mT(self) -> Tensor:
        """Return the tensor with its last two dims swapped."""
        if self.ndim < 2:
            with placed():
                help = "it transposes the last two dims; fd.ops.permute(t, dims) reorders any dims"
                raise FusecError(f"`.mT` of a tensor of rank {self.ndim}", help=help)
        *batch, rows, columns = range(self.ndim)
        turned: Tensor = self.definition.ops.permute(self, [*batch, columns, rows])
        return turned

    def __getitem__(self, key: Any) -> Tensor:
        with placed() as place:
            pair = without_pair(None if place is None else place.span) if _is_place(key) else None
            if pair is not None:
                message = f"`{pair[0]}` along a dim returns its values alone"
                raise FusecError(message, help=f"write `{pair[1]}`")
            return index(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        with placed():
            raise Unsupported(
                "assignment to an element: tensors of a fusion are immutable",
                help=written_update(self, key, value),
            )

    __iter__ = None  # otherwise Python would read t[0], t[1], ... forever

    def __len__(self) -> int:
        with placed():
            raise FusecError("a tensor of a fusion has no length", help="use t.size(0)")


def _is_place(key: Any) -> bool:
    return isinstance(key, int) and key in (0, 1)


class Scalar(Handle):
    """A scalar of a definition, or one of its sizes."""

    ndim = 0

    @property
    def dim(self) -> Dim | None:
        """Return the value if it is an integer known from sizes."""
        return self.operand.type.dim

    def __index__(self) -> int:
        dim = self.dim
        if dim is not None and dim.is_const:
            return dim.value
        with placed():
            is_float = self.operand.type.dtype.is_float
            help = "sizes are integers: `D // 2` is half of the size `D`" if is_float else _AS_IT_IS
            raise FusecError(f"{self!r} is not a constant integer", help=help)

    def __float__(self) -> float:
        operand = self.operand
        if isinstance(operand, Const) and not isinstance(operand.value, complex):
            return float(operand.value)
        with placed():
            raise FusecError(f"{self!r} is not a constant", help=_AS_IT_IS)


class Vector(Sequence["Scalar"]):
    """A list of integer scalars, as used for shapes."""

    def __init__(self, definition: FusionDefinition, elements: Sequence[Scalar]) -> None:
        """Hold the elements."""
        self.definition = definition
        self.elements = tuple(elements)

    def __call__(self) -> Vector:
        """Return the vector itself, for nvFuser's `t.shape()`."""
        return self

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return len(self.elements)

    def __len__(self) -> int:
        return len(self.elements)

    def __iter__(self) -> Iterator[Scalar]:
        return iter(self.elements)

    def __getitem__(self, index: Any) -> Any:
        count = len(self.elements)
        if isinstance(index, int) and not -count <= index < count:
            with placed():
                raise FusecError(f"dim {index} of a shape of {count} dims")
        return list[Any](self.elements)[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (tuple, list, Vector)):
            return NotImplemented
        sizes = cast("Sequence[Any]", other)
        return len(self) == len(sizes) and all(a == b for a, b in zip(self, sizes, strict=True))

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"[{', '.join(repr(e) for e in self.elements)}]"


_METHODS = {
    "+": "add", "-": "sub", "*": "mul", "%": "mod", "**": "pow", "@": "matmul",
    "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift",
}  # fmt: skip
"""Python's names for operators of two operands."""
_UNARY_METHODS = {"-": "neg", "~": "invert"}


def _is_integer(operand: Any) -> bool:
    if isinstance(operand, Handle):
        return isinstance(operand, Scalar) and operand.operand.type.dtype.is_integer
    return isinstance(operand, (int, Dim)) and not isinstance(operand, bool)


def _quotient(a: Any, b: Any) -> str:
    # A quotient of two sizes is a size; any other is PyTorch's true division.
    return "div" if _is_integer(a) and _is_integer(b) else "truediv"


def _of_sizes(op: str) -> Callable[[Scalar, Any], Any]:
    """Return a comparison of scalars that is Python's own for two known sizes."""

    def compare(self: Scalar, other: Any) -> Any:
        left, right = (_known_size(v) for v in (self, other))
        if left is not None and right is not None:
            return getattr(operator, op)(left, right)
        return getattr(self.definition.ops, op)(self, other)

    compare.__name__ = compare.__qualname__ = f"__{op}__"
    return compare


def _known_size(value: Any) -> int | None:
    """Return a size as a number if it is one; None for other values."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    size = value.dim if isinstance(value, Scalar) and value.const is None else value
    return size.value if isinstance(size, Dim) and size.is_const else None


def _install_operators() -> None:
    def define(method: str, name: Callable[[Any, Any], str], *, reflected: bool = False) -> None:
        def operation(self: Handle, other: Any) -> Any:
            left, right = (other, self) if reflected else (self, other)
            return getattr(self.definition.ops, name(left, right))(left, right)

        operation.__name__ = operation.__qualname__ = method
        setattr(Handle, method, operation)

    def constant(name: str) -> Callable[[Any, Any], str]:
        return lambda a, b: name

    def floor(a: Any, b: Any) -> str:
        return "div" if _is_integer(a) and _is_integer(b) else "floor_divide"

    for sign, method in _METHODS.items():
        define(f"__{method}__", constant(BINARY[sign]))
        define(f"__r{method}__", constant(BINARY[sign]), reflected=True)
    for method, choose in (("truediv", _quotient), ("floordiv", floor)):
        define(f"__{method}__", choose)
        define(f"__r{method}__", choose, reflected=True)
    for op in COMPARISONS.values():
        define(f"__{op}__", constant(op))
        setattr(Scalar, f"__{op}__", _of_sizes(op))
    unaries = {"abs": "abs", "round": "round", "pos": "set"} | {
        _UNARY_METHODS[sign]: op for sign, op in UNARY.items()
    }
    for method, op in unaries.items():

        def unary(self: Handle, op: str = op) -> Any:
            return getattr(self.definition.ops, op)(self)

        setattr(Handle, f"__{method}__", unary)


_install_operators()
