"""The inputs that a graph runs on: as recorded, synthetic, or at reduced sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product as cartesian
from typing import Any

from benchmarks.corpus_graph import (
    Example,
    Graph,
    bind,
    define,
    recorded_examples,
    synthetic_examples,
)
from benchmarks.corpus_layouts import settle_layouts
from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.dim import product
from fusec.ir.graph import Fusion
from fusec.parse.dsl import FusionDefinition

SYNTHETIC = (16, 8, 4, 64, 2)
"""Sizes that stand for every unknown extent of a graph without recorded inputs, tried in turn."""
MOST_TRIED = 512
"""Choices of extents, each one that the graph names, that are tried where no such size fits."""
HOLDING_SIZES = ("shape", "new_shape", "end_indices")
MOST_ELEMENTS = 40_000_000
"""Elements of one value up to which both references evaluate a graph whole."""
MOST_TOTAL = 300_000_000
"""Elements of all values together up to which they do."""
LEAST_EXTENT = 64


@dataclass(frozen=True)
class Prepared:
    """A graph with its definition, inputs to run it on, and the fusion that these lead to."""

    graph: Graph
    definition: FusionDefinition
    examples: list[Example]
    fusion: Fusion
    changes: Mapping[str, Any]
    """What differs from what was recorded."""


def prepare(graph: Graph, name: str) -> Prepared:
    """Return the graph with recorded inputs, or synthetic ones of the first size that fits."""
    examples = recorded_examples(graph)
    if examples is not None:
        contiguity, examples, restrided = settle_layouts(graph, examples)
        fd = define(graph, name, contiguity)
        changes = {"restrided": restrided} if restrided else {}
        return Prepared(graph, fd, examples, bind(fd, examples, graph), changes)
    fd = define(graph, name)
    sizes = (graph["synthetic_extent"],) if graph.get("synthetic_extent") else SYNTHETIC
    failure: FusecError | None = None
    for size in sizes:
        examples = synthetic_examples(graph, size, _unified(fd, size))
        try:
            fusion = bind(fd, examples, graph)
        except Unsupported:
            raise
        except FusecError as error:
            failure = failure or error
            continue
        return Prepared(graph, fd, examples, fusion, {"synthetic": size})
    found = _from_constants(graph, fd, sizes[0])
    if found is None:
        assert failure is not None
        raise failure
    examples, fusion = found
    return Prepared(graph, fd, examples, fusion, {"synthetic": "constants of the graph"})


def _from_constants(
    graph: Graph, fd: FusionDefinition, size: int
) -> tuple[list[Example], Fusion] | None:
    """Return inputs whose unknown extents are constants of the graph, and what they lead to."""
    tensors: list[Any] = [e for e in graph["inputs"] if e["kind"] == "tensor"]
    unknown = [(e["id"], axis) for e in tensors for axis, n in enumerate(e["shape"]) if n < 0]
    written = (v for o in graph["ops"] for k, v in o["kwargs"].items() if k in HOLDING_SIZES)
    sizes: set[int] = {
        n for v in written if isinstance(v, list) for n in v if isinstance(n, int) and n > 1
    }
    constants = sorted(sizes, reverse=True)
    if not unknown or len(constants) ** len(unknown) > MOST_TRIED:
        return None
    for extents in cartesian(constants, repeat=len(unknown)):
        chosen = dict(zip(unknown, extents, strict=True))
        shapes = {e["id"]: list[int](e["shape"]) for e in tensors}
        for name, axis in unknown:
            shapes[name][axis] = chosen[name, axis]
        examples = synthetic_examples(graph, size, shapes)
        try:
            return examples, bind(fd, examples, graph)
        except FusecError as error:
            if error.exit_code != 2:
                raise
    return None


def _unified(fd: FusionDefinition, size: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of inputs where the definition fixes some of their unknown extents."""
    try:
        fusion = fd.graph()
    except FusecError:
        return {}
    sizes = dict.fromkeys(fusion.hints, size)
    tensors = (i.value for i in fusion.inputs if not i.value.is_scalar)
    return {v.name: tuple(e.evaluate(sizes) for e in v.shape) for v in tensors}


def elements(fusion: Fusion) -> tuple[int, int]:
    """Return the elements of the largest tensor, and of all together."""
    counts = [product(v.shape).evaluate(fusion.hints) for v in fusion.values if v.shape is not None]
    return max(counts, default=0), sum(counts)


