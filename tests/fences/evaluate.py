"""The values of expressions, and what evaluating them does to memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .phases import Step
from .scopes import Closure, Scope, State
from .syntax import Node
from .values import Either, Mask, Pointer, Unknown, binary, is_exact, is_uniform


class Evaluator(State):
    """The expressions of a kernel."""

    # --- conditions ---

    def condition(self, node: Node) -> tuple[Mask, Mask]:
        """Return the threads that may and that must meet a condition."""
        if node.kind == "binary" and node.text in ("&&", "||"):
            return self.both(node)
        if node.kind == "unary" and node.text == "!":
            may, must = self.condition(node.kids[0])
            return self.mask & ~must, self.mask & ~may
        return self.truth(self.value(node))

    def both(self, node: Node) -> tuple[Mask, Mask]:
        """Return the threads that meet `a && b` or `a || b`; b only where a does not decide."""
        before = self.mask
        may, must = self.condition(node.kids[0])
        self.mask = may if node.text == "&&" else before & ~must
        if self.mask.any():
            may_b, must_b = self.condition(node.kids[1])
        else:
            may_b = must_b = np.zeros_like(before)
        self.mask = before
        if node.text == "&&":
            return may & may_b, must & must_b
        return may | may_b, must | must_b

    def truth(self, value: Any) -> tuple[Mask, Mask]:
        """Return the threads for which a value may and must be true."""
        none = np.zeros_like(self.mask)
        if isinstance(value, Either):
            before = self.mask
            self.mask = before & value.mask
            first = self.truth(value.first) if self.mask.any() else (none, none)
            self.mask = before & ~value.mask
            second = self.truth(value.second) if self.mask.any() else (none, none)
            self.mask = before
            return first[0] | second[0], first[1] | second[1]
        if is_exact(value):
            met = self.mask & np.asarray(value, dtype=bool)
            return met, met
        if isinstance(value, Unknown) and value.is_uniform:
            goes = self.decisions.choose(str(value), 2) == 0
            return (self.mask, self.mask) if goes else (none, none)
        return self.mask, none

    # --- expressions ---

    def value(self, node: Node) -> Any:
        """Return an expression's value and do its effects."""
        return getattr(self, f"value_{node.kind}")(node)

    def value_number(self, node: Node) -> Any:
        """Return a number."""
        try:
            return int(node.text.rstrip("uUlL"), 0)
        except ValueError:
            return Unknown(node.text)

    def value_sizeof(self, node: Node) -> Any:
        """Return the bytes of a type."""
        tokens = (node.arguments or [[]])[0]
        text = self.scope.qualified("".join(t.text for t in tokens if t.text != "typename"))
        size = self.size_of(text)
        return Unknown(f"sizeof {text}") if size is None else size

    def value_name(self, node: Node) -> Any:
        """Return a variable's value."""
        if node.text in ("true", "false"):
            return int(node.text == "true")
        if self.sums.get(node.text) == "running":
            self.say(
                "wgmma wait", node, f"{node.text} is used while products run: wgmma_wait is missing"
            )
        scope = self.scope.find(node.text)
        if scope is None:
            return Unknown(node.text)
        value = scope.values[node.text]
        if isinstance(value, Pointer) and value.left == 0 and value.type.endswith("&"):
            return self.load(value, node)
        if (
            isinstance(value, Pointer)
            and value.space == "shared"
            and value.left == 0
            and not value.index
        ):
            return self.load(value, node)
        return value

    def value_lambda(self, node: Node) -> Any:
        """Return a function object."""
        return Closure(node, self.scope)

    def value_list(self, node: Node) -> Any:
        """Return nothing known."""
        varies = not all([is_uniform(self.value(kid)) for kid in node.kids])
        return self.unknown("list", varies)

    def value_choice(self, node: Node) -> Any:
        """Return `a ? b : c`."""
        before = self.mask
        condition = self.value(node.kids[0])
        if isinstance(condition, Unknown) and condition.is_uniform:
            values = [self.value(kid) for kid in node.kids[1:]]
            if all(is_uniform(v) for v in values):
                return Unknown(f"({condition} ? {values[0]} : {values[1]})")
            return Unknown("?", True)
        may, must = self.truth(condition)
        self.mask = may
        first = self.value(node.kids[1]) if may.any() else 0
        self.mask = before & ~must
        second = self.value(node.kids[2]) if self.mask.any() else 0
        self.mask = before
        if (may == must).all():
            if must[before].all():
                return first
            if not may.any():
                return second
            if is_exact(first) and is_exact(second):
                return np.where(must, first, second)
            if is_uniform(first) and is_uniform(second):
                return Either(must, first, second)
        return Unknown("?", True)

    def value_unary(self, node: Node) -> Any:
        """Return what a sign before an operand makes of it."""
        if node.text == "&":
            place = self.place(node.kids[0])
            return Unknown("&", True) if place is None else place
        if node.text == "*":
            place = self.place(node)
            return self.unknown("*", True) if place is None else self.load(place, node)
        value = self.value(node.kids[0])
        if node.text == "+":
            return value
        if node.text == "-":
            return binary("-", 0, value)
        if is_exact(value):
            return np.logical_not(value) if node.text == "!" else ~np.asarray(value)
        if isinstance(value, Unknown):
            return Unknown(f"{node.text}({value})", not value.is_uniform)
        return Unknown("?", True)

    def value_binary(self, node: Node) -> Any:
        """Return what two operands make."""
        if node.text in ("&&", "||"):
            return self.short_circuit(node)
        a, b = self.value(node.kids[0]), self.value(node.kids[1])
        if isinstance(b, Pointer) and node.text == "+":
            a, b = b, a
        if isinstance(a, Pointer):
            if isinstance(b, Pointer) or node.text not in "+-":
                return Unknown("?", True)
            return a.plus(b if node.text == "+" else binary("-", 0, b))
        return binary(node.text, a, b)

    def short_circuit(self, node: Node) -> Any:
        """Return `a && b` or `a || b`, deciding nothing."""
        a = self.value(node.kids[0])
        if is_exact(a) and not isinstance(a, np.ndarray) and bool(a) == (node.text == "||"):
            return int(bool(a))
        before = self.mask
        if is_exact(a):
            self.mask = before & (np.asarray(a, dtype=bool) == (node.text == "&&"))
        b = self.value(node.kids[1]) if self.mask.any() else a
        self.mask = before
        if isinstance(b, Pointer):
            return Unknown("?", True)
        return binary(node.text, a, b)

    def value_index(self, node: Node) -> Any:
        """Return an element."""
        place = self.place(node)
        if place is None or place.left:
            return self.unknown("element", True) if place is None else place
        return self.load(place, node)

    def value_member(self, node: Node) -> Any:
        """Return a field."""
        known = self.builtin.get(f"{node.kids[0].text}.{node.text}")
        if known is not None:
            return known
        place = self.place(node)
        if place is not None:
            return place if place.left else self.load(place, node)
        base = self.value(node.kids[0])
        if isinstance(base, Unknown) and base.is_uniform:
            return Unknown(f"{base}.{node.text}")
        return Unknown("?", True)

    def value_step(self, node: Node) -> Any:
        """Return a variable after or before one more or less."""
        old = self.value(node.kids[0])
        new = binary(node.text[0], old, 1)
        self.assign(node.kids[0], new, node)
        return new

    def value_assign(self, node: Node) -> Any:
        """Assign and return the new value."""
        target, source = node.kids
        value = self.value(source)
        if node.text != "=":
            if isinstance(value, (Pointer, Closure)):
                value = Unknown("?", True)
            old = self.value(target)
            value = (
                old.plus(value) if isinstance(old, Pointer) and node.text == "+="
                else binary(node.text[:-1], old, value)
            )  # fmt: skip
        self.assign(target, value, node)
        return value

    def assign(self, target: Node, value: Any, node: Node) -> None:
        """Give a variable, or a place in memory, a value."""
        place = self.place(target)
        scope = self.scope.find(target.text) if target.kind == "name" else None
        is_memory = place is not None and (
            place.type.endswith("&") or (place.space == "shared" and not place.index)
        )
        if scope is not None and not is_memory:
            scope.values[target.text] = self.merged(scope, target.text, value)
        elif place is not None:
            self.store(place, node)
        elif target.kind in ("index", "member"):
            self.value(target.kids[-1])

    def merged(self, scope: Scope, name: str, value: Any) -> Any:
        """Return a variable's value after an assignment by the threads that run now."""
        old = scope.values[name]
        since, unsure = scope.since.get(name, (np.ones(self.threads, dtype=bool), 0))
        if self.unsure > unsure and not isinstance(value, Pointer):
            return (
                value
                if is_exact(value) and is_exact(old) and np.all(value == old)
                else (self.unknown(name, True))
            )
        if not (since & ~self.mask & ~self.gone).any():
            return value
        if is_exact(old) and is_exact(value):
            return np.where(self.mask, value, old)
        return self.unknown(name, True)

    # --- memory ---

    def place(self, node: Node) -> Pointer | None:
        """Return the place of an expression in shared or global memory, None for a local one."""
        if node.kind == "name":
            scope = self.scope.find(node.text)
            value = scope.values[node.text] if scope else None
            is_place = isinstance(value, Pointer) and (
                value.type.endswith("&") or not value.index or value.left > 0
            )
            return value if is_place else None
        if node.kind == "index":
            inner = node.kids[0].kind == "index"
            value = self.place(node.kids[0]) if inner else self.value(node.kids[0])
            index = self.value(node.kids[1])
            if not isinstance(value, Pointer):
                return None
            if inner and not value.left:
                return value.component(index)
            return value.plus(index)
        if node.kind == "member":
            base = self.place(node.kids[0])
            if base is None and node.kids[0].kind == "name":
                value = self.value(node.kids[0])
                base = value if isinstance(value, Pointer) else None
            if base is None or base.space != "shared":
                return None
            return base.part(node.text, self.fields.get(node.text, 0))
        if node.kind == "unary" and node.text == "*":
            value = self.value(node.kids[0])
            if not isinstance(value, Pointer):
                return None
            return value.plus(0) if value.left or not value.index else value
        return None

    def length(self, place: Pointer, elements: int | None = 1) -> int | None:
        """Return how many units of its index an access takes."""
        if elements is None or place.size is None:
            return None
        return elements * place.size

    def load(self, place: Pointer, node: Node, length: int | None = -1) -> Any:
        """Read memory."""
        line = self.line(node)
        if place.space == "global":
            if "__restrict__" not in place.type and not self.order.acquired[self.mask].all():
                self.order.early_reads.append((place.root, line))
        elif place.space == "shared":
            if length == -1:
                length = self.length(place)
            self.order.access("read", place, length, self.mask, line)
            self.span_read(place, length, node)
        return self.unknown(
            "load", not all(is_uniform(i) for i in place.index) or place.space != "shared"
        )

    def span_read(self, place: Pointer, length: int | None, node: Node) -> None:
        """Let a read of what copies fill take part in the phases of their barriers."""
        at = place.index[-1] if place.index else 0
        if not self.steps or length is None or not is_exact(at):
            return
        held = np.broadcast_to(np.asarray(at), self.mask.shape)[self.mask]
        span = (place.root, int(held.min()), int(held.max()) + length)
        self.read_step(span, node, ends=True)

    def read_step(self, span: tuple[str, int, int], node: Node, ends: bool) -> int:
        """Note that these threads begin to read a span; return the number of the read."""
        number = len(self.steps)
        line, mask = self.line(node), self.mask.copy()
        self.steps.append(Step("begin", line, mask, span=span))
        if ends:
            self.steps.append(Step("end", line, mask, value=number, span=span))
        return number

    def store(self, place: Pointer, node: Node, length: int | None = -1) -> None:
        """Write memory."""
        line = self.line(node)
        if length == -1:
            length = self.length(place)
        if place.space == "global":
            self.order.written.add(place.root)
            self.order.access(
                "write",
                replace(place, root=f"global {place.root}", index=()),
                1,
                self.mask,
                line,
                **{},
            )
            return
        if place.space == "shared":
            site = (*self.lines, node.line)
            new = self.order.access("write", place, length, self.mask, line, site=site)
            self.order.check_peers(new, line)

    # --- calls ---

    def value_call(self, node: Node) -> Any:
        """Call a function."""
        from .calls import call

        return call(self, node)
