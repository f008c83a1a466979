"""Functionalization of a graph: each in-place write produces a new tensor.

A write through a view is written back into its base tensor, and other views of the base are taken
again where they are read later. An input that is written to becomes an output into it.
"""

from __future__ import annotations

from collections.abc import Callable

from fusec.dataclasses import dataclass, replace
from fusec.models.graph import (
    Argument,
    ModelGraph,
    ModelNode,
    ModelOutput,
    Ref,
    Result,
    node_error,
)

_SAME = frozenset({"alias", "detach", "detach_", "lift_fresh_copy"})
_RESHAPED = frozenset({"view", "unsqueeze", "squeeze", "_unsafe_view", "unsqueeze_", "squeeze_"})
_VIEWS = _SAME | _RESHAPED | frozenset({"slice", "select", "transpose", "permute", "t", "narrow"})
_READ_ONLY = frozenset({
    "expand", "expand_as", "broadcast_to", "split", "split_with_sizes", "chunk", "tensor_split",
    "hsplit", "vsplit", "dsplit", "unbind", "diagonal", "unflatten", "movedim", "moveaxis",
    "swapaxes", "swapdims", "numpy_T", "mT", "mH", "adjoint", "matrix_H", "view_as", "unfold",
    "as_strided", "real", "imag", "view_as_real", "view_as_complex", "_conj", "_neg_view",
    "positive", "_reshape_alias",
})  # fmt: skip
"""Views that writes are not supported through."""
_PERHAPS = frozenset({
    "reshape", "reshape_as", "contiguous", "flatten", "ravel", "resolve_conj", "resolve_neg",
})  # fmt: skip
"""Views or copies: that depends on strides, which the graph does not have."""
_SHARED = _VIEWS | _READ_ONLY | _PERHAPS
_CONVERSIONS = frozenset({"to", "type_as"})
"""Operations that return the operand itself if it has the type already, else a copy."""


@dataclass(frozen=True)
class _View:
    """How a tensor is a view of another one."""

    parent: str
    node: ModelNode


def is_in_place(node: ModelNode) -> bool:
    """Return whether a node writes into its first operand, as `add_` does."""
    name = node.operation
    return node.target.startswith("aten.") and name.endswith("_") and not name.endswith("__")


def functional(graph: ModelGraph) -> ModelGraph:
    """Return a graph without writes; Unsupported for writes through views without an inverse."""
    if not any(is_in_place(node) for node in graph.nodes):
        return graph
    return _Functional(graph).run()


