"""The parser of expressions: of op lines, types and sizes."""

from __future__ import annotations

import re

from fusec.codes.calls import CHAINED_COMPARISON, NUMBER_RANGE
from fusec.codes.document import UNEXPECTED_TOKEN
from fusec.dataclasses import replace
from fusec.diagnostics import FusecError
from fusec.parse.syntax.conditions import is_condition
from fusec.parse.syntax.cursor import Cursor
from fusec.parse.syntax.operators import COMPARISONS, PRECEDENCE, WORDS
from fusec.parse.syntax.tokens import Token, number_of
from fusec.parse.syntax.trees import (
    Argument,
    CallTree,
    Dots,
    Infix,
    Items,
    Literal,
    Name,
    Prefix,
    Range,
    String,
    Subscript,
    Tree,
)

_DATA = r"(?<=\w)\.data(?=\.|$)"
"""The tensor without its gradient, PyTorch's `x.data`: the tensor itself."""
MAX_DEPTH = 64
MAX_OPERATORS = 200
ASSIGNED, CALLED, REPEATED = "[]=", "()", "for"
"""The call names that represent `x[key] = value`, `f(a)(b)` and `a for k in range(n)`."""
_WORDS: dict[str, bool | float | None] = {
    "true": True, "True": True, "false": False, "False": False,
    "none": None, "None": None, "null": None, "inf": float("inf"), "nan": float("nan"),
}  # fmt: skip


