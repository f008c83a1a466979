"""The tokens, statements and functions of kernels and device headers: as much C++ as they use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
TOKEN = re.compile(
    r'(?P<word>[A-Za-z_]\w*)|(?P<number>\d[\w.]*(?:[eE][+-]?\d+f?)?|\.\d+\w*)|(?P<string>"[^"\n]*")'
    r"|(?P<sign>\.\.\.|::|->|\+\+|--|&&|\|\||<<=|<<|<=|>=|==|!=|[-+*/%&|^]=|[^\s])"
)
QUALIFIERS = frozenset(
    [
        "const",
        "constexpr",
        "static",
        "extern",
        "inline",
        "volatile",
        "unsigned",
        "signed",
        "typename",
        "__restrict__",
        "__shared__",
        "__grid_constant__",
        "__device__",
        "__host__",
        "__forceinline__",
        "long",
        "short",
    ]
)
LEVELS = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="),
    ("<<", ">>"), ("+", "-"), ("*", "/", "%"),
)  # fmt: skip
ASSIGNMENTS = frozenset(("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="))


class SyntaxProblem(Exception):
    """Text that this parser does not know."""


class Token(NamedTuple):
    """A word, number, string or sign and where it stands."""

    text: str
    line: int
    start: int


@dataclass
class Node:
    """An expression or statement. `text` is its operator or name, `arguments` its template's.

    base: the struct that a struct derives from.
    """

    kind: str
    line: int
    text: str = ""
    kids: list[Node] = field(default_factory=list)
    arguments: list[list[Token]] | None = None
    declared: Declared | None = None
    parameters: list[Parameter] = field(default_factory=list)
    base: str = ""

    @cached_property
    def words(self) -> frozenset[str]:
        """All names in it; assigned ones are in `assigned`."""
        own = {self.text} | {t.text for a in self.arguments or () for t in a}
        if self.declared:
            own.add(self.declared.name)
        return frozenset(own).union(*(k.words for k in self.kids))

    @cached_property
    def returns(self) -> bool:
        """Whether a return is in it."""
        return self.kind == "return" or any(k.returns for k in self.kids)

    @cached_property
    def assigned(self) -> frozenset[str]:
        """The variables that it assigns, without those that it declares."""
        own = frozenset[str]()
        if self.kind in ("assign", "step"):
            target = self.kids[0]
            while target.kind in ("index", "member") and target.kids:
                target = target.kids[0]
            own = frozenset((target.text,))
        return own.union(*(k.assigned for k in self.kids))


@dataclass(frozen=True)
class Declared:
    """A declared variable: its type's text, its array extents (`Node`s), and how it is bound."""

    name: str
    type: str
    extents: tuple[Node, ...] = ()
    is_reference: bool = False
    is_shared: bool = False


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function."""

    name: str
    type: str
    is_reference: bool
    is_pointer: bool
    is_restricted: bool
    is_pack: bool


@dataclass
class Function:
    """A function; `template` are the names of its template parameters, `kinds` class or int."""

    name: str
    line: int
    template: list[tuple[str, list[Token] | None]]
    parameters: list[Parameter]
    tokens: list[Token]  # of the body, with its braces
    file: str = ""
    returns: str = ""  # the name of the type, without a template's arguments

    @cached_property
    def body(self) -> Node:
        """The parsed body."""
        from .parser import Parser

        return Parser(self.tokens).statement()


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of `text` without comments, preprocessor lines and the own namespace."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match.group())

    text = PREPROCESSOR.sub(blank, COMMENT.sub(blank, text))
    found: list[Token] = []
    line, last = 1, 0
    for match in TOKEN.finditer(text):
        line += text.count("\n", last, match.start())
        last = match.start()
        found.append(Token(match.group(), line, match.start()))
    own = [i for i, t in enumerate(found[:-1]) if t.text == "fusec" and found[i + 1].text == "::"]
    dropped = {j for i in own for j in (i, i + 1)}
    # `Policy::template f<...>` calls `Policy::f<...>`.
    dropped |= {
        i
        for i in range(1, len(found))
        if [t.text for t in found[i - 1 : i + 1]] == ["::", "template"]
    }
    return [t for i, t in enumerate(found) if i not in dropped]


def matching(tokens: list[Token], start: int) -> int:
    """Return where the bracket at `start` closes."""
    pairs = {"(": ")", "[": "]", "{": "}"}
    depth = 0
    for i in range(start, len(tokens)):
        if tokens[i].text in pairs:
            depth += 1
        elif tokens[i].text in pairs.values():
            depth -= 1
            if depth == 0:
                return i
    raise SyntaxProblem(f"line {tokens[start].line}: unclosed {tokens[start].text}")


def angle_end(tokens: list[Token], start: int) -> int | None:
    """Return where the template arguments opened at `start` close, or None for less-than."""
    depth, i = 0, start
    while i < len(tokens):
        text = tokens[i].text
        if text == "<":
            depth += 1
        elif text == ">":
            depth -= 1
            if depth == 0:
                return i
        elif text in ("(", "["):
            i = matching(tokens, i)
        elif text in (";", "{", "}", ")", "&&", "||", "]"):
            return None
        i += 1
    return None


def split(tokens: list[Token]) -> list[list[Token]]:
    """Return the parts between commas outside of brackets."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text in "([{<") - (token.text in ")]}>")
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [p for p in parts if p]


