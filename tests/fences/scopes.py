"""The state of one run through a kernel: variables, calls under way, and what was decided."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from .order import Order
from .parser import Parser
from .phases import Step
from .syntax import Function, Node, SyntaxProblem, Token, tokens_of
from .values import Mask, Unknown, is_exact

SIZES = {
    "char": 1, "bool": 1, "i8": 1, "u8": 1, "f8e4m3": 1, "f8e5m2": 1, "f16": 2, "bf16": 2,
    "i16": 2, "u16": 2, "float": 4, "int": 4, "i32": 4, "u32": 4, "unsigned": 4, "double": 8,
    "i64": 8, "u64": 8, "float4": 16, "float2": 8, "uint4": 16, "Barrier": 8,
}  # fmt: skip

DYNAMIC = frozenset({"shared", "shared_memory"})  # the shared memory sized at launch


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

    def trips(self, condition: str, counts: tuple[int, ...]) -> int:
        """Return how often a loop runs whose condition holds, or not, where it begins.

        Whoever asks for that condition by itself goes the same way.
        """
        if self.known.get(condition) == 1:
            return 0
        trips = counts[self.choose(f"trips {condition}", len(counts))]
        self.known.setdefault(condition, int(trips == 0))
        return trips

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

    def qualified(self, name: str) -> str:
        """Return a name behind `::` with the type that an alias or a parameter stands for."""
        first, colons, last = name.rpartition("::")
        if not colons:
            return name
        return f"{self.type_of('::'.join(map(self.type_of, first.split('::'))))}::{last}"


class Frame:
    """A call that is under way: the threads that left it, and what it returned."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.left: Mask | None = None
        self.maybe_left = False
        self.is_doubtful = False  # a loop that some threads may have left
        self.results: list[tuple[Mask, Any]] = []


class State:
    """What one run knows."""

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
        self.speaks = False  # blocks of the kernel tell each other something
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
