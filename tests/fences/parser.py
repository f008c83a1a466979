"""A parser of the statements and expressions of kernels and device headers."""

from __future__ import annotations

import re

from .syntax import (
    ASSIGNMENTS,
    LEVELS,
    QUALIFIERS,
    Declared,
    Node,
    Parameter,
    SyntaxProblem,
    Token,
    angle_end,
    matching,
    parameter,
    split,
    tokens_of,
)


class Parser:
    """A parser of the statements in `tokens`."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        """Return the text of a coming token; empty past the end."""
        i = self.at + ahead
        return self.tokens[i].text if i < len(self.tokens) else ""

    @property
    def line(self) -> int:
        """The line of the next token."""
        return self.tokens[min(self.at, len(self.tokens) - 1)].line

    def take(self, text: str = "") -> Token:
        """Step over the next token, which is `text` if that is given."""
        if self.at >= len(self.tokens) or (text and self.peek() != text):
            raise SyntaxProblem(f"line {self.line}: {text!r} expected at {self.peek()!r}")
        self.at += 1
        return self.tokens[self.at - 1]

    def skip_past(self, text: str) -> None:
        """Step over all up to and with `text`, brackets as a whole."""
        while self.peek() != text:
            self.at = matching(self.tokens, self.at) if self.peek() in ("(", "{", "[") else self.at
            self.take()
        self.take()

    # --- statements ---

    def statement(self) -> Node:
        """Return the next statement."""
        line, text = self.line, self.peek()
        if text == "{":
            self.take()
            kids: list[Node] = []
            while self.peek() != "}":
                kids.append(self.statement())
            self.take()
            return Node("block", line, kids=kids)
        if text in ("static_assert", "asm"):
            self.skip_past(";")
            return Node("block", line)
        if text.startswith("FUSEC_"):  # a macro of instructions
            self.take()
            self.at = matching(self.tokens, self.at) + 1
            return Node("block", line)
        if text == "using":
            return self.alias()
        if text in ("if", "for", "while"):
            return getattr(self, f"{text}_statement")()
        if text in ("return", "break", "continue"):
            self.take()
            kids = [] if self.peek() == ";" else [self.expression()]
            self.take(";")
            return Node(text, line, kids=kids)
        if text == ";":
            self.take()
            return Node("block", line)
        node = self.declaration() or Node("do", line, kids=[self.expression()])
        self.take(";")
        return node

    def alias(self) -> Node:
        """Return `using name = type;`."""
        line = self.take("using").line
        name = self.take().text
        start = self.at
        self.skip_past(";")
        return Node("using", line, name, arguments=[self.tokens[start + 1 : self.at - 1]])

    def if_statement(self) -> Node:
        """Return a branch: condition, body, and what else."""
        line = self.take("if").line
        if self.peek() == "constexpr":
            self.take()
        self.take("(")
        kids = [self.expression()]
        self.take(")")
        kids.append(self.statement())
        if self.peek() == "else":
            self.take()
            kids.append(self.statement())
        return Node("if", line, kids=kids)

    def for_statement(self) -> Node:
        """Return a loop: start, condition, step, body."""
        line = self.take("for").line
        self.take("(")
        start = self.statement()
        condition = Node("number", line, "1") if self.peek() == ";" else self.expression()
        self.take(";")
        step = Node("block", line) if self.peek() == ")" else self.expression()
        self.take(")")
        return Node("for", line, kids=[start, condition, step, self.statement()])

    def while_statement(self) -> Node:
        """Return a loop without start and step."""
        line = self.take("while").line
        self.take("(")
        condition = self.expression()
        self.take(")")
        empty = Node("block", line)
        return Node("for", line, kids=[empty, condition, empty, self.statement()])

    def declaration(self) -> Node | None:
        """Return a declaration, or None where an expression begins."""
        start = self.at
        type_text = self.type_text()
        if type_text is None or not re.match(r"[A-Za-z_]", self.peek()):
            self.at = start
            return None
        if self.peek(1) not in ("=", ";", "[", "{", "(", ","):
            self.at = start
            return None
        line = self.line
        kids: list[Node] = []
        while True:
            kids.append(self.declarator(type_text))
            if self.peek() != ",":
                return kids[0] if len(kids) == 1 else Node("block", line, "declare", kids)
            self.take()

    def declarator(self, type_text: str) -> Node:
        """Return one declared variable with its initial value."""
        name = self.take()
        extents: list[Node] = []
        while self.peek() == "[":
            self.take()
            extents.append(
                Node("number", name.line, "0") if self.peek() == "]" else self.expression()
            )
            self.take("]")
        value: list[Node] = []
        if self.peek() == "=":
            self.take()
            value = [self.expression()]
        elif self.peek() in ("{", "("):
            value = [self.listed(matching(self.tokens, self.at))]
        words = type_text.split()
        declared = Declared(
            name.text, type_text, tuple(extents), "&" in words, "__shared__" in words
        )
        return Node("declare", name.line, kids=value, declared=declared)

    def type_text(self) -> str | None:
        """Step over a type and return its text; None where there is none."""
        words: list[str] = []
        named = False
        while True:
            text = self.peek()
            if text in QUALIFIERS:
                named = named or text in ("unsigned", "long", "short", "signed")
                words.append(self.take().text)
            elif text in ("__align__", "alignas"):
                self.take()
                self.at = matching(self.tokens, self.at) + 1
            elif text in ("*", "&") and named:
                words.append(self.take().text)
            elif re.match(r"[A-Za-z_]", text) and not named:
                words.append(self.name_text())
                if not words[-1]:
                    return None
                named = True
            elif named and text in ("char", "int", "long", "short"):
                words.append(self.take().text)
            else:
                return " ".join(words) if named else None

    def name_text(self) -> str:
        """Step over a qualified name with template arguments and return its text."""
        text = self.take().text
        while True:
            if self.peek() == "<":
                end = angle_end(self.tokens, self.at)
                if end is None:
                    return text
                text += "".join(t.text for t in self.tokens[self.at : end + 1])
                self.at = end + 1
            elif self.peek() == "::":
                self.take()
                text += "::" + self.take().text
            else:
                return text

    # --- expressions ---

    def expression(self) -> Node:
        """Return an expression with assignments."""
        left = self.binary(0)
        if self.peek() == "?":
            line = self.take().line
            middle = self.expression()
            self.take(":")
            left = Node("choice", line, kids=[left, middle, self.expression()])
        text = self.peek()
        if text in ASSIGNMENTS:
            line = self.take().line
            return Node("assign", line, text, [left, self.expression()])
        return left

    def operator(self) -> str:
        """Return the coming binary operator; a shift to the right comes as two signs."""
        if self.peek() == ">" and self.peek(1) == ">":
            first, second = self.tokens[self.at : self.at + 2]
            if second.start == first.start + 1:
                return ">>"
        return self.peek()

    def binary(self, level: int) -> Node:
        """Return an expression of operators from `level` on."""
        if level == len(LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while (sign := self.operator()) in LEVELS[level]:
            line = self.line
            self.at += 2 if sign == ">>" else 1
            left = Node("binary", line, sign, [left, self.binary(level + 1)])
        return left

    def unary(self) -> Node:
        """Return an operand with the signs before it."""
        line, text = self.line, self.peek()
        if text in ("++", "--"):
            self.take()
            return Node("step", line, text, [self.unary()])
        if text in ("-", "!", "~", "*", "&", "+"):
            self.take()
            return Node("unary", line, text, [self.unary()])
        return self.postfix()

    def postfix(self) -> Node:
        """Return a primary with calls, indices and members."""
        node = self.primary()
        while True:
            line, text = self.line, self.peek()
            if text == "(":
                end = matching(self.tokens, self.at)
                node = Node("call", line, node.text, [node, *self.listed(end).kids])
                node.arguments = node.kids[0].arguments
            elif text == "[":
                self.take()
                node = Node("index", line, kids=[node, self.expression()])
                self.take("]")
            elif text in (".", "->"):
                self.take()
                if self.peek() == "template":
                    self.take()
                node = Node("member", line, self.take().text, [node])
                end = angle_end(self.tokens, self.at) if self.peek() == "<" else None
                if end is not None and [t.text for t in self.tokens[end + 1 : end + 2]] == ["("]:
                    node.arguments = split(self.tokens[self.at + 1 : end])
                    self.at = end + 1
            elif text in ("++", "--"):
                self.take()
                node = Node("step", line, text, [node])
            elif text == "...":
                self.take()
            elif text == "{" and node.kind == "name":
                node = self.listed(matching(self.tokens, self.at), node.text)
            else:
                return node

    def listed(self, end: int, name: str = "") -> Node:
        """Return what stands between commas up to the bracket at `end`; name: of its type."""
        node = Node("list", self.line, name)
        self.take()
        while self.at < end:
            node.kids.append(self.expression())
            if self.at < end:
                self.take(",")
        self.at = end + 1
        return node

    def primary(self) -> Node:
        """Return a number, name, list, lambda or what stands in parentheses."""
        if self.peek() == "::":
            self.take()
        line, text = self.line, self.peek()
        if text == "(":
            self.take()
            node = self.expression()
            self.take(")")
            return node
        if text == "[":
            return self.function_object()
        if text == "{":
            return self.listed(matching(self.tokens, self.at))
        if re.match(r"[\d.\"]", text):
            return Node("number", line, self.take().text)
        if text == "sizeof":
            self.take()
            end = matching(self.tokens, self.at)
            inside = self.tokens[self.at + 1 : end]
            self.at = end + 1
            return Node("sizeof", line, arguments=[inside])
        if not re.match(r"[A-Za-z_]", text):
            raise SyntaxProblem(f"line {line}: an expression expected at {text!r}")
        return self.name()

    def name(self) -> Node:
        """Return a qualified name, with the template arguments of its last part."""
        node = Node("name", self.line, self.take().text)
        while True:
            if self.peek() == "<":
                end = angle_end(self.tokens, self.at)
                after = self.tokens[end + 1].text if end and end + 1 < len(self.tokens) else ""
                is_constant = node.text.startswith("k") and not re.match(r"[\w.]", after)
                if end is None or (after not in ("(", "::", "{") and not is_constant):
                    return node
                node.arguments = split(self.tokens[self.at + 1 : end])
                self.at = end + 1
                if after == "{":
                    given = node.arguments
                    node = self.listed(matching(self.tokens, self.at), node.text)
                    node.arguments = given
                    return node
            elif self.peek() == "::":
                self.take()
                node = Node("name", node.line, f"{node.text}::{self.take().text}")
            else:
                return node

    def function_object(self) -> Node:
        """Return a lambda."""
        line = self.line
        self.at = matching(self.tokens, self.at) + 1
        parameters = list[Parameter]()
        if self.peek() == "(":
            end = matching(self.tokens, self.at)
            parameters = [parameter(p) for p in split(self.tokens[self.at + 1 : end])]
            self.at = end + 1
        while self.peek() != "{":
            self.take()
        return Node("lambda", line, kids=[self.statement()], parameters=parameters)


def policy_head(tokens: list[Token], start: int) -> list[str]:
    """Return the words between `struct` and its body if it has constants alone, else none."""
    end = next(k for k in range(start, len(tokens)) if tokens[k].text in ("{", ";"))
    words = [token.text for token in tokens[start + 1 : end]]
    is_policy = any(word == "Config" or word.startswith("Plain") for word in words)
    return words if is_policy and tokens[end].text == "{" else []


def constants_of(text: str) -> list[Node]:
    """Return the constants and aliases declared outside of functions."""
    tokens = tokens_of(text)
    found: list[Node] = []
    depth = i = 0
    while i < len(tokens):
        word = tokens[i].text
        if word == "struct" and (head := policy_head(tokens, i)):
            begin = i + len(head) + 1
            end = matching(tokens, begin)
            parser = Parser(tokens[begin + 1 : end])
            found.append(Node("struct", tokens[i].line, head[0], base=head[-1] if head[1:] else ""))
            while parser.at < len(parser.tokens):
                found[-1].kids.append(parser.statement())
            i = end
        elif word == "{" and not (i > 1 and tokens[i - 2].text == "namespace"):
            i, depth = matching(tokens, i), 0
        elif word == "(":
            i = matching(tokens, i)
        elif word == "template" and (end := angle_end(tokens, i + 1)):
            i = end
            depth = 1  # what follows is a template
        elif word == ";":
            depth = 0
        elif word in ("constexpr", "using") and depth == 0:
            parser = Parser(tokens)
            parser.at = i
            try:
                found.append(parser.statement())
                i = parser.at - 1
            except SyntaxProblem:
                pass  # a function
        i += 1
    return found
