"""The lookup key of measured schedules: the structure and the sizes of a segment."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from math import log2
from typing import Any

from fusec.dataclasses import dataclass
from fusec.ir.dim import Dim
from fusec.ir.graph import Const, Fusion, Input, Node, Output, Value

DIGITS = 16
"""Hexadecimal digits of a digest: among a million structures two collide with odds of 1e-8."""

Extents = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Key:
    """A segment without names and sizes, as a digest, and the extents of its tensors.

    inputs, outputs: extents in elements, the inputs in the order in which they are used.
    """

    structure: str
    inputs: Extents
    outputs: Extents

    @property
    def sizes(self) -> str:
        """Return the extents as in files: `4096x8192 8192 -> 4096x8192`."""
        return f"{_text(self.inputs)} -> {_text(self.outputs)}".strip()


def key_of(fusion: Fusion) -> Key:
    """Return the key of a segment at its hint sizes."""
    order = fusion.canonical_order
    used = dict.fromkeys(v for n in order for v in n.inputs if v in fusion.input_of)
    number = {v: k for k, v in enumerate(used)}
    nodes: list[Hashable] = []
    for node in order:
        nodes.append(_node(node, number))
        for value in node.outputs:
            number[value] = len(number)
    inputs = [_input(fusion.input_of[v], fusion.hints) for v in used]
    outputs = [_output(o, fusion, number) for o in fusion.outputs]
    kept = (sorted(fusion.as_defined),) if fusion.as_defined else ()
    digest = sha256(repr((inputs, nodes, outputs, *kept)).encode()).hexdigest()[:DIGITS]
    return Key(
        digest,
        tuple(_extents(v, fusion.hints) for v in used if not v.is_scalar),
        tuple(_extents(o.value, fusion.hints) for o in fusion.outputs if not o.value.is_scalar),
    )


def distance(sizes: str, other: str) -> float:
    """Return the distance of sizes of one structure: doublings of extents, each pair once."""
    pairs = zip(_numbers(sizes), _numbers(other), strict=True)
    return sum(abs(log2(max(a, 1) / max(b, 1))) for a, b in dict.fromkeys(pairs))


def _numbers(sizes: str) -> Iterator[int]:
    for tensor in sizes.replace("->", " ").split():
        yield from (int(extent) for extent in tensor.split("x") if extent != "scalar")


def _text(tensors: Extents) -> str:
    return " ".join("x".join(map(str, extents)) or "scalar" for extents in tensors)


def _extents(value: Value, hints: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(e.evaluate(hints) for e in value.shape)


def _kind(value: Value, hints: Mapping[str, int]) -> Hashable:
    """Return the type of a value without sizes; extents of 1 are kept, since they broadcast."""
    shape = None if value.is_scalar else tuple(e == 1 for e in _extents(value, hints))
    return value.dtype.name, shape


def _input(entry: Input, hints: Mapping[str, int]) -> Hashable:
    """Return the key of an input: the order of its dims in memory, and where it has gaps."""
    order, dense, step = _layout(_extents(entry.value, hints), entry.strides, hints)
    return _kind(entry.value, hints), order, dense, step, entry.on_cpu


def _layout(
    extents: Sequence[int], steps: Iterable[Dim], hints: Mapping[str, int]
) -> tuple[list[int], list[bool], int]:
    """Return the order of dims in memory, which pairs are contiguous, and the last stride."""
    strides = [s.evaluate(hints) for s in steps]
    order = sorted(range(len(strides)), key=lambda k: -strides[k])
    dense = [strides[a] == strides[b] * extents[b] for a, b in pairwise(order)]
    return order, dense, min(strides[order[-1]], 2) if order else 0


def _node(node: Node, number: Mapping[Value, int]) -> Hashable:
    operands = [o.dtype.name if isinstance(o, Const) else number[o] for o in node.operands]
    attributes = [(k, _without_sizes(v)) for k, v in sorted(node.attributes.items())]
    results = [(v.dtype.name, None if v.is_scalar else v.rank) for v in node.outputs]
    return node.op.name, operands, attributes, results


def _without_sizes(value: Any) -> Hashable:
    if isinstance(value, Dim):
        return "size"
    if isinstance(value, (list, tuple)):
        return tuple(map(_without_sizes, value))  # pyright: ignore[reportUnknownArgumentType]
    return str(value)


def _output(output: Output, fusion: Fusion, number: Mapping[Value, int]) -> Hashable:
    target = fusion.effects.into.get(output.value)
    written = None if target is None else number.get(target.value, "unused")
    place = number.get(output.value, "input")
    found = place, _kind(output.value, fusion.hints), output.stride_order, written
    if output.strides is None:
        return found
    return *found, *_layout(_extents(output.value, fusion.hints), output.strides, fusion.hints)
