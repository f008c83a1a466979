"""Declared contiguity against recorded strides, where the two do not say the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.corpus_graph import Contiguity, Example, Graph, slow_to_fast


def settle_layouts(
    graph: Graph, examples: Sequence[Example]
) -> tuple[dict[str, Contiguity], list[Example], list[str]]:
    """Return contiguity and examples that agree, and the inputs whose strides had to change.

    Contiguity is listed slowest dim first; some recorders list it in the order of the shape. A dim
    declared broadcast that was recorded with a stride gets stride 0.
    """
    contiguity: dict[str, Contiguity] = {}
    restrided: list[str] = []
    settled: list[Example] = []
    rest = iter(examples)
    for entry in graph["inputs"]:
        count = len(entry.get("elements", [None]))
        given = [e for _, e in zip(range(count), rest, strict=False)]
        if entry["kind"] != "tensor" or not given or given[0].shape is None:
            settled += given
            continue
        example = given[0]
        assert example.shape is not None
        axes = slow_to_fast(entry)
        own: list[bool | None] = list(entry["contiguity"])
        if len(axes) == len(own) == len(example.shape) and not _fits(example, axes, own):
            by_shape = [own[axis] for axis in axes]
            if _fits(example, axes, by_shape):
                contiguity[entry["id"]] = by_shape
            else:
                changed = _with_broadcasts(example, axes, own)
                restrided += [entry["id"]] if changed != example else []
                example = changed
        settled.append(example)
    return contiguity, settled, restrided


def _fits(example: Example, axes: Sequence[int], contiguity: Contiguity) -> bool:
    expected = 1
    assert example.shape is not None
    for axis, declared in reversed(list(zip(axes, contiguity, strict=True))):
        extent, stride = example.shape[axis], example.strides[axis]
        if declared is None:
            if extent > 1 and stride != 0:
                return False
            continue
        if declared and extent > 1 and stride != expected:
            return False
        expected = stride * extent
    return True


def _with_broadcasts(example: Example, axes: Sequence[int], contiguity: Contiguity) -> Example:
    broadcast = {axis for axis, declared in zip(axes, contiguity, strict=True) if declared is None}
    strides = (0 if axis in broadcast else s for axis, s in enumerate(example.strides))
    return replace(example, strides=tuple(strides))
