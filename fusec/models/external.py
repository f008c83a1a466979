"""Selects the operations of a graph that become external calls."""

from __future__ import annotations

import re
from collections.abc import Collection

from fusec.models.calls import Call
from fusec.models.graph import Argument, ModelNode, Ref, items_of
from fusec.models.rules.build import Build, Line

OWN = frozenset({
    "aten", "prims", "prim", "higher_order", "_operator", "operator", "math", "builtins", "torch",
})  # fmt: skip
"""PyTorch's own namespaces; others are custom operations, such as user kernels."""
_WINDOWS = re.compile(
    r"_?convolution\w*|_?conv(_transpose)?[123]d|thnn_conv\w*|mkldnn_convolution\w*|"
    r"\w*(max|avg)_pool[123]d\w*|_?upsample_\w+|grid_sampler\w*|im2col|col2im"
)
"""Convolutions, pooling and interpolation: sliding windows, which libraries compute."""


def is_custom(node: ModelNode) -> bool:
    """Return whether a node calls an operation that is not PyTorch's."""
    return "." in node.target and node.target.partition(".")[0] not in OWN


def is_external(node: ModelNode, chosen: Collection[str]) -> bool:
    """Return whether a node without op lines becomes an external call.

    chosen: further targets, as `aten.sort.default` or, for all overloads, `aten.sort`.
    """
    if is_custom(node) or node.target in chosen or node.target.rpartition(".")[0] in chosen:
        return True
    return node.target.startswith("aten.") and bool(_WINDOWS.fullmatch(node.operation))


def add_call(build: Build, node: ModelNode) -> None:
    """Write an external call as a line of its own; Unsupported where that is not possible."""
    if not node.results:
        raise build.unsupported(
            "it returns nothing, so it writes into its operands",
            "let the operation return new tensors",
        )
    names: list[str | None] = []
    types = ["" if result.type is None else str(result.type) for result in node.results]
    for number, result in enumerate(node.results):
        if result.type is None:
            names.append(None)
            continue
        build.types[result.name] = result.type
        build.texts[result.name] = build.namer.result(node, number)
        names.append(build.texts[result.name])
    call = Call(
        node.name, node.target, tuple(_argument(build, a) for a in node.positional),
        {n: _argument(build, a) for n, a in node.named.items()}, tuple(names), tuple(types),
        node.module, node.source,
    )  # fmt: skip
    build.lines.append(Line(tuple(n or "_" for n in names), "", node, call))


def _argument(build: Build, argument: Argument) -> Argument:
    items = items_of(argument)
    if items is not None:
        return [_argument(build, item) for item in items]
    if isinstance(argument, Ref):
        return Ref(build.text(argument))
    if argument is None or isinstance(argument, (bool, int, float, str)):
        return argument
    if getattr(argument, "is_const", False):
        return argument.value
    raise build.unsupported(
        f"its argument `{build.text(argument)}` is a dynamic size or a type, which external calls "
        "cannot take",
        "export the model with a fixed size there",
    )
