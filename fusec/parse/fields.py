"""Checked access to YAML nodes; errors say what was found, what was expected, and where."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import takewhile

from fusec.codes.document import UNKNOWN_FIELD, WRONG_NODE
from fusec.diagnostics import Diagnostic, FusecError, Span, Unsupported
from fusec.parse.scope import CUTOFF, Skip, near
from fusec.parse.yaml_nodes import Listing, Mapping, Scalar, YamlNode

MAX_ERRORS = 20


_OTHER_FIELDS = {
    "return": "outputs", "returns": "outputs", "results": "outputs", "body": "ops",
    "operations": "ops", "nodes": "ops", "graph": "ops", "args": "inputs", "arguments": "inputs",
    "parameters": "inputs", "tensors": "inputs", "symbols": "dims", "sizes": "dims",
    "shapes": "dims", "name": "fusion", "kernel": "fusion", "description": "doc",
    "dtype": "type", "shape": "type", "size": "default", "value": "default",
    "hint": "default", "max": "default", "divisible_by": "multiple_of", "align": "multiple_of",
    "layout": "strides",
}  # fmt: skip
"""Names of a file's fields in other formats."""


_FIELD_CUTOFF = 0.7
"""Minimum similarity for suggesting a field, from 0 to 1."""


class Problems:
    """Collects errors, so that one run reports many."""

    def __init__(self) -> None:
        """Start without errors."""
        self._errors: list[FusecError] = []

    @contextmanager
    def collect(
        self, span: Span | None = None, then: Callable[[], None] | None = None
    ) -> Generator[None]:
        """Collect an error raised inside, at `span` if it has none, and continue after `then`."""
        try:
            yield
            return
        except Skip:
            pass
        except FusecError as error:
            self._errors.append(error.at(span))
        if then is not None:
            then()
        if len(self._errors) >= MAX_ERRORS:
            self.check()

    @property
    def spans(self) -> Sequence[Span]:
        """Return the spans of the errors that have one."""
        return [e.diagnostic.span for e in self._errors if e.diagnostic.span is not None]

    def check(self) -> None:
        """Raise the collected errors, invalid input before what is unsupported."""
        if not self._errors:
            return
        self._errors.sort(key=_line_of)
        first = next((e for e in self._errors if not isinstance(e, Unsupported)), self._errors[0])
        rest: list[Diagnostic] = []
        for error in self._errors:
            if error is not first:
                rest.append(error.diagnostic)
            rest.extend(error.more)
        first.more = tuple(rest)
        raise first


def _line_of(error: FusecError) -> int:
    """Return the line of an error, to sort by file order; errors without a span come last."""
    return sys.maxsize if error.diagnostic.span is None else error.diagnostic.span.line


def kind_of(node: YamlNode) -> str:
    """Return the kind of a node, in words."""
    if isinstance(node, Listing):
        return "a list"
    if isinstance(node, Mapping):
        return "a mapping"
    value = node.value
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"`{node.text}` (a bool)"
    return f"`{node.text.splitlines()[0] if node.text else ''}`"


def wrong(node: YamlNode, expected: str, help: str | None = None) -> FusecError:
    """Return the error for a node of an unexpected kind."""
    return FusecError(
        f"expected {expected}, found {kind_of(node)}", span=node.span, help=help, code=WRONG_NODE
    )


def mapping(node: YamlNode, what: str, help: str | None = None) -> Mapping:
    """Return a mapping node."""
    if not isinstance(node, Mapping):
        raise wrong(node, what, help)
    return node


def listing(node: YamlNode, what: str, help: str | None = None) -> Listing:
    """Return a list node."""
    if not isinstance(node, Listing):
        raise wrong(node, what, help)
    return node


def text(node: YamlNode, what: str) -> str:
    """Return the text of a scalar that is not empty."""
    if not isinstance(node, Scalar) or not node.text.strip():
        raise wrong(node, what)
    return node.text


def integer(node: YamlNode, what: str) -> int:
    """Return an integer that fits into 64 bits."""
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(node, what)
    if not -(2**63) <= value < 2**63:
        raise FusecError(f"{what}: the number does not fit in 64 bits", span=node.span)
    return value


def number(node: YamlNode, what: str) -> float:
    """Return a number as a float."""
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong(node, what)
    try:
        return float(value)
    except OverflowError:
        raise FusecError(f"{what}: the number is too large", span=node.span) from None


def boolean(node: YamlNode, what: str) -> bool:
    """Return a bool."""
    value = node.value if isinstance(node, Scalar) else None
    if not isinstance(value, bool):
        raise wrong(node, what, "bools are written `true` and `false`")
    return value


def did_you_mean(name: str, known: Sequence[str], cutoff: float = CUTOFF) -> str | None:
    """Return a question that suggests the nearest of `known`, if one is near."""
    nearest = near(name, known, cutoff)
    return None if nearest is None else f"did you mean `{nearest}`?"


def is_empty(node: YamlNode) -> bool:
    """Return whether a field has no value."""
    return isinstance(node, Scalar) and node.plain and node.value is None


def _not_indented(node: Mapping, known: Sequence[str], sections: Sequence[str]) -> None:
    """Raise FusecError for entries that are below an empty section instead of inside it."""
    for place, entry in enumerate(node.entries):
        if entry.key.text not in sections or not is_empty(entry.value):
            continue
        rest = (e.key for e in node.entries[place + 1 :])
        own = list(takewhile(lambda key: key.text not in known, rest))
        if own:
            names = " and ".join(f"`{key.text}`" for key in own[:3])
            verb = "is" if len(own) == 1 else "are"
            raise FusecError(
                f"`{entry.key.text}:` is empty, and {names} {verb} below it",
                span=own[0].span,
                help=f"indent {'it' if len(own) == 1 else 'them'} under `{entry.key.text}:`, by "
                "2 spaces",
                code=UNKNOWN_FIELD,
            )


def check_fields(
    node: Mapping, known: Sequence[str], where: str, sections: Sequence[str] = ()
) -> None:
    """Raise FusecError if keys of `node` are not among `known`; sections: those with entries."""
    problems = Problems()
    _not_indented(node, known, sections)
    for entry in node.entries:
        if entry.key.text in known:
            continue
        meant = _OTHER_FIELDS.get(entry.key.text)
        near = f"did you mean `{meant}`?" if meant in known else None
        guess = did_you_mean(entry.key.text, known, _FIELD_CUTOFF)
        help = near or guess or "known: " + ", ".join(known)
        with problems.collect():
            raise FusecError(
                f"unknown field `{entry.key.text}` in {where}",
                span=entry.key.span,
                help=help,
                code=UNKNOWN_FIELD,
            )
    problems.check()
