"""Reads the text of host programs, letter by letter, and checks that it holds together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

_AXIS = re.compile(r"(iS|bS|iStreamIdx)(\d+)\{(.+)\}")
_TENSOR = re.compile(r"T(\d+)_([gl])_([\w:<>]+)\[(.*)\]")
_ALLOCATE = re.compile(
    r"(?P<target>T.*?) = ALLOCATE\(buffer=(?P<buffer>T.*), mem_type=global, size=(?P<size>.+), "
    r"zero_init=false, resets_to_zero=false\)"
)
_PATTERNS = {
    "deallocate": re.compile(r"DEALLOCATE\(buffer=(?P<buffer>T.*)\)"),
    "select": re.compile(
        r"(?P<target>T.*?) = HirAliasSelect\( (?P<source>T.*), axis = (?P<axis>\w+\{.*?\})"
        r"(?:, parts = (?P<parts>.+))?, index = (?P<index>.+) \)"
    ),
    "alias": re.compile(
        r"(?P<target>T.*?) = HirAlias\( (?P<source>T.*), offset = (?P<offset>.+), "
        r"strides = \{(?P<strides>.*)\} \)"
    ),
    "set": re.compile(r"(?P<target>T.*?) = Set\( (?P<source>T.*), cache_op=Streaming \)"),
    "copy": re.compile(r"(?P<target>T.*?) = Copy\( (?P<source>T.*) \)"),
    "launch": re.compile(
        r"LaunchKernel\( Group ID: (?P<group>\d+), Inputs: \{(?P<inputs>.*)\}, "
        r"Outputs: \{(?P<outputs>.*)\} \)"
    ),
    "get": re.compile(r"GetCurrentStream into Stream (?P<stream>\d+)"),
    "set_stream": re.compile(r"SetCurrentStream to Stream (?P<stream>\d+|\( .* \)|StreamIdx)"),
    "synchronize": re.compile(r"Synchronize Stream (?P<stream>\d+|\( .* \)|StreamIdx)"),
    "collective": re.compile(
        r"Communication (?P<number>\d+) \(type=(?P<type>Allgather|Allreduce|ReduceScatter|AllToAll"
        r"|Broadcast), axis=(?P<axis>\w+), ranks=(?P<ranks>\d+)(?:, op=(?P<op>sum|prod|max|min))?"
        r"(?:, root=(?P<root>[^T]+?))?(?:, to=\{(?P<to>[\d, ]+)\})?"
        r", input=(?P<source>T.*), output=(?P<target>T.*)\)"
    ),
    "p2p": re.compile(
        r"P2PCommunication (?P<number>\d+) \(type=(?P<type>send|recv), axis=(?P<axis>\w+), "
        r"peer=(?P<peer>.+), buffer=(?P<buffer>T.*)\)"
    ),
    "share": re.compile(
        r"Share\(axis=(?P<axis>\w+), ranks=(?P<ranks>\d+), input=(?P<source>T.*), "
        r"views=\{(?P<views>.*)\}\)"
    ),
    "unshare": re.compile(
        r"Unshare\(axis=(?P<axis>\w+), ranks=(?P<ranks>\d+), input=(?P<source>T.*)\)"
    ),
    "wait": re.compile(r"Wait (?P<exchange>(?:P2P)?Communication \d+)"),
    "allocate": _ALLOCATE,
}
_FOR = re.compile(r"FOR StreamIdx (?:in (?P<axis>iStreamIdx\d+\{.+\})|from 0 to (?P<count>.+)):")
_TENSORS = ("target", "source", "buffer")


@dataclass(frozen=True)
class Statement:
    """A line by its kind and what it names; a loop has a body."""

    kind: str
    parts: dict[str, str]
    body: tuple[Statement, ...] = ()

    def flat(self) -> Iterator[Statement]:
        """Yield the statement and all in it."""
        yield self
        for inner in self.body:
            yield from inner.flat()


@dataclass
class Container:
    """A program: its ends, its statements, and each tensor's text by its number."""

    inputs: list[str]
    outputs: list[str]
    body: tuple[Statement, ...]
    tensors: dict[int, str] = field(default_factory=dict[int, str])
    axes: dict[int, str] = field(default_factory=dict[int, str])

    def flat(self) -> Iterator[Statement]:
        """Yield all statements."""
        for statement in self.body:
            yield from statement.flat()


def parse(text: str) -> Container:
    """Return the program of a text; an AssertionError says what does not hold."""
    lines = text.splitlines()
    head = re.fullmatch(r"%HostIrContainer \{ \((.*)\) -> \((.*)\) :", lines[0])
    assert head is not None, lines[0]
    assert lines[-1] == "} // %HostIrContainer"
    assert text.endswith("\n")
    body, rest = _block(lines[1:-1], 1)
    assert rest == []
    found = Container(split(head[1]), split(head[2]), body)
    for name in (*found.inputs, *found.outputs):
        _note(found, name)
    for statement in found.flat():
        _check(found, statement)
    return found


def split(text: str) -> list[str]:
    """Return the tensors and scalars of a list."""
    found, depth, begin = list[str](), 0, 0
    for k, letter in enumerate(text):
        depth += (letter in "[{(<") - (letter in "]})>")
        if letter == "," and depth == 0:
            found.append(text[begin:k].strip())
            begin = k + 1
    return [*found, text[begin:].strip()] if text else []


def _block(lines: list[str], depth: int) -> tuple[tuple[Statement, ...], list[str]]:
    found: list[Statement] = []
    margin = "  " * depth
    while lines and lines[0].startswith(margin):
        line, lines = lines[0].removeprefix(margin), lines[1:]
        assert not line.startswith(" "), line
        loop = _FOR.fullmatch(line)
        if loop is not None:
            body, lines = _block(lines, depth + 1)
            found.append(Statement("for", _named(loop), body))
            continue
        matches = [(kind, m) for kind, p in _PATTERNS.items() if (m := p.fullmatch(line))]
        assert len(matches) == 1, (line, [kind for kind, _ in matches])
        kind, match = matches[0]
        found.append(Statement(kind, _named(match)))
    return tuple(found), lines


def _named(match: re.Match[str]) -> dict[str, str]:
    return {key: part for key, part in match.groupdict().items() if part is not None}


def _check(container: Container, statement: Statement) -> None:
    """Check that tensors are printed alike wherever they stand, and axes are theirs."""
    parts = statement.parts
    for key in _TENSORS:
        if key in parts:
            _note(container, parts[key])
    lists = (split(parts.get(key, "")) for key in ("inputs", "outputs", "views"))
    for name in chain.from_iterable(lists):
        _note(container, name)
    if statement.kind == "allocate":
        assert parts["target"] == parts["buffer"]
    if statement.kind == "select":
        assert parts["axis"] in parts["source"]
    if statement.kind == "for" and "axis" in parts:
        number = int(_AXIS.fullmatch(parts["axis"])[2])  # type: ignore[index]
        assert container.axes.setdefault(number, parts["axis"]) == parts["axis"]


def _note(container: Container, text: str) -> None:
    match = _TENSOR.fullmatch(text)
    if match is None:
        assert re.fullmatch(r"[bdfic]\d+", text), text
        return
    assert container.tensors.setdefault(int(match[1]), text) == text
    for axis in split(match[4]):
        found = _AXIS.fullmatch(axis)
        assert found is not None, axis
        known = container.axes.setdefault(int(found[2]), axis)
        assert known == axis, f"{known} and {axis}"