class _Functional:
    """Rewrites one graph; tensor names refer to their value at the current node."""

    def __init__(self, graph: ModelGraph) -> None:
        self._graph = graph
        self._nodes: list[ModelNode] = []
        self._current: dict[str, str] = {}
        self._views: dict[str, _View] = {}
        self._writes: dict[str, int] = {}
        self._seen: dict[str, int] = {}
        self._count = 0
        self._types = {i.name: i.type for i in graph.inputs}

    def run(self) -> ModelGraph:
        for node in self._graph.nodes:
            self._types |= {r.name: r.type for r in node.results if r.type is not None}
            if is_in_place(node) and node.operation not in _SHARED:
                self._write(node)
            else:
                self._read(node)
        outputs = [
            replace(o, value=None if o.value is None else self._fresh(o.value))
            for o in self._graph.outputs
        ]
        written = {o.into for o in outputs}
        outputs += [
            ModelOutput(self._current[i.name], i.name)
            for i in self._graph.inputs
            if self._writes.get(i.name) and i.name not in written
        ]
        return replace(self._graph, nodes=tuple(self._nodes), outputs=tuple(outputs))

    def _read(self, node: ModelNode) -> None:
        """Keep a node without writes, recording what it is a view of."""
        operand = _first(node)
        self._nodes.append(node.with_references(self._fresh))
        view = None if operand is None else self._view_of(node, operand)
        if view is not None:
            for result in node.results:
                self._views[result.name] = view
                self._seen[result.name] = self._writes.get(self._base(view.parent), 0)

    def _view_of(self, node: ModelNode, operand: str) -> _View | None:
        """Return how the results of a node are views of its operand; None if they are copies."""
        if node.operation in _CONVERSIONS:
            is_same = node.results[0].type == self._types.get(operand)
            if not is_same or node.named.get("copy") is True:
                return None
            return _View(operand, replace(node, target="aten.alias.default"))
        return _View(operand, node) if node.operation in _SHARED else None

    def _write(self, node: ModelNode) -> None:
        """Replace a write by a new tensor, which replaces the old value."""
        operand = _first(node)
        if operand is None or len(node.results) != 1:
            raise node_error(self._graph.file, node, "it writes into no tensor")
        (result,) = node.results
        name = node.operation.removesuffix("_")
        namespace, _, overload = node.target.partition(f".{node.operation}")
        made = replace(node, target=f"{namespace}.{name}{overload}")
        self._nodes.append(made.with_references(self._fresh))
        self._assign(operand, result.name, node)
        # The result is the operand itself.
        self._views[result.name] = _View(operand, replace(node, target="aten.alias.default"))
        self._seen[result.name] = self._writes[self._base(operand)]

    def _base(self, name: str) -> str:
        while name in self._views:
            name = self._views[name].parent
        return name

    def _fresh(self, name: str) -> str:
        """Return the tensor that a name currently refers to."""
        view = self._views.get(name)
        writes = self._writes.get(self._base(name), 0)
        if view is None or self._seen[name] == writes:
            return self._current.get(name, name)
        parent = self._fresh(view.parent)
        if view.node.operation in _SAME:
            found = parent
        elif view.node.operation in _PERHAPS:
            raise node_error(
                self._graph.file, view.node,
                "it is read after its operand was written, and it may be a copy or a view of that",
                "clone the operand before the write",
            )  # fmt: skip
        elif len(view.node.results) == 1:
            found = self._made(view.node, lambda n: parent if n == view.parent else self._fresh(n))
        else:
            raise node_error(
                self._graph.file, view.node, "it is read after what it views was written",
                "clone it before the write",
            )  # fmt: skip
        self._current[name], self._seen[name] = found, writes
        return found

    def _made(self, node: ModelNode, rename: Callable[[str], str]) -> str:
        """Take a view again, and return the name of the result."""
        (result,) = node.results
        name = self._new(result.name)
        fresh = node.with_references(rename)
        self._nodes.append(replace(fresh, name=name, results=(Result(name, result.type),)))
        return name

    def _new(self, name: str) -> str:
        self._count += 1
        return f"{name}#{self._count}"

    def _assign(self, name: str, value: str, write: ModelNode) -> None:
        """Rebind a name, and the tensors that it is a view of, to a new value."""
        view = self._views.get(name)
        self._current[name] = value
        if view is None:
            self._writes[name] = self._writes.get(name, 0) + 1
            return
        if view.node.operation not in _VIEWS:
            raise node_error(
                self._graph.file, write,
                f"it writes through `{view.node.name}` ({view.node.target}), which may be a copy "
                "or several elements at once",
                "clone the tensor before the write",
            )  # fmt: skip
        self._assign(view.parent, self._inverse(view, value, write), write)
        self._seen[name] = self._writes[self._base(name)]

    def _inverse(self, view: _View, value: str, write: ModelNode) -> str:
        """Return the base tensor with the value of a view written into it."""
        operation, node = view.node.operation, view.node
        if operation in _SAME:
            return value
        whole = Ref(self._fresh(view.parent))
        kind = self._types[view.parent]
        arguments = list(node.positional)[1:]
        named = {k: a for k, a in node.named.items() if k != "self"}
        part: list[Argument] = [Ref(value)]
        if operation in _RESHAPED:
            target, positional, named = "aten.view.default", [*part, list(kind.shape or ())], {}
        elif operation in ("transpose", "t"):
            target = f"aten.{operation}.{node.target.rpartition('.')[2]}"
            positional = [*part, *arguments]
        elif operation == "permute":
            dims = named.pop("dims", arguments[0] if arguments else [])
            rank = len(dims)
            order = [d % rank for d in dims]
            positional = [*part, [order.index(k) for k in range(rank)]]
            target = "aten.permute.default"
        elif operation in ("slice", "select"):
            target = f"aten.{operation}_scatter.default"
            positional = [whole, *part, *arguments]
        else:
            raise node_error(self._graph.file, write, f"it writes through `{node.name}`")
        name = self._new(view.parent)
        self._nodes.append(
            replace(
                write,
                name=name,
                target=target,
                positional=tuple(positional),
                named=named,
                results=(Result(name, kind),),
            )
        )
        return name


def _first(node: ModelNode) -> str | None:
    """Return the first tensor that a node reads."""
    for argument in node.arguments:
        if isinstance(argument, Ref):
            return argument.name
    return None
