"""The parser of op lines, `names = expression`, and of their forms in Python."""

from __future__ import annotations

import re

from fusec.codes.document import NOT_A_CALL, UNEXPECTED_TOKEN, UNNAMED_RESULT
from fusec.dataclasses import replace
from fusec.diagnostics import FusecError
from fusec.ops import TABLE
from fusec.ops.frameworks.find import PREFIXES
from fusec.parse.syntax.conditions import is_condition
from fusec.parse.syntax.endings import STATEMENTS
from fusec.parse.syntax.expressions import ASSIGNED, Parser
from fusec.parse.syntax.operators import COMPARISONS, PRECEDENCE
from fusec.parse.syntax.tokens import Token
from fusec.parse.syntax.trees import (
    Argument,
    CallTree,
    Infix,
    Items,
    Literal,
    Name,
    OpLine,
    Prefix,
    Subscript,
    Tree,
)


class Divided(FusecError):
    """A line that must be written as several."""


class OpLineParser(Parser):
    """A parser of one op line."""

    def op_line(self) -> OpLine:
        """Read `names = expression`."""
        self._pasted = True
        first, second = self.token, self._tokens[min(self._next + 1, len(self._tokens) - 1)]
        statement = first.kind == "name" and first.text in STATEMENTS
        if first.text == "return" and statement and second.kind != "end":
            raise self._returned(first)
        if statement and not (second.kind == "mark" and second.text in ("=", ",")):
            raise FusecError(
                f"op lines have no `{first.text}`",
                span=self.span(first),
                help=STATEMENTS[first.text],
                code=UNEXPECTED_TOKEN,
            )
        if first.kind == "name" and second.text == "(":
            return self._statement()
        brackets = self._bracketed()
        names = [self.name("the name of a result")]
        error = None
        while self._sees(","):
            comma = self.token
            self._next += 1
            if self._sees("="):
                error = self._error("a single result has no `,`", comma)
                break
            names.append(self.name("the name of a result"))
        if brackets is not None:
            self.expect(")" if brackets.text == "(" else "]")
            error = self._error("results are named without brackets", brackets)
        error = error or self._owned(names) or self._annotation(names)
        keys = self._assigned_keys(names)
        sign = self._augmented(names)
        error = error or self._arrow() or self._counted(names)
        help = "the result is assigned with one `=`" if self._sees("==") else None
        if error is not None and self.token.kind == "end":
            one = Literal(1, names[0].start, names[0].start)
            tree = Infix("+", names[0], one, names[0].start, names[0].end, names[0].start)
            return OpLine(tuple(names), tree, error)
        help = help or self._declared(names)
        if not self.take("=") and error is None:
            raise self.unexpected("`=` after the result's name", help)
        tree = self._joined_conditions(self.expression())
        if self._sees(",") and len(names) > 1:
            raise self._several(names, tree)
        if self._sees("=") and isinstance(tree, Name) and len(names) == 1:
            raise self._chain(names[0], tree)
        self.finish("call" if isinstance(tree, CallTree) else "expression")
        error = error or self._python
        if sign is not None:
            read: Tree = names[0]
            if keys is not None:
                read = Subscript(names[0], keys, names[0].start, sign.start)
            tree = Infix(sign.text, read, tree, tree.start, tree.end, sign.start)
            error = self._error(f"op lines have no `{sign.text}=`", sign)
        if keys is not None:
            parts = (names[0], *keys, tree)
            name = Name(ASSIGNED, names[0].start, names[0].end)
            arguments = tuple(Argument(None, part) for part in parts)
            tree = CallTree(name, arguments, names[0].start, tree.end)
            error = self._error(
                "op lines cannot assign to elements: tensors are immutable", names[0]
            )
        if error is not None:
            return OpLine(tuple(names), tree, error)
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

    def _bracketed(self) -> Token | None:
        """Consume the bracket that opens `(a, b) = x`, and return it."""
        ahead = "".join(t.text for t in self._tokens[self._next :]).partition("=")[0]
        if not re.fullmatch(r"[(\[][\w,]+[)\]]", ahead):
            return None
        self._next += 1
        return self._tokens[self._next - 1]

    def _returned(self, word: Token) -> FusecError:
        """Return the error of `return x + y`, suggesting the line that computes it."""
        text = self.source.text[word.end :].partition("\n")[0].strip()
        named = [part.strip() for part in text.split(",")]
        listed = all(part.isidentifier() for part in named)
        help = f"remove the line, and write `outputs: [{', '.join(named)}]`"
        if not listed:
            help = f"write `out = {text}`, and list `out` under `outputs:`"
        return FusecError(
            "op lines have no `return`", span=self.span(word), help=help, code=UNEXPECTED_TOKEN
        )

    def _owned(self, names: list[Name]) -> FusecError | None:
        """Name `p` for `p.data` and `y` for `self.y`, and return their error; None for others."""
        for place, name in enumerate(names):
            owner, dot, rest = name.text.partition(".")
            if dot and (rest == "data" or owner == "self") and "." not in rest:
                names[place] = replace(name, text=owner if rest == "data" else rest)
                return self._error(f"op lines have no attributes: `{name.text}`", name)
        return None

    def _declared(self, names: list[Name]) -> str | None:
        """Return what to write for `let y = x` and `float y = x`."""
        ahead = self._tokens[self._next :]
        words = next((k for k, token in enumerate(ahead) if token.kind != "name"), 0)
        if not words or ahead[words].text != "=" or len(names) > 1:
            return None
        text = self.source.text[ahead[words - 1].start :].partition("\n")[0].rstrip(" ;")
        return f"a result has a name alone: write `{text}`"

    def _arrow(self) -> FusecError | None:
        """Consume the `<-` or `:=` of an assignment, and return its error."""
        ahead = self._tokens[self._next : self._next + 2]
        signs = "".join(token.text for token in ahead)
        if signs not in ("<-", ":=") or ahead[0].end != ahead[1].start:
            return None
        self._next += 2
        return self._error(f"op lines have no `{signs}`", ahead[0])

    def _counted(self, names: list[Name]) -> FusecError | None:
        """Consume the sign of `x++`, and return its error."""
        ahead = [token.text for token in self._tokens[self._next : self._next + 3]]
        if ahead != ["+", "+", ""] or len(names) > 1:
            return None
        at = self.token
        self._next += 2
        return self._error("op lines have no `++`", at)

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
        """Return an expression in which a call replaces `a && b` unless both are conditions."""
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
        copied = [f"set({t})" if t.isidentifier() else t for t in texts]
        lines = [f"`{n.text} = {text}`" for n, text in zip(names, copied, strict=False)]
        known = len(names) == len(trees)
        return Divided(
            "an op line has one expression",
            span=self.span(comma),
            help=f"write {' and '.join(lines)}" if known else "write a line for each result",
            code=UNEXPECTED_TOKEN,
        )

    def _assigned_keys(self, names: list[Name]) -> tuple[Tree, ...] | None:
        """Consume the `[mask]` of `x[mask] = 0`, and return the keys."""
        if len(names) > 1 or not self.take("["):
            return None
        keys = [self._key()]
        while self.take(","):
            keys.append(self._key())
        self.expect("]", " or `,`")
        return tuple(keys)

    def _statement(self) -> OpLine:
        """Read a call without a result; its result is the value it writes, in place or to `out`."""
        first = self.token
        tree = self.expression()
        self.finish("call")
        error = FusecError(
            "an op line must name its result", span=self.span(first), code=UNNAMED_RESULT
        )
        return OpLine((_written(tree) or Name("y", first.start, first.end),), tree, error)

    def _annotation(self, names: list[Name]) -> FusecError | None:
        """Consume the `: torch.Tensor` of `y: torch.Tensor = x`."""
        colon, following = self.token, self._tokens[min(self._next + 1, len(self._tokens) - 1)]
        if len(names) > 1 or not self._sees(":") or following.text == "=":
            return None
        place = self._next
        while self.token.kind != "end" and not self._sees("="):
            self._next += 1
        if self.token.kind == "end":
            self._next = place
            return None
        return self._error("op lines have no annotations", colon)

    def _augmented(self, names: list[Name]) -> Token | None:
        """Consume the operator of `x *= y`."""
        sign, following = self.token, self._tokens[min(self._next + 1, len(self._tokens) - 1)]
        binary = any(sign.text in level for level in PRECEDENCE) or sign.text == "**"
        is_sign = sign.kind == "mark" and binary and sign.text not in COMPARISONS
        if len(names) > 1 or not is_sign or following.text != "=" or following.start != sign.end:
            return None
        self._next += 1
        return sign


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
