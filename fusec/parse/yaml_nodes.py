"""YAML as nodes with spans: 1.2 scalars, no tags or duplicate keys, bounded aliases and depth."""

from __future__ import annotations

import re
from collections.abc import Sequence

import yaml

from fusec.codes.document import DUPLICATE_KEY, INVALID_YAML
from fusec.dataclasses import dataclass, field
from fusec.diagnostics import FusecError, Span
from fusec.foreign import yaml_events
from fusec.parse.source import Source

MAX_DEPTH = 32
MAX_NODES = 1_000_000
_PROPERTY = re.compile(r"[&!][^\s,\[\]{}]*\s+")
_BLOCK_HEADER = re.compile(r"[|>][^\n]*(\n|$)")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
_WORDS: dict[str, bool | float | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    ".inf": float("inf"), "+.inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan"),
    "inf": float("inf"), "-inf": float("-inf"), "nan": float("nan"),
}  # fmt: skip


@dataclass(frozen=True)
class Scalar:
    """A scalar: its text after YAML's unquoting, and its position in the source."""

    source: Source = field(repr=False)
    text: str
    plain: bool
    start: int
    end: int
    size: int = 1

    @property
    def span(self) -> Span:
        """Return the span of the scalar, quotes included."""
        return self.source.span(self.start, self.end)

    @property
    def body(self) -> tuple[int, int]:
        """Return the position of the text in the source, without quotes and block headers."""
        first = self.source.text[self.start : self.start + 1]
        if not self.plain and first in ("'", '"'):
            return self.start + 1, self.end - 1
        if not self.plain and first and first in "|>":
            header = _BLOCK_HEADER.match(self.source.text, self.start)
            return (header.end() if header else self.start), self.end
        return self.start, self.end

    @property
    def value(self) -> bool | int | float | str | None:
        """Return the value under the YAML 1.2 core schema; quoted scalars are strings."""
        if not self.plain:
            return self.text
        if self.text in _WORDS:
            return _WORDS[self.text]
        # The reader checks very long digits: int() rejects more than 4300 of them.
        if _INT.fullmatch(self.text) and len(self.text) <= 4000:
            return int(self.text, 0) if self.text[:2] in ("0o", "0x") else int(self.text)
        return float(self.text) if re.fullmatch(_FLOAT, self.text) else self.text


@dataclass(frozen=True)
class Listing:
    """A sequence."""

    source: Source = field(repr=False)
    items: tuple[YamlNode, ...]
    flow: bool
    start: int
    end: int
    size: int

    @property
    def span(self) -> Span:
        """Return the span of the first line."""
        return self.source.span(self.start, self.end)


@dataclass(frozen=True)
class Entry:
    """A key and its value."""

    key: Scalar
    value: YamlNode


@dataclass(frozen=True)
class Mapping:
    """A mapping, in the order of the file."""

    source: Source = field(repr=False)
    entries: tuple[Entry, ...]
    flow: bool
    start: int
    end: int
    size: int

    @property
    def span(self) -> Span:
        """Return the span of the first line."""
        return self.source.span(self.start, self.end)

    def get(self, key: str) -> YamlNode | None:
        """Return the value under `key`, or None."""
        return next((e.value for e in self.entries if e.key.text == key), None)


YamlNode = Scalar | Listing | Mapping


@dataclass
class _Open:
    event: yaml.CollectionStartEvent
    children: list[YamlNode]


def parse_yaml(source: Source) -> YamlNode:
    """Return the only document of `source`; FusecError on bad YAML describes how to fix it."""
    try:
        return _build(source)
    except yaml.MarkedYAMLError as problem:
        from fusec.parse.traps import explain

        raise explain(source, problem).coded(INVALID_YAML) from None
    except yaml.YAMLError as problem:
        raise FusecError(f"`{source.file}` is not YAML: {problem}") from None


