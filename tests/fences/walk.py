"""Follows a kernel's text, all threads of a block together, and tells `Order` what they do.

Conditions that differ between threads run their bodies with fewer threads. Conditions and trip
counts that are unknown but the same in all threads are decided, one way in each run; the runs
together take every way that is off the usual one in few decisions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .evaluate import Evaluator
from .scopes import Closure, Frame, Scope
from .syntax import Node
from .values import Either, Mask, Pointer, Unknown, is_exact, is_uniform

MOST_TRIPS = 12  # of a loop whose number of trips is known: what comes later is alike
RINGS = frozenset({"wait", "copy_commit", "fetch"})


class Walk(Evaluator):
    """One run through a kernel."""

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
        tokens = (node.arguments or [[]])[0]
        self.scope.types[node.text] = "".join(t.text for t in tokens if t.text != "typename")

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
            is_shared = isinstance(value, Pointer) and value.space == "shared"
            if is_shared and "*" in declared.type and "auto" not in declared.type:
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
            if isinstance(value, Pointer) and (
                value.space == "shared" or (self.speaks and "__restrict__" not in value.type)
            ):
                return False
            if isinstance(value, Closure) and not self.is_dull_within(value):
                return False
        return not (words & set(self.sums))

    def is_dull_within(self, closure: Closure) -> bool:
        """Return whether nothing in a function object's body matters to order."""
        before, self.scope = self.scope, closure.scope
        dull = self.is_dull(closure.node.kids[0])
        self.scope = before
        return dull

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
        stages = self.stages(body)
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
                limit = self.decisions.trips(str(unknown), self.counts(body))
            goes = lanes if trip < limit else np.zeros_like(lanes)
            return goes, goes, limit
        may, must = self.truth(value)
        return may, must, limit

    def counts(self, body: Node) -> tuple[int, ...]:
        """Return the numbers of trips that are tried of a loop whose number is not known."""
        stages = self.stages(body)
        if is_exact(stages) and not self.has_ring_inside(body):
            return (2 * int(stages) + 1, 1, 0)
        return (2, 0)

    def stages(self, node: Node) -> Any:
        """Return the stages of a kernel's ring."""
        name = "kStages" if self.scope.find("kStages") else "Config::kStages"
        return self.value(Node("name", node.line, name))

    def has_ring_inside(self, node: Node) -> bool:
        """Return whether a loop inside, or in a function called there, waits for stages."""
        called = [f for name in node.words & self.interesting for f in self.functions.get(name, ())]
        return has_ring(node) or any(has_ring(f.body) for f in called)


def has_ring(node: Node) -> bool:
    """Return whether a loop in a statement waits for the stages of a ring."""
    if node.kind == "for" and node.words & RINGS:
        return True
    return any(has_ring(kid) for kid in node.kids)