class Parser(Cursor):
    """A recursive-descent parser of expressions."""

    def expression(self) -> Tree:
        """Read an expression."""
        self._deeper()
        word = self.token.text if self.token.kind == "name" else ""
        negated = word == "not" or self._sees("!")
        tree = self._condition() if negated and self._pasted else self._infix(0)
        word = self.token.text if self.token.kind == "name" else ""
        if word in ("and", "or", "if") and self._pasted:
            tree = self._condition(tree)
        if self._pasted and self._sees("?"):
            tree = self._choice(tree)
        self._depth -= 1
        return tree

    def _choice(self, condition: Tree) -> Tree:
        """Read the rest of `condition ? a : b`."""
        self._note_python("op lines have no `?`", self.token)
        self._next += 1
        first = self.expression()
        self.expect(":")
        other = self.expression()
        name = Name("where", condition.start, condition.start)
        arguments = tuple(Argument(None, part) for part in (condition, first, other))
        return CallTree(name, arguments, condition.start, other.end)

    def _takes_word(self, word: str) -> bool:
        """Consume a Python operator that is a word, and record it."""
        token = self.token
        said = token.text if token.kind == "name" else ""
        if word == "not" and self._sees("!"):
            said = "not"
        if said != word:
            return False
        self._next += 1
        self._note_python(f"op lines have no `{token.text}`", token)
        return True

    def _condition(self, first: Tree | None = None) -> Tree:
        """Read `a if condition else b`, or an operand that binds tighter, in fusec's form.

        first: the first operand, if it was already read.
        """
        tree = self._word("or", "|", first)
        if not self._takes_word("if"):
            return tree
        condition = self._word("or", "|")
        given = self._is_given()
        token = self.token
        if not (token.kind == "name" and token.text == "else"):
            raise self.unexpected("`else`", WORDS["if"])
        self._next += 1
        other = self._condition()
        if given is not None:
            return tree if given else other  # a value is never None
        if isinstance(condition, Name) and condition.text.endswith(".training"):
            raise self._of_modes(condition, tree, other)
        name = Name("where", tree.start, tree.start)
        arguments = tuple(Argument(None, part) for part in (condition, tree, other))
        return CallTree(name, arguments, tree.start, other.end)

    def _is_given(self) -> bool | None:
        """Consume `is None` or `is not None`, and return its truth for a value; else None."""
        ahead = [t.text for t in self._tokens[self._next : self._next + 3]]
        if ahead[:2] == ["is", "None"]:
            self._next += 2
            return False
        if ahead == ["is", "not", "None"]:
            self._next += 3
            return True
        return None

    def _of_modes(self, at: Name, tree: Tree, other: Tree) -> FusecError:
        """Return the error of a choice between training and evaluation, with both values."""
        first, second = (self.source.text[t.start : t.end] for t in (tree, other))
        return FusecError(
            f"`{at.text}` is not known: a file is of one mode",
            span=self.span(at),
            help=f"for training write `{first}` alone, for evaluation `{second}`",
            code=UNEXPECTED_TOKEN,
        )

    def _word(self, word: str, sign: str, first: Tree | None = None) -> Tree:
        """Read operands of `or` or `and`; a sign combines conditions, a call other values."""

        def read(first: Tree | None = None) -> Tree:
            if word == "or":
                return self._word("and", "&", first)
            return self._negated() if first is None else first

        left = read(first)
        while self._takes_word(word):
            place = self._tokens[self._next - 1].start
            right = read()
            if is_condition(left) and is_condition(right):
                left = Infix(sign, left, right, left.start, right.end, place)
            else:
                arguments = (Argument(None, left), Argument(None, right))
                name = Name(f"logical_{word}", left.start, left.start)
                left = CallTree(name, arguments, left.start, right.end)
        return left

    def _negated(self) -> Tree:
        start = self.token.start
        if not self._takes_word("not"):
            return self._infix(0)
        self._deeper()
        operand = self._negated()
        self._depth -= 1
        if is_condition(operand):
            return Prefix("~", operand, start, operand.end)
        name = Name("logical_not", start, start)
        return CallTree(name, (Argument(None, operand),), start, operand.end)

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
                chained = self._chained(left)
                if chained is not None:
                    left = chained
                    continue
            operator, place = self._operator(), self._tokens[self._next - 1].start
            right = self._infix(level + 1)
            left = Infix(operator, left, right, left.start, right.end, place)
        return left

    def _chained(self, left: Infix) -> Tree | None:
        """Read the rest of `a < b < c`, or of `a < b & c < d`; None if `left` is in parentheses.

        Both are recorded as Python's, and read with their intended meaning.
        """
        if self._tokens[self._next - 1].text == ")":
            return None  # `(a < b) == c` compares a result
        at, middle, join = self.token, left.right, "&"
        low = high = middle
        if isinstance(middle, Infix) and middle.operator in ("&", "|", "^"):
            low, high, join = middle.left, middle.right, middle.operator
            sign = Token("mark", join, middle.place, middle.place + 1)
            self._note_python(
                f"`{join}` binds tighter than comparisons", sign, code=CHAINED_COMPARISON
            )
        else:
            self._note_python("comparisons do not chain", at, code=CHAINED_COMPARISON)
        operator = self._operator()
        last = self._infix(1)
        if not self._pasted and self._python is not None:
            raise self._python
        first = Infix(left.operator, left.left, low, left.start, low.end, left.place)
        second = Infix(operator, high, last, high.start, last.end, at.start)
        following = self.token
        if following.kind == "mark" and following.text in COMPARISONS:
            deeper = self._chained(second)
            second = deeper if isinstance(deeper, Infix) else second
        return Infix(join, first, second, first.start, second.end, at.start)

    def _operator(self) -> str:
        self._operators += 1
        if self._operators > MAX_OPERATORS:
            raise FusecError(
                f"an expression with more than {MAX_OPERATORS} operators",
                span=self.span(self.token),
            )
        self._next += 1
        sign = self._tokens[self._next - 1]
        doubled = sign.text in ("&", "|") and self.token.text == sign.text
        if doubled and self.token.start == sign.end and self._pasted:
            self._next += 1
            self._note_python(f"op lines have no `{sign.text * 2}`", sign)
        return sign.text

    def _sign(self) -> Tree:
        """Read signs and their operand; a number absorbs its sign, except in a power."""
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
        while self.token.kind == "mark" and self.token.text in ("[", ".", "("):
            opening = self.token
            if opening.text == "(":
                if not (self._pasted and isinstance(tree, CallTree)):
                    break
                error = self.unexpected("nothing after the call")
                self._python = self._python or error
                called = self._call(Name(CALLED, opening.start, opening.start))
                arguments = (Argument(None, tree), *called.arguments)
                tree = replace(called, arguments=arguments, start=tree.start)
                continue
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
            alone = keys[0] if len(keys) == 1 else None
            is_tuple = isinstance(alone, Items) and self.source.text[alone.start] == "("
            if isinstance(alone, Items) and alone.items and is_tuple:
                keys = [*alone.items]  # `x[(0, 1)]` is `x[0, 1]`
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
            if self._pasted and ".data" in token.text:
                token = replace(token, text=re.sub(_DATA, "", token.text))
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
            if self.token.kind == "end":
                raise self.unexpected("`)`", "close the `(` with `)`")
            self.expect(")")
            return tree
        if self.take("["):
            return self._items("]", token)
        if self._pasted and self.take("..."):
            return Dots(token.start, token.end)
        raise self.unexpected("a value")

    def _items(self, closing: str, opening: Token, first: Tree | None = None) -> Items:
        """Read the rest of a list, or of a tuple whose first item has been read."""
        items: list[Tree] = [] if first is None else [first]
        if first is not None:
            self.expect(",")
        while not self._sees(closing):
            items.append(self.expression())
            if closing == "]" and len(items) == 1 and self._is_comprehension():
                items = [self._comprehension(items[0])]
            if not self.take(","):
                break
        end = self.expect(closing, " or `,`").end
        return Items(tuple(items), opening.start, end)

    def _is_comprehension(self) -> bool:
        """Return whether `for k in range(` is next."""
        ahead = [t.text for t in self._tokens[self._next : self._next + 5]]
        known = self._pasted and len(ahead) == 5
        return known and (ahead[0], *ahead[2:]) == ("for", "in", "range", "(")

    def _comprehension(self, item: Tree) -> CallTree:
        """Read `for k in range(4)` after the item that it repeats."""
        opening = self.token
        self._note_python("op lines have no comprehensions", opening)
        self._next += 1
        variable = self.name("a name")
        self._next += 1
        numbers = self.expression()
        arguments = (Argument(None, item), Argument(None, variable), Argument(None, numbers))
        name = Name(REPEATED, opening.start, opening.end)
        return CallTree(name, arguments, item.start, numbers.end)

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
            listed = self._infix(1)
            return Argument(None, Prefix("*", listed, star.start, listed.end))
        return Argument(None, self.expression())
