"""The position of a parser among the tokens of a source range."""

from __future__ import annotations

from fusec.codes.code import Code
from fusec.codes.document import UNEXPECTED_TOKEN
from fusec.diagnostics import FusecError, Span
from fusec.parse.source import Source
from fusec.parse.syntax.endings import help_after, two_values
from fusec.parse.syntax.operators import WORDS
from fusec.parse.syntax.tokens import Token, tokens_of
from fusec.parse.syntax.trees import Name, Tree


class Cursor:
    """The tokens of a source range, the next one, and errors about it."""

    def __init__(self, source: Source, start: int, end: int) -> None:
        """Read all tokens of source[start:end]."""
        self.source = source
        self._tokens = list(tokens_of(source, start, end))
        self._next: int = 0
        self._depth = 0
        self._operators = 0
        self._pasted = False
        """Whether Python forms are also read, for op lines that suggest a replacement."""
        self._python: FusecError | None = None
        """The error of the first of these forms."""

    @property
    def token(self) -> Token:
        """Return the next token."""
        return self._tokens[self._next]

    def span(self, tree: Tree | Token) -> Span:
        """Return the span of a tree or token."""
        return self.source.span(tree.start, tree.end)

    def _sees(self, mark: str) -> bool:
        return self.token.kind == "mark" and self.token.text == mark

    def take(self, mark: str) -> bool:
        """Consume `mark` if it is next."""
        if self.token.kind == "mark" and self.token.text == mark:
            self._next += 1
            return True
        return False

    def expect(self, mark: str, what: str = "") -> Token:
        """Consume `mark`; FusecError if something else is next."""
        token = self.token
        if not self.take(mark):
            raise self.unexpected(f"`{mark}`{what}")
        return token

    def unexpected(self, expected: str, help: str | None = None) -> FusecError:
        """Return the error for the next token."""
        token = self.token
        found = "the end of the line" if token.kind == "end" else f"`{token.text}`"
        following = self._tokens[min(self._next + 1, len(self._tokens) - 1)]
        if token.text == ":" and following.text == ":" and help is None:
            rest = self._tokens[min(self._next + 2, len(self._tokens) - 1)].text
            help = f"names have no `::`: write `{rest}`"
        if token.text == ":" and help is None:
            help = "keyword arguments are written `name=value`"
        if token.text in ("%", "&") and following.kind == "name" and "a value" in expected:
            help = f"names have no `{token.text}`: write `{following.text}`"
        if token.text == "**" and "a value" in expected and help is None:
            help = "arguments are written one by one, as `name=value`"
        before = self._tokens[max(self._next - 1, 0)].text
        if (before, token.text) == ("-", ">") and help is None:
            help = 'an equation is quoted, as in `einsum("bhd,bkd->bhk", x, y)`'
        if (before, token.text) == ("|", ">") and help is None:
            help = f"op lines have no `|>`: call it, as in `{following.text or 'relu'}(x)`"
        if token.text == "(" and token.kind == "mark" and help is None:
            help = "functions are called, not modules or results: `relu(x)`, `linear(x, w, b)`"
        if token.kind == "name" and help is None:
            help = WORDS.get(token.text)
        if "in the call of" in expected and help is None:
            help = two_values(self)
        if token.text in ("?", "...") and token.kind == "mark" and help is None:
            help = "each size has a name, declared under `dims:`, as in `B: 4096`"
        return FusecError(
            f"expected {expected}, found {found}",
            span=self.span(token),
            help=help,
            code=UNEXPECTED_TOKEN,
        )

    def name(self, what: str) -> Name:
        """Read a name."""
        token = self.token
        if token.kind != "name":
            raise self.unexpected(what)
        self._next += 1
        return Name(token.text, token.start, token.end)

    def finish(self, after: str) -> None:
        """Check that nothing follows."""
        if self.token.kind != "end":
            raise self.unexpected(f"nothing after the {after}", help_after(self))

    def _error(self, message: str, at: Token | Name) -> FusecError:
        return FusecError(message, span=self.span(at), code=UNEXPECTED_TOKEN)

    def _note_python(self, message: str, at: Token, code: Code = UNEXPECTED_TOKEN) -> None:
        if self._python is None:
            self._python = FusecError(message, span=self.span(at), code=code)
