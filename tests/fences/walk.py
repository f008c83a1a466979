"""Follows a kernel's text, all threads of a block together, and tells `Order` what they do.

Conditions that differ between threads run their bodies with fewer threads. Conditions and trip
counts that are unknown but the same in all threads are decided, one way in each run; the runs
together take every way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from .effects import EFFECTS
from .order import Order
from .phases import Step
from .syntax import Function, Node, Parser, SyntaxProblem, Token
from .values import Either, Mask, Pointer, Unknown, binary, is_exact, is_uniform, text_of

SIZES = {
    "char": 1, "bool": 1, "i8": 1, "u8": 1, "f8e4m3": 1, "f8e5m2": 1, "f16": 2, "bf16": 2,
    "i16": 2, "u16": 2, "float": 4, "int": 4, "i32": 4, "u32": 4, "unsigned": 4, "double": 8,
    "i64": 8, "u64": 8, "float4": 16, "float2": 8, "uint4": 16, "Barrier": 8,
}  # fmt: skip
MOST_TRIPS = 12  # of a loop whose number of trips is known: what comes later is alike
BLOCK_BYTES = 64 * 128  # of the 64 x 64 piece of an operand that multiply_stage takes


class Decisions:
    """The ways taken in one run."""

    def __init__(self, given: tuple[int, ...] = ()) -> None:
        self.given = given
        self.taken: list[tuple[int, int]] = []
        self.known: dict[str, int] = {}

    def choose(self, key: str, options: int) -> int:
        """Return the way for a condition; the same condition goes the same way."""
        if key not in self.known:
            at = len(self.taken)
            choice = self.given[at] if at < len(self.given) else 0
            self.taken.append((choice, options))
            self.known[key] = choice
        return self.known[key]

    def others(self) -> list[tuple[int, ...]]:
        """Return the ways that differ from this run's in one decision after those given."""
        choices = [c for c, _ in self.taken]
        return [
            (*choices[:at], other)
            for at in range(len(self.given), len(self.taken))
            for other in range(1, self.taken[at][1])
        ]


class Closure:
    """A lambda and where it was made."""

    def __init__(self, node: Node, scope: Scope) -> None:
        self.node = node
        self.scope = scope


class Scope:
    """Variables and type aliases; inner scopes see the outer ones."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.outer = outer
        self.values: dict[str, Any] = {}
        self.since: dict[str, tuple[Mask, int]] = {}  # who ran the declaration, how unsure
        self.types: dict[str, str] = {}

    def find(self, name: str) -> Scope | None:
        """Return the scope that has a variable."""
        scope: Scope | None = self
        while scope is not None and name not in scope.values:
            scope = scope.outer
        return scope

    def type_of(self, name: str) -> str:
        """Return what an alias stands for."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.types and scope.types[name] != name:
                return self.type_of(scope.types[name])
            scope = scope.outer
        return name


