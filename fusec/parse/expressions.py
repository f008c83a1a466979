"""The parser of op lines, types and sizes."""

from __future__ import annotations

from fusec.codes.calls import CHAINED_COMPARISON, NUMBER_RANGE
from fusec.codes.document import NOT_A_CALL, UNEXPECTED_TOKEN, UNNAMED_RESULT
from fusec.diagnostics import FusecError, Span
from fusec.parse.operators import COMPARISONS, PRECEDENCE, WORDS
from fusec.parse.source import Source
from fusec.parse.tokens import Token, number_of, tokens_of
from fusec.parse.trees import (
    Argument,
    CallTree,
    Dots,
    Infix,
    Items,
    Literal,
    Name,
    OpLine,
    Prefix,
    Range,
    String,
    Subscript,
    Tree,
)

MAX_DEPTH = 64
MAX_OPERATORS = 200
_WORDS: dict[str, bool | float | None] = {
    "true": True, "True": True, "false": False, "False": False,
    "none": None, "None": None, "null": None, "inf": float("inf"), "nan": float("nan"),
}  # fmt: skip


class Parser:
    """A recursive-descent parser over one stretch of the source."""

    def __init__(self, source: Source, start: int, end: int) -> None:
        """Read all tokens of source[start:end]."""
        self.source = source
        self._tokens = list(tokens_of(source, start, end))
        self._next = 0
        self._depth = 0
        self._operators = 0
        self._pasted = False
        """Whether forms of Python's are read too: of op lines, which say what to write instead."""

    @property
    def token(self) -> Token:
        """Return the next token."""
        return self._tokens[self._next]

    def span(self, tree: Tree | Token) -> Span:
        """Return the place of a tree or token."""
        return self.source.span(tree.start, tree.end)

    def _sees(self, mark: str) -> bool:
        return self.token.kind == "mark" and self.token.text == mark

    def take(self, mark: str) -> bool:
        """Step over `mark` if it is next."""
        if self.token.kind == "mark" and self.token.text == mark:
            self._next += 1
            return True
        return False

    def expect(self, mark: str, what: str = "") -> Token:
        """Step over `mark`; FusecError if something else is next."""
        token = self.token
        if not self.take(mark):
            raise self.unexpected(f"`{mark}`{what}")
        return token

    def unexpected(self, expected: str, help: str | None = None) -> FusecError:
        """Return the error for the next token."""
        token = self.token
        found = "the end of the line" if token.kind == "end" else f"`{token.text}`"
        if token.text == ":" and help is None:
            help = "keyword arguments are written `name=value`"
        if token.text == "(" and token.kind == "mark" and help is None:
            help = "functions are called, not modules or results: `relu(x)`, `linear(x, w, b)`"
        if token.kind == "name" and help is None:
            help = WORDS.get(token.text)
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
            raise self.unexpected(f"nothing after the {after}", _second_line(self))

    def op_line(self) -> OpLine:
        """Read `names = expression`."""
        self._pasted = True
        if self.token.kind == "name" and self._tokens[self._next + 1].text == "(":
            return self._statement()
        names = [self.name("the name of a result")]
        while self.take(","):
            names.append(self.name("the name of a result"))
        told = self._annotation(names)
        sign = self._augmented(names)
        help = "the result is assigned with one `=`" if self._sees("==") else None
        if not self.take("="):
            raise self.unexpected("`=` after the result's name", help)
        tree = self.expression()
        self.finish("call" if isinstance(tree, CallTree) else "expression")
        if sign is not None:
            tree = Infix(sign.text, names[0], tree, tree.start, tree.end, sign.start)
            told = self._told(f"op lines have no `{sign.text}=`", sign)
        if told is not None:
            return OpLine(tuple(names), tree, told)
        copied = isinstance(tree, Name) and "." not in tree.text
        if copied or isinstance(tree, Items) or (isinstance(tree, Literal) and tree.value is None):
            raise FusecError(
                "the right side of an op line is a call, an expression or a number",
                span=self.span(tree),
                help="write `y = op(x)`; a plain copy is `y = set(x)`",
                code=NOT_A_CALL,
            )
        return OpLine(tuple(names), tree)

    def _told(self, message: str, at: Token) -> FusecError:
        return FusecError(message, span=self.span(at), code=UNEXPECTED_TOKEN)

    def _statement(self) -> OpLine:
        """Read a call without a result; its result is what it writes, in place or to `out`."""
        first = self.token
        tree = self.expression()
        assert isinstance(tree, (CallTree, Subscript, Infix))
        self.finish("call")
        told = FusecError(
            "an op line must name its result", span=self.span(first), code=UNNAMED_RESULT
        )
        return OpLine((_written(tree) or Name("y", first.start, first.end),), tree, told)

    def _annotation(self, names: list[Name]) -> FusecError | None:
        """Step over the `: torch.Tensor` of `y: torch.Tensor = x`."""
        colon = self.token
        if len(names) > 1 or not self._sees(":"):
            return None
        place = self._next
        while self.token.kind != "end" and not self._sees("="):
            self._next += 1
        if self.token.kind == "end":
            self._next = place
            return None
        return self._told("op lines have no annotations", colon)

    def _augmented(self, names: list[Name]) -> Token | None:
        """Step over the operator of `x *= y`."""
        sign, following = self.token, self._tokens[min(self._next + 1, len(self._tokens) - 1)]
        binary = any(sign.text in level for level in PRECEDENCE) or sign.text == "**"
        is_sign = sign.kind == "mark" and binary and sign.text not in COMPARISONS
        if len(names) > 1 or not is_sign or following.text != "=" or following.start != sign.end:
            return None
        self._next += 1
        return sign

    def expression(self) -> Tree:
        """Read an expression."""
        self._deeper()
        tree = self._infix(0)
        self._depth -= 1
        return tree

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise FusecError(
                f"calls nested deeper than {MAX_DEPTH} levels",
                span=self.span(self.token),
                help="write intermediate values on their own lines",
            )

    def _infix(self, level: int) -> Tree:
        """Read operands of the operators of a level of precedence, or of a tighter one."""
        if level == len(PRECEDENCE):
            return self._sign()
        left = self._infix(level + 1)
        while self.token.kind == "mark" and self.token.text in PRECEDENCE[level]:
            if isinstance(left, Infix) and level == 0 and left.operator in COMPARISONS:
                self._refuse_chain(left)
            operator, place = self._operator(), self._tokens[self._next - 1].start
            right = self._infix(level + 1)
            left = Infix(operator, left, right, left.start, right.end, place)
        return left

    def _refuse_chain(self, left: Infix) -> None:
        if self._tokens[self._next - 1].text == ")":
            return  # `(a < b) == c` compares a result
        texts = [self.source.text[t.start : t.end] for t in (left.left, left.right)]
        middle = left.right
        if isinstance(middle, Infix) and middle.operator in ("&", "|", "^"):
            low, high = (self.source.text[t.start : t.end] for t in (middle.left, middle.right))
            sign = middle.operator
            raise FusecError(
                f"`{sign}` binds tighter than comparisons",
                span=self.source.span(middle.place, middle.place + 1),
                help=f"write `({texts[0]} {left.operator} {low}) {sign} ({high} "
                f"{self.token.text} ...)`",
                code=CHAINED_COMPARISON,
            )
        raise FusecError(
            "comparisons do not chain",
            span=self.span(self.token),
            help=f"write `({texts[0]} {left.operator} {texts[1]}) & ({texts[1]} "
            f"{self.token.text} ...)`",
            code=CHAINED_COMPARISON,
        )

    def _operator(self) -> str:
        self._operators += 1
        if self._operators > MAX_OPERATORS:
            raise FusecError(
                f"an expression with more than {MAX_OPERATORS} operators",
                span=self.span(self.token),
            )
        self._next += 1
        return self._tokens[self._next - 1].text

    def _sign(self) -> Tree:
        """Read signs and what they stand before; a number takes its sign, but not of a power."""
        start, negative, signed = self.token.start, False, False
        while self.token.kind == "mark" and self.token.text in ("-", "+"):
            negative ^= self.token.text == "-"
            signed = True
            self._next += 1
        if self.token.kind == "mark" and self.token.text == "~":
            self._operator()
            self._deeper()
            operand = self._sign()
            self._depth -= 1
            tree: Tree = Prefix("~", operand, start, operand.end)
        else:
            tree = self._power()
        number = tree.value if isinstance(tree, Literal) else None
        if signed and number is not None and not isinstance(number, bool):
            return Literal(-number if negative else number, start, tree.end)
        return Prefix("-", tree, start, tree.end) if negative else tree

    def _power(self) -> Tree:
        base = self._followed(self._primary())
        if not (self.token.kind == "mark" and self.token.text == "**"):
            return base
        operator, place = self._operator(), self._tokens[self._next - 1].start
        self._deeper()
        exponent = self._sign()
        self._depth -= 1
        return Infix(operator, base, exponent, base.start, exponent.end, place)

    def _followed(self, tree: Tree) -> Tree:
        """Read subscripts and calls of methods that follow an expression."""
        while self.token.kind == "mark" and self.token.text in ("[", "."):
            opening = self.token
            self._next += 1
            if opening.text == ".":
                named = self.name("a name")
                method = Name(f".{named.text}", opening.start, named.end)
                called = self._call(method).arguments if self._sees("(") else ()
                end = self._tokens[self._next - 1].end
                tree = CallTree(method, (Argument(None, tree), *called), tree.start, end)
                continue
            keys = [self._key()]
            while self.take(","):
                keys.append(self._key())
            closing = self.expect("]", " or `,`")
            tree = Subscript(tree, tuple(keys), tree.start, closing.end)
        return tree

    def _key(self) -> Tree:
        """Read an entry of a subscript: an expression, `low:high:step` or `...`."""
        first = self.token
        if self.take("..."):
            return Dots(first.start, first.end)
        parts: list[Tree | None] = [self._bound()]
        while len(parts) < 3 and self.take(":"):
            parts.append(self._bound())
        if len(parts) == 1 and parts[0] is not None:
            return parts[0]
        if len(parts) == 1:
            raise self.unexpected("an index")
        low, high, step = (*parts, None)[:3]
        return Range(low, high, step, first.start, self._tokens[self._next - 1].end)

    def _bound(self) -> Tree | None:
        ends = self.token.kind == "mark" and self.token.text in (":", ",", "]")
        return None if ends or self.token.kind == "end" else self.expression()

    def _primary(self) -> Tree:
        token = self.token
        if token.kind == "number":
            self._next += 1
            value = number_of(token.text)
            if value == float("inf"):
                raise FusecError(
                    f"{token.text} does not fit in f64",
                    span=self.span(token),
                    help="write `inf`",
                    code=NUMBER_RANGE,
                )
            return Literal(value, token.start, token.end)
        if token.kind == "name":
            self._next += 1
            if token.text in WORDS and self.token.kind in ("name", "number"):
                self._next -= 1
                raise self.unexpected("a value")
            if self.token.text == "(" and self.token.kind == "mark":
                return self._call(Name(token.text, token.start, token.end))
            if token.text in _WORDS:
                return Literal(_WORDS[token.text], token.start, token.end)
            return Name(token.text, token.start, token.end)
        if token.kind == "string":
            self._next += 1
            return String(token.text, token.start, token.end)
        if self.take("("):
            if self._sees(")") and self._pasted:
                return self._items(")", token)
            tree = self.expression()
            if self._sees(","):
                return self._items(")", token, tree)
            self.expect(")")
            return tree
        if self.take("["):
            return self._items("]", token)
        raise self.unexpected("a value")

    def _items(self, closing: str, opening: Token, first: Tree | None = None) -> Items:
        """Read the rest of a list, or of a tuple whose first item has been read."""
        items: list[Tree] = [] if first is None else [first]
        if first is not None:
            self.expect(",")
        while not self._sees(closing):
            items.append(self.expression())
            if not self.take(","):
                break
        end = self.expect(closing, " or `,`").end
        return Items(tuple(items), opening.start, end)

    def _call(self, name: Name) -> CallTree:
        self.expect("(")
        arguments: list[Argument] = []
        while not (self.token.kind == "mark" and self.token.text == ")"):
            arguments.append(self._argument())
            if not self.take(","):
                break
        if self.token.kind == "end":
            wanted = f"`)` or `,` in the call of `{name.text}`"
            raise self.unexpected(wanted, f"close the call of `{name.text}` with `)`")
        closing = self.expect(")", f" or `,` in the call of `{name.text}`")
        return CallTree(name, tuple(arguments), name.start, closing.end)

    def _argument(self) -> Argument:
        following = self._tokens[min(self._next + 1, len(self._tokens) - 1)]
        if self.token.kind == "name" and following.kind == "mark" and following.text == "=":
            keyword = self.name("a keyword")
            self.expect("=")
            return Argument(keyword, self.expression())
        star = self.token
        if self._pasted and self.take("*"):
            listed = self._power()
            return Argument(None, Prefix("*", listed, star.start, listed.end))
        return Argument(None, self.expression())


def _written(tree: Tree) -> Name | None:
    """Return the name that a call writes to: the `x` of `x.mul_(y).add_(z)`, or its `out`."""
    if not isinstance(tree, CallTree):
        return None
    owner, _, method = tree.name.text.rpartition(".")
    for argument in tree.arguments:
        if argument.keyword is not None and argument.keyword.text == "out":
            return argument.value if isinstance(argument.value, Name) else None
    if not method.endswith("_"):
        return None
    if owner:
        return Name(owner, tree.name.start, tree.name.start + len(owner))
    first = tree.arguments[0].value
    return first if isinstance(first, Name) else _written(first)


def _second_line(parser: Parser) -> str | None:
    line = parser.source.text[: parser.token.start].rpartition("\n")[2]
    if not line.strip() and parser.token.kind == "name":
        return "a new op begins with `- `"
    return None
