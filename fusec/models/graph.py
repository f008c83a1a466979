"""A model's graph of ATen operations, from a `torch.export` archive or a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fusec.dataclasses import dataclass, field, replace
from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.dim import Dim
from fusec.ir.dtype import DType
from fusec.ir.graph import Type


@dataclass(frozen=True)
class Ref:
    """A tensor that an argument refers to."""

    name: str


Argument = Any
"""A Ref, a Dim, a DType, a number, a bool, a string, None, or a list of these."""


@dataclass(frozen=True)
class Result:
    """A result of a node: its name, and its type where the graph has it."""

    name: str
    type: Type | None


@dataclass(frozen=True)
class ModelNode:
    """A call of an operation.

    target: `aten.add.Tensor`. positional: arguments without a name, which come first. module: the
    path of the module that made the call, as `layers.0.mlp`; source: its line, as `model.py:25`.
    """

    name: str
    target: str
    positional: tuple[Argument, ...]
    named: Mapping[str, Argument]
    results: tuple[Result, ...]
    module: str = ""
    source: str = ""

    @property
    def operation(self) -> str:
        """Return the operation's name, without namespace and overload."""
        return self.target.split(".")[1] if "." in self.target else self.target

    @property
    def arguments(self) -> Iterator[Argument]:
        """Yield all arguments."""
        yield from self.positional
        yield from self.named.values()

    def with_references(self, rename: Callable[[str], str]) -> ModelNode:
        """Return the node with the tensors of its arguments renamed."""

        def of(argument: Argument) -> Argument:
            if isinstance(argument, Ref):
                return Ref(rename(argument.name))
            items = items_of(argument)
            return argument if items is None else [of(item) for item in items]

        named = {name: of(argument) for name, argument in self.named.items()}
        return replace(self, positional=tuple(map(of, self.positional)), named=named)


@dataclass(frozen=True)
class ModelInput:
    """An input: `weight` and `buffer` have a key of the archive's weights, `input` is the user's.

    key: the name in the module, as `layers.0.mlp.weight`; of an input its own.
    """

    name: str
    type: Type
    kind: str
    key: str


@dataclass(frozen=True)
class Constant:
    """A non-tensor argument of the user: the graph has its value at export.

    place: its index among all of the user's arguments; value: None, a bool, a number or a string.
    """

    name: str
    place: int
    value: bool | int | float | str | None


@dataclass(frozen=True)
class WeightRecord:
    """The metadata of a weight: its name in the module, its type, the checksum of its bytes."""

    key: str
    type: str
    crc32: int


@dataclass(frozen=True)
class ModelOutput:
    """An output: its tensor, or None for a constant; into: the input that it updates.

    A result that updates a buffer or an input is not returned to the user.
    """

    value: str | None
    into: str | None = None
    constant: bool | int | float | str | None = None


@dataclass(frozen=True)
class ModelGraph:
    """A graph with the sizes of its symbols; file: the file name in errors."""

    name: str
    file: str
    inputs: tuple[ModelInput, ...]
    nodes: tuple[ModelNode, ...]
    outputs: tuple[ModelOutput, ...]
    symbols: Mapping[str, int] = field(default_factory=dict[str, int])
    """The symbols of dynamic sizes with a default size of each."""
    ranges: Mapping[str, tuple[int | None, int | None]] = field(
        default_factory=dict[str, tuple[int | None, int | None]]
    )
    constants: tuple[Constant, ...] = ()


def items_of(argument: Argument) -> list[Argument] | None:
    """Return the items of an argument that is a list, None for others."""
    return argument if isinstance(argument, list) else None  # pyright: ignore[reportUnknownVariableType]


def node_error(
    file: str,
    node: ModelNode,
    reason: str,
    help: str | None = None,
    *,
    kind: type[FusecError] = Unsupported,
    notes: Sequence[str] = (),
) -> FusecError:
    """Return an error about a node, with its operation, module and source line."""
    where = [f"module `{node.module}`"] if node.module else []
    where += [f"source line {node.source}"] if node.source else []
    return kind(
        f"`{file}`: node `{node.name}` ({node.target}): {reason}",
        notes=(*where, *notes),
        help=help,
    )


def type_of(dtype: DType, shape: Sequence[Dim]) -> Type:
    """Return the type of a tensor."""
    return Type(dtype, tuple(shape))