class Frame:
    """A call that is under way: the threads that left it, and what it returned."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.left: Mask | None = None
        self.maybe_left = False
        self.is_doubtful = False  # a loop that some threads may have left
        self.results: list[tuple[Mask, Any]] = []


class Walk:
    """One run through a kernel."""

    def __init__(
        self,
        functions: Mapping[str, list[Function]],
        interesting: frozenset[str],
        shape: tuple[int, int],
        decisions: Decisions,
    ) -> None:
        self.functions = functions
        self.interesting = interesting
        self.shape = shape
        self.threads = shape[0] * shape[1]
        self.order = Order(self.threads)
        self.order.has_async = bool(interesting & {"bulk_store", "multiply_stage", "add_sums"})
        self.decisions = decisions
        self.steps: list[Step] = []
        self.mask: Mask = np.ones(self.threads, dtype=bool)
        self.gone: Mask = np.zeros(self.threads, dtype=bool)
        self.doubtful = 0  # depth of conditions that some of the threads may not meet
        self.unsure = 0  # the same without those of loops
        self.scope = Scope()
        self.globals = self.scope
        self.fields: Mapping[str, int] = {}  # extents of the arrays that structs hold
        self.fenced_sums = False
        self.constant_reads: list[tuple[str, int]] = []
        self.frames = [Frame("")]
        self.loops: list[Frame] = []
        self.loads = 0
        self.lines: list[int] = []  # where the kernel called what is being followed
        self.sums: dict[str, str] = {}  # accumulators: ready, running
        self.pending: list[list[int]] = []  # reads by wgmma, by committed group
        self.open: list[int] = []
        number = np.arange(self.threads, dtype=np.int64)
        self.builtin = {
            "threadIdx.x": number % shape[0] if shape[0] > 1 else 0,
            "threadIdx.y": number // shape[0] if shape[1] > 1 else 0,
            "threadIdx.z": 0, "blockDim.x": shape[0], "blockDim.y": shape[1],
        }  # fmt: skip

    # --- small things ---

    def line(self, node: Node) -> int:
        """Return the kernel's line in which `node` happens."""
        return self.lines[0] if self.lines else node.line

    def say(self, rule: str, node: Node, message: str) -> None:
        """Report a violation."""
        self.order.say(rule, self.line(node), message)

    def unknown(self, what: str, varies: bool) -> Unknown:
        """Return a new unknown number."""
        self.loads += 1
        return Unknown(f"{what}#{self.loads}", varies)

    def size_of(self, type_text: str) -> int | None:
        """Return the bytes of a type."""
        text = type_text.replace("const ", "").replace("fusec::", "").strip(" *&")
        text = text if text in SIZES else self.scope.type_of(text)
        if text in SIZES:
            return SIZES[text]
        match = re.fullmatch(r"(?:fusec::)?Vec\s*<(.*),(.*)>", text.replace(" ", ""))
        if match:
            each, count = self.size_of(match[1]), self.number(match[2])
            return each * count if each and count else None
        words = [w for w in text.split() if w in SIZES]
        return SIZES[words[-1]] if words else None

    def number(self, text: str) -> int | None:
        """Return a constant expression's value."""
        from .syntax import tokens_of

        return self.constant(tokens_of(text))

    def constant(self, tokens: list[Token]) -> int | None:
        """Return the value of the constant expression in `tokens`."""
        try:
            parser = Parser(tokens)
            node = parser.expression()
            if parser.at < len(tokens):
                return None
        except (SyntaxProblem, IndexError):
            return None
        value = self.value(node)
        return int(value) if is_exact(value) and not isinstance(value, np.ndarray) else None

    # --- statements ---

    def run(self, node: Node, mask: Mask) -> None:
        """Run a statement with the threads of `mask` that have not left."""
        mask = mask & ~self.gone
        for frame in (self.frames[-1], *self.loops[-1:]):
            if frame.left is not None:
                mask = mask & ~frame.left
        if not mask.any():
            return
        before, self.mask = self.mask, mask
        getattr(self, f"run_{node.kind}")(node)
        self.mask = before

    def run_block(self, node: Node) -> None:
        """Run statements one after the other."""
        mask = self.mask
        if node.text == "declare":
            for kid in node.kids:
                self.run(kid, mask)
            return
        self.scope = Scope(self.scope)
        for kid in node.kids:
            self.run(kid, mask)
        assert self.scope.outer is not None
        self.scope = self.scope.outer

    def run_using(self, node: Node) -> None:
        """Declare a type."""
        self.scope.types[node.text] = "".join(t.text for t in (node.arguments or [[]])[0])

    def run_do(self, node: Node) -> None:
        """Evaluate for the effects."""
        self.value(node.kids[0])

    def run_declare(self, node: Node) -> None:
        """Declare a variable."""
        declared = node.declared
        assert declared is not None
        if declared.is_shared:
            value: Any = self.shared_array(node)
        elif declared.is_reference and node.kids:
            place = self.place(node.kids[0])
            value = self.value(node.kids[0]) if place is None else replace(place, type="&")
        elif declared.extents or not node.kids or node.kids[0].kind == "list":
            for kid in node.kids:
                self.value(kid)
            value = self.unknown(declared.name, True)
        else:
            value = self.value(node.kids[0])
            if isinstance(value, Pointer) and "*" in declared.type and "auto" not in declared.type:
                value = replace(value, type=declared.type)
        self.scope.values[declared.name] = value
        self.scope.since[declared.name] = self.mask.copy(), self.unsure

    def shared_array(self, node: Node) -> Pointer:
        """Return the place of a shared variable."""
        declared = node.declared
        assert declared is not None
        if "extern" in declared.type.split():
            return Pointer(declared.name, "shared", (0,), 0, self.size_of(declared.type))
        frame = self.frames[-1].name
        root = f"{declared.name}@{frame}" if frame else declared.name
        return Pointer(root, "shared", (), len(declared.extents), 1, declared.type)

    def run_if(self, node: Node) -> None:
        """Run the body with the threads that meet the condition, the other part with the others."""
        before = self.mask
        may, must = self.condition(node.kids[0])
        doubt = bool((may != must).any())
        self.doubtful += doubt
        self.unsure += doubt
        self.run(node.kids[1], may)
        if len(node.kids) > 2:
            self.run(node.kids[2], before & ~must)
        self.doubtful -= doubt
        self.unsure -= doubt

    def run_return(self, node: Node) -> None:
        """Leave the function."""
        frame = self.frames[-1]
        if node.kids:
            frame.results.append((self.mask.copy(), self.value(node.kids[0])))
        if self.doubtful and frame.name == "":
            frame.maybe_left = True
            return
        frame.left = self.mask.copy() if frame.left is None else frame.left | self.mask
        if len(self.frames) == 1:
            self.order.leave(self.mask, self.line(node))
            self.gone = self.gone | self.mask

    def run_continue(self, node: Node) -> None:
        """Leave this trip of the loop."""
        frame = self.loops[-1]
        if self.doubtful:
            frame.maybe_left = True
            return
        frame.left = self.mask.copy() if frame.left is None else frame.left | self.mask

    def run_break(self, node: Node) -> None:
        """Leave the loop, which is cut short here."""
        self.run_continue(node)

    def is_dull(self, node: Node) -> bool:
        """Return whether nothing in a loop's body matters to order."""
        words = node.words
        if words & self.interesting or node.returns:
            return False
        for word in words:
            scope = self.scope.find(word)
            value = scope.values[word] if scope else None
            if isinstance(value, Pointer) and value.space == "shared":
                return False
            if isinstance(value, Closure) and not self.is_dull(value.node.kids[0]):
                return False
        return not (words & set(self.sums))

    def run_for(self, node: Node) -> None:
        """Run a loop."""
        start, condition, step, body = node.kids
        self.scope = Scope(self.scope)
        mask = self.mask
        if self.is_dull(node):
            self.forget(node)
        else:
            if start.kind == "declare":
                self.run_declare(start)
            else:
                self.run(start, mask)
            self.loops.append(Frame("loop"))
            self.trips(condition, step, body, mask)
            if self.loops.pop().is_doubtful:
                self.forget(node)
        assert self.scope.outer is not None
        self.scope = self.scope.outer

    def forget(self, node: Node) -> None:
        """Take what a loop assigns as unknown."""
        known = [(w, self.scope.find(w)) for w in node.words]
        varies = "threadIdx" in node.words or not all(
            is_uniform(scope.values[w]) for w, scope in known if scope is not None
        )
        for name in node.assigned:
            scope = self.scope.find(name)
            if scope is not None and not isinstance(scope.values[name], Pointer):
                scope.values[name] = self.unknown(name, varies)

    def trips(self, condition: Node, step: Node, body: Node, mask: Mask) -> None:
        """Run a loop's body as often as it runs, or as is decided."""
        limit: int | None = None
        stages = self.value(Node("name", body.line, "kStages"))
        varying = self.counts(body)[0]
        most = max(MOST_TRIPS, 2 * int(stages) + 1) if is_exact(stages) else MOST_TRIPS
        for trip in range(most):
            self.mask = mask & ~self.gone
            if self.frames[-1].left is not None:
                self.mask = self.mask & ~self.frames[-1].left
            if not self.mask.any():
                return
            may, must, options = self.trip(condition, trip, limit, body)
            limit = options if limit is None else limit
            if not may.any():
                return
            doubt = bool((may != must).any())
            if doubt and trip >= varying:
                return
            self.doubtful += doubt
            self.loops[-1].is_doubtful |= doubt
            self.loops[-1].left, self.loops[-1].maybe_left = None, False
            self.run(body, may)
            self.loops[-1].left, self.loops[-1].maybe_left = None, False
            self.mask = may
            if step.kind != "block":
                self.value(step)
            self.doubtful -= doubt

    def trip(
        self, condition: Node, trip: int, limit: int | None, body: Node
    ) -> tuple[Mask, Mask, int | None]:
        """Return which threads may and must make a trip, and the trips decided on."""
        value = self.value(condition)
        lanes, unknown = self.mask, value
        if isinstance(value, Either) and is_exact(value.second) and not np.any(value.second):
            lanes, unknown = self.mask & value.mask, value.first
        if isinstance(unknown, Unknown) and unknown.is_uniform:
            if limit is None:
                counts = self.counts(body)
                limit = counts[self.decisions.choose(f"trips {unknown}", len(counts))]
            goes = lanes if trip < limit else np.zeros_like(lanes)
            return goes, goes, limit
        may, must = self.truth(value)
        return may, must, limit

    def counts(self, body: Node) -> tuple[int, ...]:
        """Return the numbers of trips that are tried of a loop whose number is not known."""
        stages = self.value(Node("name", body.line, "kStages"))
        if is_exact(stages) and not has_ring_inside(body):
            return (2 * int(stages) + 1, 1, 0)
        return (2, 0)

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
        text = "".join(t.text for t in (node.arguments or [[]])[0])
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
        if isinstance(value, Pointer) and value.space == "shared" and value.left == 0 and not value.index:
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
            return value if is_exact(value) and is_exact(old) and np.all(value == old) else (
                self.unknown(name, True)
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
        return self.unknown("load", not all(is_uniform(i) for i in place.index) or place.space != "shared")

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
            self.order.access("write", replace(place, root=f"global {place.root}", index=()), 1, self.mask, line, **{})
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


RINGS = frozenset({"wait", "copy_commit", "fetch"})


def has_ring_inside(node: Node) -> bool:
    """Return whether a loop inside waits for the stages of a ring."""
    if node.kind == "for" and node.words & RINGS:
        return True
    return any(has_ring_inside(kid) for kid in node.kids)