def _build(source: Source) -> YamlNode:
    anchors: dict[str, YamlNode | None] = {}
    stack: list[_Open] = []
    root: YamlNode | None = None
    for event in yaml_events(source.text, source.file):
        if isinstance(event, yaml.DocumentStartEvent) and root is not None:
            raise FusecError(
                "a second document begins here",
                span=source.span(event.start_mark.index, event.end_mark.index),
                help="a fusion file has one fusion: remove the `---`, or split the file",
            )
        if isinstance(event, yaml.CollectionStartEvent):
            _check_properties(source, event, anchors, None)
            if len(stack) >= MAX_DEPTH:
                raise FusecError(
                    f"YAML nested deeper than {MAX_DEPTH} levels",
                    span=source.span(event.start_mark.index),
                )
            stack.append(_Open(event, []))
            continue
        if isinstance(event, yaml.ScalarEvent):
            node: YamlNode = _scalar(source, event)
            _check_properties(source, event, anchors, node)
        elif isinstance(event, yaml.CollectionEndEvent):
            opened = stack.pop()
            node = _collection(source, opened, event.end_mark.index)
            if opened.event.anchor:
                anchors[opened.event.anchor] = node
        elif isinstance(event, yaml.AliasEvent):
            node = _alias(source, event, anchors)
        else:
            continue
        if stack:
            stack[-1].children.append(node)
        else:
            root = node
    if root is None:
        raise FusecError(f"`{source.file}` has no fusion, only comments")
    return root


def _scalar(source: Source, event: yaml.ScalarEvent) -> Scalar:
    start, end = event.start_mark.index, event.end_mark.index
    while (found := _PROPERTY.match(source.text, start, end)) is not None:
        start = found.end()
    return Scalar(source, event.value, event.style in (None, ""), start, end)


def _collection(source: Source, opened: _Open, end: int) -> YamlNode:
    start, children = opened.event.start_mark.index, opened.children
    flow = bool(opened.event.flow_style)
    size = 1 + sum(c.size for c in children)
    if size > MAX_NODES:
        raise FusecError(
            f"YAML aliases expand to more than {MAX_NODES} nodes", span=source.span(start)
        )
    if isinstance(opened.event, yaml.SequenceStartEvent):
        return Listing(source, tuple(children), flow, start, end, size)
    return Mapping(source, _entries(children), flow, start, end, size)


def _entries(children: Sequence[YamlNode]) -> tuple[Entry, ...]:
    entries: dict[str, Entry] = {}
    for key, value in zip(children[::2], children[1::2], strict=True):
        if not isinstance(key, Scalar):
            raise FusecError("a key must be a name, not a list or mapping", span=key.span)
        first = entries.get(key.text)
        if first is not None:
            raise FusecError(
                f"duplicate key `{key.text}`",
                span=key.span,
                notes=(f"first given at {first.key.span.place()}",),
                help="keep one of the two"
                if isinstance(value, Scalar)
                else f"move its entries under the first `{key.text}:` and remove this line",
                code=DUPLICATE_KEY,
            )
        entries[key.text] = Entry(key, value)
    return tuple(entries.values())


def _check_properties(
    source: Source,
    event: yaml.ScalarEvent | yaml.CollectionStartEvent,
    anchors: dict[str, YamlNode | None],
    node: YamlNode | None,
) -> None:
    if event.tag is not None:
        raise FusecError(
            f"YAML tag `{event.tag}`",
            span=source.span(event.start_mark.index, event.end_mark.index),
            help="fusion files have no tags: remove it",
        )
    if event.anchor is not None:
        anchors[event.anchor] = node  # None while the collection is open: a use inside is recursive


def _alias(source: Source, event: yaml.AliasEvent, anchors: dict[str, YamlNode | None]) -> YamlNode:
    span = source.span(event.start_mark.index, event.end_mark.index)
    if event.anchor not in anchors:
        known = (
            ", ".join(f"`&{name}`" for name in anchors) or f"none; write `&{event.anchor}` first"
        )
        raise FusecError(
            f"undefined YAML alias `*{event.anchor}`",
            span=span,
            help=f"anchors before it: {known}",
        )
    node = anchors[event.anchor]
    if node is None:
        raise FusecError(f"YAML alias `*{event.anchor}` contains itself", span=span)
    return node