def parameter(tokens: list[Token]) -> Parameter:
    """Return the parameter that `tokens` declare."""
    texts = [t.text for t in tokens]
    if "=" in texts:
        texts = texts[: texts.index("=")]
    name = ""
    for i, text in enumerate(texts):
        if text == "[" and i > 0 and texts[i - 1] != ")":
            break
        if re.match(r"[A-Za-z_]", text):
            name = text
        if text == ")" and "&" in texts[:i]:
            break
    signs = ("&", "*", "__restrict__", "...")
    return Parameter(name, " ".join(texts), *(sign in texts for sign in signs))


def functions_of(text: str, file: str = "") -> Iterator[Function]:
    """Yield the functions that `text` defines; the methods of a struct as `Struct::method`."""
    tokens = tokens_of(text)
    structs: list[tuple[int, str]] = []
    template: list[tuple[str, list[Token] | None]] = []
    i = 0
    while i < len(tokens):
        word = tokens[i].text
        while structs and i > structs[-1][0]:
            structs.pop()
        if word == "template" and (end := angle_end(tokens, i + 1)):
            template = [template_parameter(p) for p in split(tokens[i + 2 : end])]
            i = end
        elif word == "struct":
            start = next(j for j in range(i, len(tokens)) if tokens[j].text in "{;")
            if tokens[start].text == "{":
                names = [t.text for t in tokens[i + 1 : start]]
                name = names[names.index(")") + 1] if "alignas" in names else names[0]
                structs.append((matching(tokens, start), name))
            i, template = start, []
        elif word == "(" and (end := body_start(tokens, matching(tokens, i))):
            name = "::".join([s for _, s in structs] + [tokens[i - 1].text])
            given = [parameter(p) for p in split(tokens[i + 1 : matching(tokens, i)])]
            close = matching(tokens, end)
            body, returns = tokens[end : close + 1], returned(tokens, i - 2)
            yield Function(name, tokens[i].line, template, given, body, file, returns)
            i, template = close, []
        elif word == "(":
            i = matching(tokens, i)
        i += 1


def returned(tokens: list[Token], end: int) -> str:
    """Return the name of the type that ends at `end`."""
    depth = 0
    while end > 0 and (tokens[end].text in "&*>" or depth > 0):
        depth += (tokens[end].text == ">") - (tokens[end].text == "<")
        end -= 1
    return tokens[end].text if end >= 0 else ""


def template_parameter(tokens: list[Token]) -> tuple[str, list[Token] | None]:
    """Return a template parameter's name and its default."""
    texts = [t.text for t in tokens]
    if "=" in texts:
        at = texts.index("=")
        return texts[at - 1], tokens[at + 1 :]
    return texts[-1], None


def body_start(tokens: list[Token], end: int) -> int | None:
    """Return where the body begins whose parameters end at `end`, or None for no function."""
    after = end + 1
    while after < len(tokens) and tokens[after].text in ("const", "noexcept"):
        after += 1
    return after if after < len(tokens) and tokens[after].text == "{" else None
