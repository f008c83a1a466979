"""Reads nvFuser's `Segmented_Fusion` dumps, of June 2024 and of today, and checks them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TENSOR = re.compile(r"(T\d+)_(?:g|l|s|t|sym)(?:_\w+?)?\[ ?(.*?) ?\]")
_ID = re.compile(r"([irbsnv?])S(\d+)\{(.*)\}\Z")
_SCALAR = re.compile(r"\b([bdfic]\d+)\b(?![\w(])")
_NUMBERS = re.compile(r"(\w+)\{(\d+(?:, \d+)*)\}(?: \(merged\))?")
DTYPES = {
    "bool", "double", "float", "__half", "__bfloat", "__e4m3", "__e5m2", "int", "int64_t", "int8_t",
    "int16_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "nvfuser_index_t",
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """`T3_g[ iS5{i0}, rS6{1024} ]` by its parts."""

    name: str
    ids: tuple[str, ...]

    def __post_init__(self) -> None:
        for text in self.ids:
            assert _ID.match(text), f"{text!r} is no iteration domain"


@dataclass(frozen=True)
class Expression:
    """An expression: its number, what it makes and what it reads."""

    number: int
    text: str
    results: tuple[Tensor, ...]
    operands: tuple[Tensor, ...]
    scalar: str | None = None
    scalar_operands: tuple[str, ...] = ()


@dataclass
class Group:
    """A group with its details."""

    numbers: tuple[int, ...]
    label: str
    scheduler: str = ""
    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    expressions: list[Expression] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class Edge:
    """An edge between two groups, by their numbers."""

    producer: tuple[int, ...]
    consumer: tuple[int, ...]
    value: Tensor


@dataclass(frozen=True)
class Dump:
    """A whole dump."""

    groups: list[Group]
    edges: list[Edge]


def parse(text: str) -> Dump:
    """Return the first dump in a text."""
    text = text[text.index("Segmented_Fusion{") :]
    text = text[: text.index("} //Segmented_Fusion")]
    head, details = text.split("group details:\n")
    groups_text, edges_text = head.split("edges:", 1)
    groups = [
        Group(_numbers(m.group(2)), m.group(1))
        for m in _NUMBERS.finditer(groups_text.split("groups:", 1)[1])
    ]
    edges = [_edge(e) for e in re.findall(r"e\{ (.*?\)) \}", edges_text, re.DOTALL)]
    blocks = re.findall(r"^g\{(.*?)^\}$", details, re.DOTALL | re.MULTILINE)
    assert len(blocks) == len(groups), f"{len(groups)} groups, {len(blocks)} details"
    for group, block in zip(groups, blocks, strict=True):
        _detail(group, block)
    return Dump(groups, edges)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(", "))


def _tensor(match: re.Match[str]) -> Tensor:
    ids = tuple(i for i in re.split(r", (?=[irbsnv?]S\d+\{)", match.group(2)) if i)
    return Tensor(match.group(1), ids)


def tensors(text: str) -> tuple[Tensor, ...]:
    """Return the tensors of a text in order."""
    return tuple(_tensor(m) for m in _TENSOR.finditer(text))


def _edge(text: str) -> Edge:
    split = text.rindex("(T")
    ends = _NUMBERS.findall(text[:split])
    (value,) = tensors(text[split:])
    assert len(ends) == 2, text
    return Edge(_numbers(ends[0][1]), _numbers(ends[1][1]), value)


def _detail(group: Group, block: str) -> None:
    head, rest = block.split("outputs:", 1)
    group.scheduler = head.split(")", 1)[0].lstrip("(")
    _values(group, group.inputs, head.split("inputs:", 1)[1])
    outputs, expressions = rest.split("\n\n", 1)
    _values(group, group.outputs, outputs)
    for body, number in re.findall(r"(.+?)^\((\d+)\)$", expressions, re.DOTALL | re.MULTILINE):
        group.expressions.append(_expression(int(number), body.strip("\n")))
    leftover = re.sub(r".+?^\(\d+\)$", "", expressions, flags=re.DOTALL | re.MULTILINE)
    assert not leftover.strip(), f"unread: {leftover!r}"


def _values(group: Group, into: dict[str, str], text: str) -> None:
    for line in text.strip().splitlines():
        tensor = _TENSOR.search(line)
        dtype = line.split()[-1]
        assert dtype in DTYPES, f"{dtype!r} is no element type"
        if tensor is None:
            into[line.split()[0]] = dtype
        else:
            into[tensor.group(1)] = dtype
            group.tensors.append(_tensor(tensor))


def _expression(number: int, text: str) -> Expression:
    left, right = re.split(r"\s+= ", text, maxsplit=1)
    results, operands = tensors(left), tensors(right)
    # Extents stand in braces: symbols that no group lists.
    bare = re.sub(r"\{[^{}]*\}", "", _TENSOR.sub("", right))
    scalars = tuple(_SCALAR.findall(bare))
    scalar = None if results else left.strip()
    return Expression(number, text, results, operands, scalar, scalars)


def check(dump: Dump) -> None:
    """Assert that groups, edges and details of a dump agree with each other."""
    by_numbers = {g.numbers: g for g in dump.groups}
    assert len(by_numbers) == len(dump.groups)
    ids: dict[str, tuple[str, ...]] = {}
    maker: dict[str, tuple[int, str]] = {}
    # Extents are symbols that no group makes or lists.
    listed_scalars = {n for g in dump.groups for n in g.inputs} | {
        e.scalar for g in dump.groups for e in g.expressions
    }
    for group in dump.groups:
        listed = sorted(e.number for e in group.expressions)
        assert listed == list(group.numbers), f"{group.numbers}: {listed} are listed"
        known = set(group.inputs)
        for expression in group.expressions:
            for tensor in expression.operands:
                assert tensor.name in known, f"({expression.number}) reads {tensor.name} too early"
            for scalar in listed_scalars.intersection(expression.scalar_operands):
                assert scalar in known, f"({expression.number}) reads {scalar} too early"
            known |= {t.name for t in expression.results}
            if expression.scalar is not None:
                known.add(expression.scalar)
            for tensor in expression.results:
                assert tensor.name not in group.inputs, f"{tensor.name} is an input and made"
                made = (expression.number, re.sub(r"_[gl](?=[_\[])", "", expression.text))
                assert maker.setdefault(tensor.name, made) == made, f"two makers of {tensor.name}"
            for tensor in (*expression.results, *expression.operands):
                assert ids.setdefault(tensor.name, tensor.ids) == tensor.ids, tensor
        for tensor in group.tensors:
            assert ids.setdefault(tensor.name, tensor.ids) == tensor.ids, tensor
        made_here = {t.name for e in group.expressions for t in e.results}
        assert set(group.outputs) <= made_here, "an output is not made"
        read = {t.name for e in group.expressions for t in e.operands}
        scalars = {s for e in group.expressions for s in e.scalar_operands}
        assert set(group.inputs) <= read | scalars, "an input is not read"
    for edge in dump.edges:
        assert ids[edge.value.name] == edge.value.ids, edge.value
    crossing = {(e.producer, e.consumer, e.value.name) for e in dump.edges}
    assert len(crossing) == len(dump.edges), "an edge is listed twice"
    for producer, consumer, name in crossing:
        assert name in by_numbers[producer].outputs, f"{name} is no output of its producer"
        assert name in by_numbers[consumer].inputs, f"{name} is no input of its consumer"
    owner = {name: g.numbers for g in dump.groups for name in g.outputs}
    needed = {
        (owner[name], g.numbers, name) for g in dump.groups for name in g.inputs if name in owner
    }
    assert needed == crossing, f"edges missing: {needed - crossing}"
