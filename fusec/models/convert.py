"""Converts a graph of ATen operations to op lines of a fusion: by rules, else by table."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import FusecError, Unsupported
from fusec.foreign import decoding
from fusec.ir.dim import Dim
from fusec.ir.dtype import DType
from fusec.ir.graph import Type
from fusec.models.external import add_call, is_custom, is_external
from fusec.models.functional import functional
from fusec.models.graph import (
    Argument,
    Constant,
    ModelGraph,
    ModelInput,
    ModelNode,
    ModelOutput,
    Ref,
)
from fusec.models.names import Namer
from fusec.models.rules import RULES
from fusec.models.rules.build import Build, Line, Texts, call_rule, size_texts
from fusec.ops.frameworks import Entry, find_dotted
from fusec.parse.foreign import frameworks

GUARDS = frozenset({
    "_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range",
    "sym_constrain_range_for_size", "_functional_assert_async", "sym_size", "sym_stride",
    "sym_numel", "_log_api_usage_once",
})  # fmt: skip
"""Operations that check or compute sizes: their types and sizes are already in the graph."""
_SUBGRAPHS = "higher_order."


@dataclass(frozen=True)
class Converted:
    """The op lines of a graph, with its inputs and outputs by the names of the lines.

    aliases: the input that an output is written into. returned: the outputs that the user gets, by
    name, or constants.
    """

    graph: ModelGraph
    inputs: tuple[tuple[str, ModelInput], ...]
    lines: tuple[Line, ...]
    outputs: tuple[str, ...]
    aliases: dict[str, str]
    returned: tuple[str | Constant, ...]
    types: dict[str, Type]
    """The types of values according to the graph, by name."""


MOST_ERRORS = 8
"""Maximum kinds of unsupported nodes that an error lists."""


def converted(graph: ModelGraph, external: Collection[str] = ()) -> Converted:
    """Return the op lines of a graph; FusecError names each unsupported kind of node.

    external: targets that may become external calls, in addition to those of `fusec.models.calls`.
    """
    build = _started(functional(graph), external)
    errors: dict[str, FusecError] = {}
    for node in build.graph.nodes:
        build.node = node
        try:
            _add(build, node)
        except FusecError as error:
            errors.setdefault(node.target, error)
            _stand_in(build, node)
    if errors:
        first, *rest = errors.values()
        first.more = tuple(error.diagnostic for error in rest[: MOST_ERRORS - 1])
        raise first
    return _finished(build)


def _stand_in(build: Build, node: ModelNode) -> None:
    """Name the results of an unsupported node, so that later nodes are checked, too."""
    for number, result in enumerate(node.results):
        build.texts[result.name] = build.namer.result(node, number)
        if result.type is not None:
            build.types[result.name] = result.type


def _started(graph: ModelGraph, external: Collection[str]) -> Build:
    """Return the lines of a graph before its first node."""
    namer = Namer(graph)
    build = Build(graph, namer, ModelNode("", "", (), {}, ()), external=frozenset(external))
    for entry in graph.inputs:
        build.texts[entry.name], build.types[entry.name] = namer.inputs[entry.name], entry.type
    return build


def _add(build: Build, node: ModelNode) -> None:
    """Write the lines of one node."""
    if _SUBGRAPHS in node.target:
        raise build.unsupported("it calls a subgraph", "export without control flow on data")
    if node.operation in GUARDS or not (
        node.results or is_custom(node) or node.target.startswith("aten.")
    ):
        return
    try:
        texts = _texts(build, node)
    except Unsupported:
        if not is_external(node, build.external):
            raise
        return add_call(build, node)
    if isinstance(texts, str):
        texts = [texts]
    for number, (result, text) in enumerate(zip(node.results, texts, strict=False)):
        if result.type is not None:
            build.types[result.name] = result.type
        if text is None:
            continue
        if text.isidentifier():
            build.texts[result.name] = text  # a name that exists already
            continue
        name = build.namer.result(node, number)
        build.lines.append(Line((name,), text, node))
        build.texts[result.name] = name
    _note_counts(build, node)


_COUNTING = frozenset({
    "unsqueeze", "expand", "slice", "view", "reshape", "permute", "transpose", "squeeze", "clone",
    "alias", "_to_copy", "to", "select", "flatten",
})  # fmt: skip


def _note_counts(build: Build, node: ModelNode) -> None:
    """Record that a view of nonnegative values is nonnegative, too."""
    first = node.positional[0] if node.positional else next(iter(node.named.values()), None)
    known = isinstance(first, Ref) and first.name in build.natural
    adds = node.operation == "add" and all(
        (isinstance(a, Ref) and a.name in build.natural) or (type(a) is int and a >= 0)
        for a in node.arguments
    )
    if adds or (known and node.operation in _COUNTING):
        build.natural |= {r.name for r in node.results}


def _texts(build: Build, node: ModelNode) -> Texts:
    def misfit(reason: str) -> FusecError:
        return build.unsupported(f"its arguments are not those of ATen ({reason})")

    known = RULES.get(node.target)
    if known is not None:
        with decoding(misfit):
            return call_rule(build, known, node)
    entry = find_dotted(node.target) if "." in node.target else None
    namespace = node.target.partition(".")[0]
    if entry is None and namespace not in ("aten", "prims"):
        raise build.unsupported(f"it is an operation of `{namespace}`")
    if entry is None:
        raise build.unsupported(
            "fusec has no such operation",
            "run `fusec ops` for those it has; export the model with "
            "`.run_decompositions()` to divide an operation into smaller ones, or import it with "
            f"`--external {node.target}` to call a function of your own there",
        )
    if entry.kind == "unsupported" or not frameworks.is_exact(entry):
        raise build.unsupported(entry.note or "it is written otherwise in each case")
    return _of_entry(build, node, entry)


def _of_entry(build: Build, node: ModelNode, entry: Entry) -> Texts:
    """Return the expression of a table entry, with the node's arguments substituted."""
    named = {k: _plain(a) for k, a in node.named.items()}
    positional = [_plain(a) for a in node.positional]
    try:
        given = frameworks.bind(entry, positional, named, list)
        tree = frameworks.instantiate(entry, given, _value_of)
    except FusecError as error:
        raise build.unsupported(error.diagnostic.message, error.diagnostic.help) from None
    texts = {name: build.text(argument) for name, argument in given.items()}
    text = frameworks.text_of(tree, texts)
    if len(node.results) < 2:
        return text
    words = [str(k) for k in range(len(node.results))]
    return build.let_all(text, words)