def fits(fusion: Fusion) -> bool:
    """Return whether the references evaluate the fusion whole in reasonable time."""
    largest, total = elements(fusion)
    return largest <= MOST_ELEMENTS and total <= MOST_TOTAL


def reduce_examples(prepared: Prepared) -> Prepared:
    """Halve large unknown extents, each wherever it occurs, until the references can follow.

    An extent that the graph also holds as a constant stays as it is, and so does one whose half
    the definition does not accept.
    """
    graph, fixed = prepared.graph, _constants(prepared.graph)
    examples, fusion = prepared.examples, prepared.fusion
    origin: dict[int, int] = {}
    while not fits(fusion):
        extents = {n for e in examples for n in e.shape or ()} - fixed
        halved = max((n for n in extents if n % 2 == 0 and n >= 2 * LEAST_EXTENT), default=None)
        if halved is None:
            break
        if halved // 2 in extents | fixed:
            # Two sizes must not become one.
            fixed.add(halved)
            continue
        smaller = [_with_extent(e, halved, halved // 2) for e in examples]
        try:
            fusion = bind(prepared.definition, smaller, graph)
        except FusecError:
            fixed.add(halved)
            continue
        examples = smaller
        origin[halved // 2] = origin.pop(halved, halved)
    if not origin:
        return prepared
    reduced = {str(old): new for new, old in origin.items()}
    changes = {**prepared.changes, "reduced": reduced}
    return replace(prepared, examples=examples, fusion=fusion, changes=changes)


def _constants(graph: Graph) -> set[int]:
    found: set[int] = set()

    def collect(value: Any) -> None:
        if isinstance(value, int) and not isinstance(value, bool):
            found.add(value)
        elif isinstance(value, list):
            for item in value:
                collect(item)
        elif isinstance(value, dict):
            for item in value.values():
                collect(item)

    for entry in graph["inputs"]:
        collect(entry.get("shape"))
    for entry in graph["scalars"]:
        collect(entry["value"])
    for entry in graph["ops"]:
        collect([entry["args"], entry["kwargs"]])
    return found


def _with_extent(example: Example, old: int, new: int) -> Example:
    if example.shape is None:
        same = example.value == old and isinstance(example.value, int)
        return replace(example, value=new) if same else example
    if old not in example.shape:
        return example
    shape = tuple(new if n == old else n for n in example.shape)
    strides = list(example.strides)
    before, after = 1, 1
    for axis in sorted(range(len(shape)), key=lambda a: (example.strides[a], -a)):
        stride = example.strides[axis]
        if stride == 0 or example.shape[axis] == 1:
            continue
        # A gap between rows stays in proportion.
        strides[axis] = after * (stride // before) if stride % before == 0 else stride
        before, after = stride * example.shape[axis], strides[axis] * shape[axis]
    return replace(example, shape=shape, strides=tuple(strides), values=None)


def with_scalars(prepared: Prepared) -> Fusion:
    """Return the fusion with the scalars of the examples as defaults."""
    values = {
        e.value.name: x.value
        for e, x in zip(prepared.fusion.given, prepared.examples, strict=True)
        if e.value.is_scalar
    }
    inputs = tuple(
        replace(e, default=values.get(e.value.name, e.default)) for e in prepared.fusion.inputs
    )
    return replace(prepared.fusion, inputs=inputs)


def draw_inputs(prepared: Prepared, seed: int, kind: str = "reals") -> dict[str, Any]:
    """Return random inputs of the shapes, strides and, for integers, range of the examples.

    kind: as of `fusec.run.inputs.random_inputs`.
    """
    import numpy as np

    from fusec.run.inputs import random_input
    from fusec.run.integers import choose

    fusion, inputs = prepared.fusion, dict[str, Any]()
    input_range = (
        choose(with_scalars(prepared), fusion.hints).input_range if kind == "integers" else None
    )
    for entry in (i for i in fusion.inputs if i.generator):
        inputs[entry.value.name] = random_input(fusion, entry, fusion.hints, seed)
    for entry, example in zip(fusion.given, prepared.examples, strict=True):
        value = entry.value
        ranged = entry
        if example.int_range is not None:
            ranged = replace(entry, low=example.int_range[0], high=example.int_range[1])
        drawn = random_input(fusion, ranged, fusion.hints, seed, input_range)
        if value.is_scalar:
            drawn = example.value
        elif example.values is not None:
            values = np.asarray(example.values).astype(value.dtype.numpy)
            if values.shape == drawn.shape:
                drawn = values
        inputs[value.name] = drawn
    return inputs
