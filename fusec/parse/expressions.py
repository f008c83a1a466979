"""The parser of op lines, types and sizes."""

from __future__ import annotations

import re
from dataclasses import replace

from fusec.codes.calls import CHAINED_COMPARISON, NUMBER_RANGE
from fusec.codes.code import Code
from fusec.codes.document import NOT_A_CALL, UNEXPECTED_TOKEN, UNNAMED_RESULT
from fusec.diagnostics import FusecError, Span
from fusec.ops import TABLE
from fusec.ops.frameworks.find import PREFIXES
from fusec.parse.endings import STATEMENTS, help_after
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

_DATA = re.compile(r"(?<=\w)\.data(?=\.|$)")
"""The tensor without its gradient, as PyTorch's `x.data`: the tensor itself."""
MAX_DEPTH = 64
MAX_OPERATORS = 200
ASSIGNED, CALLED, REPEATED = "[]=", "()", "for"
"""What calls are named that stand for `x[key] = value`, `f(a)(b)` and `a for k in range(n)`."""
_WORDS: dict[str, bool | float | None] = {
    "true": True, "True": True, "false": False, "False": False,
    "none": None, "None": None, "null": None, "inf": float("inf"), "nan": float("nan"),
}  # fmt: skip


class Divided(FusecError):
    """A line that is to be written as several."""


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
        self._python: FusecError | None = None
        """The error of the first of these forms."""

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

    def op_line(self) -> OpLine:
        """Read `names = expression`."""
        self._pasted = True
        first, second = self.token, self._tokens[min(self._next + 1, len(self._tokens) - 1)]
        statement = first.kind == "name" and first.text in STATEMENTS
        if statement and not (second.kind == "mark" and second.text in ("=", ",")):
            raise FusecError(
                f"op lines have no `{first.text}`",
                span=self.span(first),
                help=STATEMENTS[first.text],
                code=UNEXPECTED_TOKEN,
            )
        if first.kind == "name" and second.text == "(":
            return self._statement()
        names = [self.name("the name of a result")]
        told = None
        while self._sees(","):
            comma = self.token
            self._next += 1
            if self._sees("="):
                told = self._told("a single result has no `,`", comma)
                break
            names.append(self.name("the name of a result"))
        told = told or self._owned(names) or self._annotation(names)
        keys = self._assigned_keys(names)
        sign = self._augmented(names)
        told = told or self._arrow() or self._counted(names)
        help = "the result is assigned with one `=`" if self._sees("==") else None
        if told is not None and self.token.kind == "end":
            one = Literal(1, names[0].start, names[0].start)
            tree = Infix("+", names[0], one, names[0].start, names[0].end, names[0].start)
            return OpLine(tuple(names), tree, told)
        help = help or self._declared(names)
        if not self.take("=") and told is None:
            raise self.unexpected("`=` after the result's name", help)
        tree = self._joined_conditions(self.expression())
        if self._sees(",") and len(names) > 1:
            raise self._several(names, tree)
        if self._sees("=") and isinstance(tree, Name) and len(names) == 1:
            raise self._chain(names[0], tree)
        self.finish("call" if isinstance(tree, CallTree) else "expression")
        told = told or self._python
        if sign is not None:
            read: Tree = names[0]
            if keys is not None:
                read = Subscript(names[0], keys, names[0].start, sign.start)
            tree = Infix(sign.text, read, tree, tree.start, tree.end, sign.start)
            told = self._told(f"op lines have no `{sign.text}=`", sign)
        if keys is not None:
            parts = (names[0], *keys, tree)
            name = Name(ASSIGNED, names[0].start, names[0].end)
            arguments = tuple(Argument(None, part) for part in parts)
            tree = CallTree(name, arguments, names[0].start, tree.end)
            told = self._told("op lines cannot assign to elements: tensors are immutable", names[0])
        if told is not None:
            return OpLine(tuple(names), tree, told)
        is_op = isinstance(tree, Name) and tree.text in TABLE
        copied = isinstance(tree, Name) and "." not in tree.text and not is_op
        nothing = isinstance(tree, Literal) and tree.value is None
        if (isinstance(tree, (Name, Items)) and "." not in getattr(tree, "text", "")) or nothing:
            listed = ", ".join(n.text for n in names)
            error = FusecError(
                "the right side of an op line is a call, an expression or a number",
                span=self.span(tree),
                help=f"it is an operation: call it, as in `{listed} = {tree.text}(x)`"
                if is_op and isinstance(tree, Name)
                else "a copy is a call, too"
                if copied and len(names) == 1
                else "`stack([a, b], 0)` makes a tensor of several, `cat` joins them"
                if isinstance(tree, Items) and tree.items
                else None,
                code=NOT_A_CALL,
            )
            if not copied or len(names) > 1:
                raise error
            name = Name("set", tree.start, tree.start)
            copy = CallTree(name, (Argument(None, tree),), tree.start, tree.end)
            return OpLine(tuple(names), copy, error)
        return OpLine(tuple(names), tree)

    def _owned(self, names: list[Name]) -> FusecError | None:
        """Name `p` for `p.data` and `y` for `self.y`, and return their error; None of others."""
        for place, name in enumerate(names):
            owner, dot, rest = name.text.partition(".")
            if dot and (rest == "data" or owner == "self") and "." not in rest:
                names[place] = replace(name, text=owner if rest == "data" else rest)
                return self._told(f"op lines have no attributes: `{name.text}`", name)
        return None

    def _declared(self, names: list[Name]) -> str | None:
        """Return what to write for `let y = x` and `float y = x`."""
        following = self._tokens[min(self._next + 1, len(self._tokens) - 1)]
        if self.token.kind != "name" or following.text != "=" or len(names) > 1:
            return None
        text = self.source.text[self.token.start :].partition("\n")[0].rstrip(" ;")
        return f"a result has a name alone: write `{text}`"

    def _arrow(self) -> FusecError | None:
        """Step over the `<-` or `:=` of an assignment, and return its error."""
        ahead = self._tokens[self._next : self._next + 2]
        signs = "".join(token.text for token in ahead)
        if signs not in ("<-", ":=") or ahead[0].end != ahead[1].start:
            return None
        self._next += 2
        return self._told(f"op lines have no `{signs}`", ahead[0])

    def _counted(self, names: list[Name]) -> FusecError | None:
        """Step over the sign of `x++`, and return its error."""
        ahead = [token.text for token in self._tokens[self._next : self._next + 3]]
        if ahead != ["+", "+", ""] or len(names) > 1:
            return None
        at = self.token
        self._next += 2
        return self._told("op lines have no `++`", at)

    def _chain(self, first: Name, second: Name) -> FusecError:
        """Return the error of `a = b = x`, with a line for each."""
        sign = self.token
        self._next += 1
        value = self.expression()
        self.finish("expression")
        text = self.source.text[value.start : value.end]
        return Divided(
            "an op line assigns once",
            span=self.span(sign),
            help=f"write `{second.text} = {text}` and `{first.text} = set({second.text})`",
            code=UNEXPECTED_TOKEN,
        )

    def _joined_conditions(self, tree: Tree) -> Tree:
        """Return an expression in which `a && b` of values that are no conditions is called."""
        if self._python is None or not isinstance(tree, (Infix, Prefix, CallTree)):
            return tree
        if isinstance(tree, Prefix):
            return replace(tree, operand=self._joined_conditions(tree.operand))
        if isinstance(tree, CallTree):
            values = [self._joined_conditions(a.value) for a in tree.arguments]
            pairs = zip(tree.arguments, values, strict=True)
            return replace(tree, arguments=tuple(replace(a, value=v) for a, v in pairs))
        left, right = map(self._joined_conditions, (tree.left, tree.right))
        doubled = self.source.text[tree.place - 1 : tree.place + 1] in ("&&", "||")
        if not doubled or (is_condition(left) and is_condition(right)):
            return replace(tree, left=left, right=right)
        word = "logical_and" if tree.operator == "&" else "logical_or"
        arguments = (Argument(None, left), Argument(None, right))
        return CallTree(Name(word, tree.start, tree.start), arguments, tree.start, tree.end)

    def _several(self, names: list[Name], first: Tree) -> FusecError:
        """Return the error of `a, b = x, y`, with a line for each name."""
        comma, trees = self.token, [first]
        while self.take(","):
            trees.append(self.expression())
        self.finish("expressions")
        texts = (re.sub(r":\s+", ":", self.source.text[t.start : t.end]) for t in trees)
        lines = [f"`{n.text} = {text}`" for n, text in zip(names, texts, strict=False)]
        known = len(names) == len(trees)
        return Divided(
            "an op line has one expression",
            span=self.span(comma),
            help=f"write {' and '.join(lines)}" if known else "write a line for each result",
            code=UNEXPECTED_TOKEN,
        )

    def _assigned_keys(self, names: list[Name]) -> tuple[Tree, ...] | None:
        """Step over the `[mask]` of `x[mask] = 0`, and return the keys."""
        if len(names) > 1 or not self.take("["):
            return None
        keys = [self._key()]
        while self.take(","):
            keys.append(self._key())
        self.expect("]", " or `,`")
        return tuple(keys)

    def _told(self, message: str, at: Token | Name) -> FusecError:
        return FusecError(message, span=self.span(at), code=UNEXPECTED_TOKEN)

    def _statement(self) -> OpLine:
        """Read a call without a result; its result is what it writes, in place or to `out`."""
        first = self.token
        tree = self.expression()
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
        """Step over one of Python's operators that are words, and note it."""
        token = self.token
        said = token.text if token.kind == "name" else ""
        if word == "not" and self._sees("!"):
            said = "not"
        if said != word:
            return False
        self._next += 1
        self._note_python(f"op lines have no `{token.text}`", token)
        return True

    def _note_python(self, message: str, at: Token, code: Code = UNEXPECTED_TOKEN) -> None:
        if self._python is None:
            self._python = FusecError(message, span=self.span(at), code=code)

    def _condition(self, first: Tree | None = None) -> Tree:
        """Read `a if condition else b`, or what binds tighter, as fusec has it.

        first: the first operand, where it has been read.
        """
        tree = self._word("or", "|", first)
        if not self._takes_word("if"):
            return tree
        condition = self._word("or", "|")
        token = self.token
        if not (token.kind == "name" and token.text == "else"):
            raise self.unexpected("`else`", WORDS["if"])
        self._next += 1
        other = self._condition()
        name = Name("where", tree.start, tree.start)
        arguments = tuple(Argument(None, part) for part in (condition, tree, other))
        return CallTree(name, arguments, tree.start, other.end)

    def _word(self, word: str, sign: str, first: Tree | None = None) -> Tree:
        """Read operands of `or` or `and`; conditions are joined by a sign, other values called."""

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
        """Read the rest of `a < b < c`, or of `a < b & c < d`; None where `left` is in parentheses.

        Both are noted as Python's, and read as they are meant.
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
                token = replace(token, text=_DATA.sub("", token.text))
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
    if owner and owner not in PREFIXES:
        return Name(owner, tree.name.start, tree.name.start + len(owner))
    first = tree.arguments[0].value
    return first if isinstance(first, Name) else _written(first)


def is_condition(tree: Tree) -> bool:
    """Return whether an expression is a bool for sure: a comparison, or what joins them."""
    if isinstance(tree, Prefix):
        return tree.operator == "~" and is_condition(tree.operand)
    if not isinstance(tree, Infix):
        return False
    joined = tree.operator in ("&", "|", "^")
    return tree.operator in COMPARISONS or (
        joined and is_condition(tree.left) and is_condition(tree.right)
    )