def _plain(argument: Argument) -> Argument:
    """Return None for PyTorch's word for it, else the argument."""
    return None if argument == "none" else argument


def _value_of(argument: Argument) -> object:
    is_opaque = isinstance(argument, (Ref, Dim, DType, list))
    return frameworks.OPAQUE if is_opaque else argument


def _finished(build: Build) -> Converted:
    graph = build.graph
    outputs: list[str] = []
    aliases: dict[str, str] = {}
    returned: list[str | Constant] = []
    inputs = {build.texts[i.name] for i in graph.inputs}
    for output in graph.outputs:
        if output.value is None:
            returned.append(Constant(f"output_{len(returned)}", len(returned), output.constant))
            continue
        if output.value not in build.texts:
            raise FusecError(f"`{graph.file}`: the output `{output.value}` is not in the graph")
        name = build.texts[output.value]
        if output.into is not None and name == build.texts[output.into]:
            continue  # it keeps its own
        if name in inputs or name in outputs:
            again = build.namer.inner(_OUTPUT, name)
            build.lines.append(Line((again,), _returned_again(build, output, name), _OUTPUT))
            name = again
        outputs.append(name)
        if output.into is None:
            returned.append(name)
        else:
            aliases[name] = build.texts[output.into]
    lines, used = _alive(build.lines, outputs)
    # The user's come first: outputs have the framework of the first array.
    order = sorted(graph.inputs, key=lambda i: i.kind != "input")
    kept = tuple((build.texts[i.name], i) for i in order if build.texts[i.name] in used)
    types = {build.texts[n]: t for n, t in build.types.items() if n in build.texts}
    return Converted(graph, kept, lines, tuple(outputs), aliases, tuple(returned), types)


def _returned_again(build: Build, output: ModelOutput, name: str) -> str:
    """Return the text of an input that is returned, or of a value returned twice: a view of it.

    PyTorch returns the tensor itself. Values written into an input, and scalars, are copied.
    """
    type = build.types.get(output.value or "")
    if output.into is not None or type is None or not type.shape:
        return f"set({name})"
    return f"reshape({name}, {size_texts(type.shape)})"


_OUTPUT = ModelNode("output", "output", (), {}, ())


def _alive(lines: Sequence[Line], outputs: Sequence[str]) -> tuple[tuple[Line, ...], set[str]]:
    """Return the lines that outputs need, unused results as `_`, and the names in use."""
    used, kept = set(outputs), list[Line]()
    for line in reversed(lines):
        if used.isdisjoint(line.names):
            continue
        names = tuple(n if n in used else "_" for n in line.names)
        kept.append(replace(line, names=names))
        used.update(line.reads)
    return tuple(reversed(kept)), used | set(outputs)
