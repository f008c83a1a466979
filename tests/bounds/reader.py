"""Follows a kernel's text once for all threads, blocks and trips of loops, and judges accesses.

Variables are sums of unknowns: the numbers of threads, blocks and trips. What stands under a
condition is judged where the condition holds; bodies of device functions are followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from fences.parser import Parser
from fences.scopes import Scope
from fences.syntax import Function, Node, SyntaxProblem, Token, split, tokens_of

from .functions import TABLE
from .linear import (
    FALSE,
    PERHAPS,
    TRUE,
    Formula,
    Sum,
    Unknown,
    at_least_zero,
    joined,
    least,
    proven,
    split_of,
    unknowns_of,
    witness,
)
from .values import INTEGERS, SIZES, Choice, Closure, Held, Pointer, Record, Struct, Thing

DEEPEST = 24
"""Calls inside of each other that are followed."""
MOST_TRIPS = 16
"""Of a loop whose trips are followed one by one."""
CASTS = frozenset(("static_cast", "reinterpret_cast", "const_cast", *SIZES))


@dataclass(frozen=True)
class Access:
    """An access to memory of the kernel's parameters, by the line of the kernel.

    verdict: `proven`, `refuted` or `undecided`, for a reason.
    """

    kind: str  # read or written
    buffer: str
    line: int
    verdict: str
    reason: str = ""

    def __str__(self) -> str:
        return f"line {self.line}: `{self.buffer}` is {self.kind} {self.reason or 'inside'}"


class Frame:
    """A call that is followed: what it returns, and where."""

    def __init__(self, depth: int) -> None:
        """Begin where so many conditions hold."""
        self.depth = depth
        self.returned: list[tuple[Formula, Any]] = []


class Reader:
    """One way through a kernel: all of them."""

    def __init__(
        self,
        functions: Mapping[str, list[Function]],
        sizes: Mapping[str, int],
        shapes: Mapping[str, int],
        alignments: Mapping[str, int],
        structs: Mapping[str, Struct],
    ) -> None:
        """Take device functions, sizes of buffers in bytes, and of the grid and its blocks."""
        self.functions = functions
        self.structs = {n: s.members for n, s in structs.items()}
        self.types = {n: s.types for n, s in structs.items()}
        self.templates = {n: s.template for n, s in structs.items()}
        self.defaults = {n: s.defaults for n, s in structs.items()}
        self.statics = {n: s.constants for n, s in structs.items()}
        self.told: dict[str, Sum] = {}
        self.sizes = sizes
        self.shapes = shapes
        self.alignments = alignments
        self.scope = Scope()
        self.globals = self.scope
        self.path: list[Formula] = []
        self.frames = [Frame(0)]
        self.lines: list[int] = []
        self.found: dict[tuple[str, str, int], Access] = {}
        self.divided: dict[tuple[Any, ...], Unknown] = {}
        self.quotients: dict[Unknown, tuple[Sum, int]] = {}
        self.by_value: dict[Sum, list[Unknown]] = {}
        self.shifts: dict[tuple[str, Sum, int], Sum] = {}
        self.places: dict[str, Sum] = {}
        for name, extent in shapes.items():
            if name.startswith(("threadIdx", "blockIdx")):
                number = Unknown(name, 0, extent - 1)
                self.places[name] = Sum(0, {number: 1}) if extent > 1 else Sum(0)
            else:
                self.places[name] = Sum(extent)

    # --- what is known ---

    def unknown(self, name: str, reason: str = "", low: int | None = None) -> Sum:
        """Return a new number that nothing is known of."""
        return Sum(0, {Unknown(name, low, None, is_exact=False, reason=reason or name): 1})

    def low(self, value: Sum) -> int | None:
        """Return a number that a sum is not below here."""
        found = value.limit(-1)
        if found is not None and found >= 0:
            return found
        return least(value, split_of(self.path)[0])

    def is_from(self, value: Sum, low: int) -> bool:
        """Return whether a sum is surely not below a number here."""
        found = self.low(value)
        return found is not None and found >= low

    def holds(self, *conditions: Formula) -> bool:
        """Return whether conditions surely hold here; only those of one sum are tried."""
        return all(
            c.kind == "true" or (c.sum is not None and proven(c.sum, self.path, 0))
            for c in conditions
        )

    def select(self, test: Formula, yes: Sum, no: Sum) -> Sum:
        """Return one of two numbers."""
        if test.kind == "true" or yes == no:
            return yes
        if test.kind == "false":
            return no
        found = Unknown("choice", is_exact=test.is_exact, reason="a choice")
        where = [(test, yes), (~test, no)]
        lows, highs = list[int | None](), list[int | None]()
        for condition, value in where:
            facts = split_of([*self.path, condition])[0]
            lows.append(least(value, facts))
            most = least(-value, facts)
            highs.append(None if most is None else -most)
        found.low = None if None in lows else min(v for v in lows if v is not None)
        found.high = None if None in highs else max(v for v in highs if v is not None)
        own = Sum(0, {found: 1})
        for bound in (yes, no):
            if bound.value is not None:
                continue
            if all(proven(bound - v, [*self.path, c], 0) for c, v in where):
                found.facts.append(bound - own)
            if all(proven(v - bound, [*self.path, c], 0) for c, v in where):
                found.facts.append(own - bound)
        if test.kind != "unknown":
            found.cases = where
        else:
            found.cases = [(PERHAPS, yes), (PERHAPS, no)]
        return own

    def join(self, test: Formula, yes: Any, no: Any) -> Any:
        """Return one of two values."""
        if yes is no or test.kind == "true":
            return yes
        if test.kind == "false":
            return no
        if isinstance(yes, Formula) and isinstance(no, Formula):
            return (test & yes) | (~test & no)
        if isinstance(yes, Sum | Formula) and isinstance(no, Sum | Formula):
            return self.select(test, self.number(yes), self.number(no))
        if isinstance(yes, Pointer) and isinstance(no, Pointer):
            if yes == no:
                return yes
            if (yes.root, yes.space, yes.type) == (no.root, no.space, no.type):
                return replace(yes, offset=self.select(test, yes.offset, no.offset))
        pair = (yes, no)
        if all(isinstance(v, Sum | Formula | Thing) for v in pair) and any(
            isinstance(v, Sum | Formula) for v in pair
        ):
            return self.select(test, self.number(yes), self.number(no))
        if isinstance(yes, Held) and isinstance(no, Held):
            return Held(tuple(dict.fromkeys((*yes.values, *no.values))))
        if isinstance(yes, Record) and isinstance(no, Record) and len(yes.values) == len(no.values):
            parts = zip(yes.values, no.values, strict=True)
            values = tuple(self.join(test, a, b) for a, b in parts)
            return Record(yes.type or no.type, values, yes.given)
        if isinstance(yes, Pointer | Choice) or isinstance(no, Pointer | Choice):
            return Choice(test, yes, no)
        return yes if yes == no else Thing(reason="one of two values")

    def divide(self, value: Sum, by: Sum) -> Sum:
        """Return the quotient as C has it."""
        divisor = by.value
        if divisor is None or divisor <= 0:
            found = self.unknown("quotient", "a quotient by what is not known")
            if self.is_from(value, 0) and self.is_from(by, 1):
                (own,) = found.terms
                own.low, own.high, own.facts = 0, value.limit(1), [value - found]
            return found
        if value.value is not None:
            return Sum(int(value.value / divisor) if abs(value.value) < 2**50 else
                       abs(value.value) // divisor * (1 if value.value >= 0 else -1))  # fmt: skip
        whole = Sum(value.constant // divisor, {
            u: c // divisor for u, c in value.terms.items() if c % divisor == 0
        })  # fmt: skip
        rest = value - whole * divisor
        if not rest.terms and rest.constant == 0:
            return whole
        floored = self.is_from(value, 0)
        if not floored:
            rest, whole = value, Sum(0)
        elif rest.terms and self.holds(at_least_zero(rest), at_least_zero(-rest + divisor - 1)):
            return whole
        if floored and not rest.terms and 0 <= rest.constant < divisor:
            return whole
        if floored and len(rest.terms) == 1:
            ((inner, count),) = rest.terms.items()
            if count == 1 and inner in self.quotients:  # (a / b + c) / d is (a + b c) / (b d)
                given, by_before = self.quotients[inner]
                value = given + rest.constant * by_before
                return whole + self.quotient(value, by_before * divisor, floored)
        return whole + self.quotient(rest, divisor, floored)

    def quotient(self, value: Sum, divisor: int, floored: bool) -> Sum:
        """Return an unknown quotient; floored: of a number that is not negative."""
        key = (value, divisor, floored)
        if key not in self.divided:
            found = Unknown(f"({value}) / {divisor}", *limits_of(value, divisor, floored, []))
            self.divided[key] = found
            own = Sum(0, {found: 1})
            found.facts = [
                value - own * divisor + (0 if floored else divisor - 1),
                own * divisor - value + divisor - 1,
            ]
            if floored:
                for other in self.by_value.setdefault(value, []):
                    small, big = sorted((found, other), key=lambda u: self.divisor(u, divisor))
                    times, left = divmod(self.divisor(big, divisor), self.divisor(small, divisor))
                    if left == 0:
                        rest = Sum(0, {small: 1, big: -times})
                        found.facts += [rest, -rest + times - 1]
                self.quotients[found] = value, divisor
                self.by_value[value].append(found)
            else:
                found.is_exact, found.reason = False, "a quotient that may be negative"
        found = self.divided[key]
        low, high = limits_of(value, divisor, floored, split_of(self.path)[0])
        if (low, high) == (found.low, found.high):
            return Sum(0, {found: 1})
        key = (value, divisor, floored, low, high)
        if key not in self.divided:  # the same, where less is possible
            base, own = found, Unknown(found.name, low, high, is_exact=found.is_exact)
            own.reason = base.reason
            own.facts = [Sum(0, {own: 1, base: -1}), Sum(0, {own: -1, base: 1})]
            self.divided[key] = own
            self.quotients[own] = value, divisor
        return Sum(0, {self.divided[key]: 1})

    def divisor(self, unknown: Unknown, new: int) -> int:
        """Return by what an unknown divides."""
        return self.quotients[unknown][1] if unknown in self.quotients else new

    # --- accesses ---

    def line(self, node: Node) -> int:
        """Return the kernel's line in which a node is."""
        return self.lines[0] if self.lines else node.line

    def access(self, kind: str, place: Any, size: int | Sum | None, node: Node) -> None:
        """Judge an access of so many bytes."""
        if isinstance(place, Choice):
            for test, part in ((place.test, place.yes), (~place.test, place.no)):
                self.path.append(test)
                self.access(kind, part, size, node)
                self.path.pop()
            return
        if not isinstance(place, Pointer) or place.space != "global":
            return
        if any(c.kind == "false" for c in self.path):
            return
        verdict, reason = self.judged(place, size)
        found = Access(kind, place.root, self.line(node), verdict, reason)
        key = (kind, place.root, found.line)
        worst = ("proven", "undecided", "refuted")
        if key not in self.found or worst.index(verdict) > worst.index(self.found[key].verdict):
            self.found[key] = found

    def judged(self, place: Pointer, size: int | Sum | None) -> tuple[str, str]:
        """Return whether an access lies in its buffer, and why that is not so or not known."""
        if place.root not in self.sizes:
            return "undecided", f"in a buffer of unknown size, `{place.root}`"
        if size is None:
            return "undecided", "by an access of unknown size"
        end = -place.offset + self.sizes[place.root] - size
        for goal, where in ((place.offset, "before its first"), (end, "behind its last")):
            if proven(goal, self.path):
                continue
            at = witness(goal, self.path)
            if at is not None:
                named = ", ".join(f"{u} = {n}" for u, n in at.items() if not u.facts)
                return "refuted", f"{where} byte of {self.sizes[place.root]}: {named}"
            reasons = {u.reason for u in unknowns_of(goal) if u.reason}
            given = [r for r in sorted(reasons) if r != "a choice"] or ["an inequality"]
            return "undecided", f"{where} byte, perhaps, by {'; '.join(given)}"
        return "proven", ""

    # --- statements: each returns where what follows it is reached ---

    def run(self, node: Node) -> Formula:
        """Run a statement."""
        return getattr(self, f"run_{node.kind}")(node)

    def run_block(self, node: Node) -> Formula:
        """Run statements one after the other."""
        if node.text == "declare":
            for kid in node.kids:
                self.run(kid)
            return TRUE
        self.scope = Scope(self.scope)
        reached = self.run_all(node.kids)
        assert self.scope.outer is not None
        self.scope = self.scope.outer
        return reached

    def run_all(self, nodes: Iterable[Node]) -> Formula:
        """Run statements one after the other, in the scope that is open."""
        depth, reached = len(self.path), TRUE
        for node in nodes:
            through = self.run(node)
            reached &= through
            if through.kind == "false":
                break
            if through.kind != "true":
                self.path.append(through)
        del self.path[depth:]
        return reached

    def run_using(self, node: Node) -> Formula:
        """Declare a type."""
        tokens = (node.arguments or [[]])[0]
        self.scope.types[node.text] = self.type_named(tokens)
        return TRUE

    def run_do(self, node: Node) -> Formula:
        """Evaluate for the effects."""
        self.value(node.kids[0])
        return TRUE

    def run_declare(self, node: Node) -> Formula:
        """Declare a variable."""
        declared = node.declared
        assert declared is not None
        kind = self.type_named(tokens_of(declared.type))
        if declared.is_shared or "extern" in declared.type.split():
            value: Any = Pointer(declared.name, "shared", type=kind)
        elif declared.extents:
            given = [self.value(kid) for kid in node.kids]
            value = Pointer(declared.name, "local", type=kind)
            if "*" in declared.type.split():
                value = Held()
                self.refuse("an array", given, node)
        elif not node.kids:
            value = self.typed(Thing(kind), kind)
        elif node.kids[0].kind == "list" and kind not in INTEGERS and kind != "bool":
            value = (
                self.record(self.value(node.kids[0]), kind)
                if kind != "auto"
                else (self.value(node.kids[0]))
            )
        else:
            value = self.value(node.kids[0])
            if "*" not in declared.type:
                value = self.typed(value, kind)
        if declared.extents and isinstance(value, Pointer):
            counts = [self.value(extent) for extent in declared.extents]
            known = [c.value for c in counts if isinstance(c, Sum) and c.value is not None]
            value = replace(value, extents=tuple(known) if len(known) == len(counts) else ())
        self.scope.values[declared.name] = value
        return TRUE

    def record(self, value: Any, kind: str) -> Any:
        """Return values in braces as a struct of some type, where that is known."""
        name = kind.partition("<")[0]
        if not isinstance(value, Record) or value.type:
            return value
        members = self.structs.get(name, ())
        given = value.values
        for default in self.defaults.get(name, ())[len(given) :]:
            if default.isdecimal():
                given = (*given, Sum(int(default)))
        if len(members) == len(given) > 0:
            arguments = kind.partition("<")[2].removesuffix(">").split(",")
            known = tuple(int(a) if a.lstrip("-").isdecimal() else a for a in arguments if a)
            return Record(name, given, known)
        self.refuse(f"`{kind}`", value.values, Node("list", 0))
        return Thing(kind)

    def typed(self, value: Any, kind: str) -> Any:
        """Return a value as a variable of some type has it."""
        kind = value.type if kind == "auto" and isinstance(value, Thing) else kind
        if kind in INTEGERS and isinstance(value, Thing | Formula):
            return self.number(value, kind)
        if kind == "bool" and not isinstance(value, Formula):
            return self.truth(value)
        if kind in SIZES and kind not in INTEGERS and not isinstance(value, Formula):
            return Thing(kind)
        return Thing(kind) if kind.startswith("Vec<") else value

    def run_if(self, node: Node) -> Formula:
        """Run both ways."""
        test = self.condition(node.kids[0])
        kept = [*self.kept(node)]
        before = [s.values[n] for s, n in kept]
        through = list[Formula]()
        after = list[list[Any]]()
        for number, condition in enumerate((test, ~test)):
            for (scope, name), value in zip(kept, before, strict=True):
                scope.values[name] = value
            if condition.kind == "false":
                through.append(FALSE)
            elif number + 1 < len(node.kids):
                self.path.append(condition)
                through.append(self.run(node.kids[number + 1]))
                self.path.pop()
            else:
                through.append(TRUE)
            after.append([s.values[n] for s, n in kept])
        for (scope, name), yes, no in zip(kept, *after, strict=True):
            if through[0].kind == "false" or through[1].kind == "false":
                scope.values[name] = no if through[0].kind == "false" else yes
            else:
                scope.values[name] = self.join(test, yes, no)
        if test.kind in ("true", "false"):
            return through[test.kind == "false"]
        if through[0].kind == through[1].kind == "true":
            return TRUE
        return (test & through[0]) | (~test & through[1])

    def assigned(self, node: Node) -> set[str]:
        """Return the variables that a node assigns, function objects that it may call included."""
        nodes = (node, *self.called_in(node))
        return {name for each in nodes for name in self.set_in(each)}

    def set_in(self, node: Node) -> Iterator[str]:
        """Yield the variables that a node sets: by itself, as a reference, or by a method."""
        if node.kind in ("assign", "step", "call"):
            target = node.kids[0]
            while target.kind == "member":
                target = target.kids[0]
            if target.kind == "index" and target.kids[0].kind == "name":
                scope = self.scope.find(target.kids[0].text)
                if scope is not None and isinstance(scope.values[target.kids[0].text], Held):
                    target = target.kids[0]
            if target.kind == "name" and (node.kind != "call" or self.is_changed(node, target)):
                yield target.text
        if node.kind == "call":
            for function in self.functions.get(node.text, ()):
                for parameter, kid in zip(function.parameters, node.kids[1:], strict=False):
                    if kid.kind == "name" and is_set(parameter):
                        yield kid.text
        for kid in node.kids:
            yield from self.set_in(kid)

    def called_in(self, node: Node) -> Iterator[Node]:
        """Yield the function objects that a node may call."""
        seen, todo = set[str](), [*node.words]
        while todo:
            word = todo.pop()
            scope = self.scope.find(word) if word not in seen else None
            seen.add(word)
            value = scope.values[word] if scope else None
            if isinstance(value, Closure):
                yield value.node
                todo += value.node.words

    def is_changed(self, node: Node, target: Node) -> bool:
        """Return whether a method's call may change the struct that a variable is."""
        scope = self.scope.find(target.text) if node.kids[0].kind == "member" else None
        value = scope.values[target.text] if scope else None
        if not isinstance(value, Record):
            return False
        functions = self.functions.get(f"{value.type}::{node.kids[0].text}", ())
        members = {*self.structs.get(value.type, ())}
        return any(members & {*self.set_in(f.body)} for f in functions)

    def kept(self, node: Node) -> Iterator[tuple[Scope, str]]:
        """Yield the variables of outer scopes that a node assigns."""
        for name in sorted(self.assigned(node)):
            scope = self.scope.find(name)
            if scope is not None:
                yield scope, name

    def run_return(self, node: Node) -> Formula:
        """Leave the function."""
        frame = self.frames[-1]
        value = self.value(node.kids[0]) if node.kids else None
        frame.returned.append((joined("and", self.path[frame.depth :]), value))
        return FALSE

    def run_continue(self, node: Node) -> Formula:
        """Leave the trip."""
        return FALSE

    def run_break(self, node: Node) -> Formula:
        """Leave the loop."""
        return FALSE

    def run_for(self, node: Node) -> Formula:
        """Run a loop's body once, for all of its trips."""
        start, condition, step, body = node.kids
        self.scope = Scope(self.scope)
        self.run(start)
        if step.kind == "assign" and step.text in ("*=", "/=", "<<=", ">>="):
            reached = self.run_each(condition, step, body)
            if reached is not None:
                assert self.scope.outer is not None
                self.scope = self.scope.outer
                return reached
        whole = Node("block", node.line, kids=[condition, step, body])
        kept = [*self.kept(whole)]
        trip = Unknown("trip", 0)
        begun = {(s, n): s.values[n] for s, n in kept}
        self.enter(begun, step, body, trip)
        test = self.condition(condition)
        if test.kind != "false":
            self.path.append(test)
            most = least(Sum(0, {trip: -1}), split_of(self.path)[0])
            trip.high = None if most is None else -most
            self.run(body)
            if step.kind != "block":
                self.value(step)
            self.path.pop()
        held = {k: v for k, v in begun.items() if not isinstance(k[0].values[k[1]], Held)}
        self.enter(held, step, body, Unknown("trip", 0))
        assert self.scope.outer is not None
        self.scope = self.scope.outer
        return TRUE

    def run_each(self, condition: Node, step: Node, body: Node) -> Formula | None:
        """Run the trips of a loop whose variable is known in each one by one; None for another."""
        name = step.kids[0].text
        if has(body, "continue") or has(body, "break") or [*changes(body, name)]:
            return None
        if name not in self.scope.values:
            return None
        first = self.scope.values.get(name)
        trips = list[Sum]()
        while self.condition(condition).kind == "true" and len(trips) < MOST_TRIPS:
            trips.append(self.scope.values[name])
            self.value(step)
        self.scope.values[name] = first
        if self.condition(condition).kind not in ("true", "false") or len(trips) == MOST_TRIPS:
            return None
        depth, reached = len(self.path), TRUE
        for trip in trips:
            self.scope.values[name] = trip
            through = self.run(body)
            reached &= through
            self.path.append(through)
        del self.path[depth:]
        return reached

    def enter(
        self, begun: Mapping[tuple[Scope, str], Any], step: Node, body: Node, trip: Unknown
    ) -> None:
        """Give variables that a loop assigns the values of any trip; begun: those before it."""
        names = {name for _, name in begun}
        lost = list[tuple[Scope, str]]()
        for (scope, name), value in begun.items():
            found = self.in_loop(value, name, step, body, trip, names)
            scope.values[name] = self.lost(value, name) if found is None else found
            if found is None and isinstance(value, Sum):
                lost.append((scope, name))
        whole = Node("block", body.line, kids=[step, body, *self.called_in(body)])
        for _ in range(2):  # what is known of one may say something of another
            for scope, name in lost:
                self.limit(scope.values[name], begun[scope, name], [*changes(whole, name)])

    def in_loop(
        self, value: Any, name: str, step: Node, body: Node, trip: Unknown, names: set[str]
    ) -> Any:
        """Return what a variable is in any trip of a loop that adds the same to it in each."""
        if isinstance(value, Record) and value.type:
            members = self.structs[value.type]
            values = list[Any]()
            for member, each in zip(members, value.values, strict=True):
                full = f"{name}.{member}"
                found = self.in_loop(each, full, step, body, trip, names)
                is_kept = not self.is_changed_in(Node("block", 0, kids=[step, body]), name)
                if found is None and is_kept and not [*changes(body, full), *changes(step, full)]:
                    found = each
                values.append(self.lost(each, full) if found is None else found)
            return Record(value.type, tuple(values), value.given)
        own, inside = [*changes(step, name)], [*changes(body, name)]
        top = body.kids if body.kind == "block" else [body]
        is_regular = len(own) + len(inside) == 1 and (
            bool(own)
            or (
                any(k.kind == "do" and k.kids[0] is inside[0] for k in top)
                and not has(body, "continue")
            )
        )
        if not is_regular or name in closure_words(self, body):
            return None
        site = (own or inside)[0]
        if site.kind == "assign" and site.kids[1].words & names:
            return None
        by = self.added(site) if isinstance(value, Sum | Formula | Pointer) else None
        if by is None or by.value is None:
            return None
        moved = Sum(0, {trip: 1})
        if isinstance(value, Pointer):
            return value.plus(moved * by.value, self.size_of(value.type))
        return self.number(value) + moved * by.value

    def is_changed_in(self, node: Node, name: str) -> bool:
        """Return whether a node assigns a whole struct, or calls a method that changes it."""
        own = node.kids[0] if node.kind in ("assign", "call") else None
        if node.kind == "assign" and own is not None and own.kind == "name" and own.text == name:
            return True
        if node.kind == "call" and own is not None and own.kind == "member":
            target = own.kids[0]
            if target.text == name and self.is_changed(node, target):
                return True
        return any(self.is_changed_in(kid, name) for kid in node.kids)

    def added(self, site: Node) -> Sum | None:
        """Return what an assignment adds, None for another one."""
        if site.kind == "step":
            return Sum(1 if site.text == "++" else -1)
        if site.text in ("+=", "-="):
            found = dict(self.found)
            value = self.value(site.kids[1])
            self.found = found  # the loop has not begun
            if isinstance(value, Sum):
                return value if site.text == "+=" else -value
        return None

    def lost(self, value: Any, name: str) -> Any:
        """Return nothing known of a variable that a loop assigns, but what kind it is of."""
        if isinstance(value, Formula):
            return PERHAPS
        if isinstance(value, Pointer) and value.space == "global":
            moved = self.unknown(name, f"`{name}`, which a loop moves")
            return replace(value, offset=value.offset + moved)
        if isinstance(value, Record):
            values = (self.lost(v, f"{name}.") for v in value.values)
            return Record(value.type, tuple(values), value.given)
        if not isinstance(value, Sum):
            return value
        return self.unknown(name, f"`{name}`, which a loop changes")

    def limit(self, now: Sum, begun: Sum, sites: list[Node]) -> None:
        """Note the limits of a variable that a loop only makes larger, or only smaller."""
        (own,) = now.terms
        if own.facts or not sites:
            return
        ups = [self.added(s) for s in sites]
        factors = [self.value(s.kids[1]) if s.text == "*=" else None for s in sites]
        grows = [
            (up is not None and self.is_from(up, 0))
            or (isinstance(by, Sum) and self.is_from(by, 1) and self.is_from(begun, 0))
            for up, by in zip(ups, factors, strict=True)
        ]
        if all(grows):
            own.facts, own.low = [now - begun], begun.limit(-1)
        elif all(s.text in ("/=", ">>=") for s in sites) and self.is_from(begun, 0):
            own.facts, own.low, own.high = [begun - now], 0, begun.limit(1)

    # --- conditions and numbers ---

    def condition(self, node: Node) -> Formula:
        """Return a condition."""
        return self.truth(self.value(node))

    def truth(self, value: Any) -> Formula:
        """Return whether a value is true."""
        if isinstance(value, Formula):
            return value
        if isinstance(value, Sum):
            if value.value is not None:
                return TRUE if value.value else FALSE
            return at_least_zero(value - 1) | at_least_zero(-value - 1)
        return PERHAPS

    def number(self, value: Any, kind: str = "") -> Sum:
        """Return a value as a number."""
        if isinstance(value, Sum):
            return value
        if isinstance(value, Formula):
            if value.kind in ("true", "false"):
                return Sum(int(value.kind == "true"))
            found = Unknown("test", 0, 1, is_exact=value.is_exact)
            found.cases = [(value, Sum(1)), (~value, Sum(0))]
            return Sum(0, {found: 1})
        kind = kind or (value.type if isinstance(value, Thing) else "")
        reason = value.reason if isinstance(value, Thing) and value.reason else "a value"
        return self.unknown("value", reason, INTEGERS.get(kind))

    # --- types ---

    def type_named(self, tokens: Iterable[Token]) -> str:
        """Return the name of a type without qualifiers, pointers and aliases."""
        words = [
            t.text for t in tokens
            if t.text not in ("const", "*", "&", "typename", "static", "constexpr", "__restrict__",
                              "extern", "__shared__", "volatile", "inline", "__device__")
        ]  # fmt: skip
        if "<" in words:
            given = [*tokens_of(" ".join(words))]
            at = words.index("<")
            inner = given[at + 1 : len(given) - 1 - given[::-1].index(
                next(t for t in reversed(given) if t.text == ">")
            )]  # fmt: skip
            parts = [self.argument(p) for p in split(inner)]
            tail = "".join(t.text for t in given[at + 2 + len(inner) :])
            return self.scope.type_of("".join(words[:at])) + f"<{','.join(map(str, parts))}>{tail}"
        return self.scope.type_of("".join(words))

    def argument(self, tokens: list[Token]) -> int | str:
        """Return a template argument: a number, or the name of a type."""
        value = self.constant(tokens)
        return self.type_named(tokens) if value is None else value

    def constant(self, tokens: list[Token]) -> int | None:
        """Return a constant expression's value."""
        if tokens and self.scope.type_of(tokens[0].text) in SIZES:
            return None
        try:
            parser = Parser(tokens)
            node = parser.expression()
            if parser.at < len(tokens):
                return None
        except (SyntaxProblem, IndexError):
            return None
        value = self.value(node)
        if isinstance(value, Formula) and value.kind in ("true", "false"):
            return int(value.kind == "true")
        return value.value if isinstance(value, Sum) else None

    def size_of(self, kind: str) -> int | None:
        """Return the bytes of a type."""
        if kind in SIZES:
            return SIZES[kind]
        vector = re.fullmatch(r"Vec<(.*),(\d+)>", kind)
        if vector:
            each = self.size_of(vector[1])
            return None if each is None else each * int(vector[2])
        name, _, rest = kind.partition("<")
        if self.structs.get(name):
            given = rest.removesuffix(">").split(",")
            types = dict(zip(self.templates[name], given, strict=False))
            sizes = [self.size_of(types.get(t, t)) for t in self.types[name]]
            known = [s for s in sizes if s is not None]
            most = max(known, default=1)
            same = len(known) == len(sizes) and all(s == most for s in known)
            return sum(known) if same else None
        other = self.scope.type_of(kind)
        return None if other == kind else self.size_of(other)

    # --- expressions ---

    def value(self, node: Node) -> Any:
        """Return an expression's value, and judge what evaluating it accesses."""
        return getattr(self, f"value_{node.kind}")(node)

    def value_block(self, node: Node) -> Any:
        """Return nothing."""
        return Thing()

    def value_number(self, node: Node) -> Any:
        """Return a number."""
        try:
            return Sum(int(node.text.rstrip("uUlL"), 0))
        except ValueError:
            return Thing("float")

    def value_sizeof(self, node: Node) -> Any:
        """Return the bytes of a type."""
        tokens = (node.arguments or [[]])[0]
        scope = self.scope.find(tokens[0].text) if len(tokens) == 1 else None
        value = scope.values[tokens[0].text] if scope else None
        if isinstance(value, Pointer) and value.extents:
            each = self.size_of(value.type)
            size = None if each is None else each * prod(value.extents)
        else:
            size = self.size_of(self.type_named(tokens))
        return self.unknown("sizeof", "the size of a type", 1) if size is None else Sum(size)

    def value_name(self, node: Node) -> Any:
        """Return a variable's value."""
        if node.text in ("true", "false"):
            return TRUE if node.text == "true" else FALSE
        scope = self.scope.find(node.text)
        if scope is None and "::" in node.text:
            name = self.scope.qualified(node.text)
            kind, _, rest = name.rpartition("::")
            scope = self.globals.find(name)
            if scope is None and rest in self.statics.get(kind.partition("<")[0], ()):
                return self.static(kind, rest)
            return scope.values[name] if scope else Thing(reason=f"`{node.text}`")
        return scope.values[node.text] if scope else Thing(reason=f"`{node.text}`")

    def static(self, kind: str, name: str) -> Any:
        """Return a constant of a struct."""
        struct, _, given = kind.partition("<")
        outer = Scope(self.globals)
        for parameter, argument in zip(
            self.templates[struct], given.removesuffix(">").split(","), strict=False
        ):
            if argument.lstrip("-").isdecimal():
                outer.values[parameter] = Sum(int(argument))
            else:
                outer.types[parameter] = argument
        for other, text in self.statics[struct].items():
            if other == name:
                before, self.scope = self.scope, outer
                value = self.constant(tokens_of(text))
                self.scope = before
                return Thing(reason=f"`{name}`") if value is None else Sum(value)
        return Thing(reason=f"`{name}`")

    def value_lambda(self, node: Node) -> Any:
        """Return a function object."""
        return Closure(node, self.scope)

    def value_list(self, node: Node) -> Any:
        """Return a struct, or one value where there is one."""
        values = [self.value(kid) for kid in node.kids]
        if node.text == "Vec" and node.arguments:
            each, count = (self.argument(a) for a in node.arguments)
            return Thing(f"Vec<{each},{count}>")
        if node.text in self.structs:
            return self.record(Record("", tuple(values)), node.text)
        return values[0] if len(values) == 1 else Record("", tuple(values))

    def value_choice(self, node: Node) -> Any:
        """Return `a ? b : c`."""
        test = self.condition(node.kids[0])
        values = list[Any]()
        for condition, kid in ((test, node.kids[1]), (~test, node.kids[2])):
            if condition.kind == "false":
                values.append(None)
                continue
            self.path.append(condition)
            values.append(self.value(kid))
            self.path.pop()
        if values[0] is None or values[1] is None:
            return values[1] if values[0] is None else values[0]
        return self.join(test, *values)

    def value_unary(self, node: Node) -> Any:
        """Return what a sign before an operand makes of it."""
        if node.text == "&":
            place = self.place(node.kids[0])
            return place if isinstance(place, Pointer | Choice) else Thing(reason="an address")
        if node.text == "*":
            return self.loaded(self.value(node.kids[0]), node)
        value = self.value(node.kids[0])
        if node.text == "!":
            return ~self.truth(value)
        if isinstance(value, Sum) and node.text in "+-":
            return value if node.text == "+" else -value
        return value if node.text == "+" else Thing(reason=f"`{node.text}`")

    def value_binary(self, node: Node) -> Any:
        """Return what two operands make."""
        sign = node.text
        if sign in ("&&", "||"):
            first = self.condition(node.kids[0])
            self.path.append(first if sign == "&&" else ~first)
            second = PERHAPS if self.path[-1].kind == "false" else self.condition(node.kids[1])
            self.path.pop()
            return first & second if sign == "&&" else first | second
        a, b = self.value(node.kids[0]), self.value(node.kids[1])
        if isinstance(b, Pointer | Choice) and sign == "+":
            a, b = b, a
        if isinstance(a, Pointer | Choice) and sign in "+-" and not isinstance(b, Pointer):
            distance = self.number(b)
            return self.moved(a, distance if sign == "+" else -distance)
        if not (isinstance(a, Sum | Formula) or isinstance(b, Sum | Formula)):
            return PERHAPS if sign in ("<", ">", "<=", ">=", "==", "!=") else Thing()
        if any(
            isinstance(v, Thing) and v.type in ("float", "double", "f16", "bf16") for v in (a, b)
        ):
            return PERHAPS if sign in ("<", ">", "<=", ">=", "==", "!=") else Thing("float")
        if isinstance(a, Formula) and isinstance(b, Formula) and sign in "&|":
            return a & b if sign == "&" else a | b
        return self.binary(sign, self.number(a), self.number(b))

    def binary(self, sign: str, a: Sum, b: Sum) -> Any:
        """Return what two numbers make."""
        match sign:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                return self.product(a, b)
            case "/":
                return self.divide(a, b)
            case "%":
                return self.rest(a, b)
            case "<":
                return at_least_zero(b - a - 1)
            case ">":
                return at_least_zero(a - b - 1)
            case "<=":
                return at_least_zero(b - a)
            case ">=":
                return at_least_zero(a - b)
            case "==":
                return at_least_zero(a - b) & at_least_zero(b - a)
            case "!=":
                return at_least_zero(a - b - 1) | at_least_zero(b - a - 1)
            case _:
                return self.bits(sign, a, b)

    def product(self, a: Sum, b: Sum) -> Sum:
        """Return a product; of two that are not known, one within limits."""
        if a.value is not None or b.value is not None:
            return b * a.value if a.value is not None else a * (b.value or 0)
        found = Unknown("product", is_exact=False, reason="a product of unknown numbers")
        corners = [(x.limit(s), y.limit(t)) for x, y in [(a, b)] for s in (-1, 1) for t in (-1, 1)]
        known = [x * y for x, y in corners if x is not None and y is not None]
        if len(known) == 4:
            found.low, found.high = min(known), max(known)
        elif self.is_from(a, 0) and self.is_from(b, 0):
            found.low = 0
        return Sum(0, {found: 1})

    def rest(self, a: Sum, b: Sum) -> Sum:
        """Return what a division leaves."""
        if b.value is not None and b.value > 0:
            return a - self.divide(a, b) * b.value
        found = self.unknown("rest", "what a division by an unknown number leaves")
        if self.is_from(a, 0) and self.is_from(b, 1):
            (own,) = found.terms
            own.low, own.facts = 0, [a - found, b - found - 1]
        return found

    def bits(self, sign: str, a: Sum, b: Sum) -> Sum:
        """Return what bits make."""
        if a.value is not None and b.value is not None:
            x, y = a.value, b.value
            known = {"<<": lambda: x << y, ">>": lambda: x >> y, "&": lambda: x & y,
                     "|": lambda: x | y, "^": lambda: x ^ y}  # fmt: skip
            return Sum(known[sign]())
        if sign in ("<<", ">>") and b.value is not None:
            return a * (1 << b.value) if sign == "<<" else self.divide(a, Sum(1 << b.value))
        if sign == "<<" and a.value is not None and a.value > 0:
            high = b.limit(1)
            found = Unknown("shifted", a.value, None if high is None else a.value << high)
            found.is_exact, found.reason = False, "a shift by an unknown number"
            return Sum(0, {found: 1})
        if sign == "&" and a.value is not None:
            a, b = b, a
        mask = b.value
        if sign == "&" and mask is not None and mask >= 0:
            if (mask + 1) & mask == 0 and self.is_from(a, 0):
                return self.rest(a, Sum(mask + 1))
            reasons = [u.reason for u in unknowns_of(a) if u.reason]
            found = Unknown("bits", 0, mask, is_exact=False, reason="; ".join(reasons))
            return Sum(0, {found: 1})
        found = Unknown("bits", is_exact=False, reason=f"`{sign}`")
        highs = [v.limit(1) for v in (a, b)]
        if all(h is not None for h in highs) and all(self.is_from(v, 0) for v in (a, b)):
            found.low = 0
            found.high = (1 << max(h.bit_length() for h in highs if h is not None)) - 1
        return Sum(0, {found: 1})

    def moved(self, pointer: Any, elements: Sum) -> Any:
        """Return a pointer so many elements on."""
        if isinstance(pointer, Choice):
            yes, no = (self.moved(p, elements) for p in (pointer.yes, pointer.no))
            return Choice(pointer.test, yes, no)
        if not isinstance(pointer, Pointer):
            return pointer
        return pointer.plus(elements, self.size_of(pointer.type))

    def place(self, node: Node) -> Any:
        """Return where an expression lies, None for a variable of the thread."""
        if node.kind == "index":
            base = self.value(node.kids[0])
            number = self.value(node.kids[1])
            if isinstance(base, Pointer | Choice):
                return self.moved(base, self.number(number))
            return None
        if node.kind == "unary" and node.text == "*":
            return self.value(node.kids[0])
        if node.kind == "member":
            return self.place(node.kids[0]) if node.kids[0].kind in ("index", "unary") else None
        return None

    def loaded(self, place: Any, node: Node) -> Any:
        """Return what is read at a place."""
        kind = place
        while isinstance(kind, Choice):
            kind = kind.yes
        if not isinstance(kind, Pointer):
            return Thing()
        self.access("read", place, self.size_of(kind.type), node)
        told = self.told.get(node.kids[0].text) if node.kind == "unary" else None
        if told is not None and kind.space == "shared":
            return told
        name = f"data of `{kind.root}`" if kind.space == "global" else f"`{kind.root}` in memory"
        return Thing(kind.type, name)

    def value_index(self, node: Node) -> Any:
        """Return an element."""
        place = self.place(node)
        if place is not None:
            return self.loaded(place, node)
        base = self.value(node.kids[0])
        if isinstance(base, Held):
            if not base.values:
                return Thing(reason="an array of pointers")
            found = base.values[0]
            for other in base.values[1:]:
                found = Choice(PERHAPS, found, other)
            return found
        if isinstance(base, Thing) and base.type.startswith("Vec<"):
            return Thing(base.type[4:].rsplit(",", 1)[0], base.reason)
        return Thing(base.type if isinstance(base, Thing) else "", "an element")

    def value_member(self, node: Node) -> Any:
        """Return a member; the numbers of threads and blocks among them."""
        target = node.kids[0]
        name = f"{target.text}.{node.text}"
        if name in self.places:
            return self.places[name]
        value = self.value(target)
        if isinstance(value, Record) and node.text in self.structs.get(value.type, ()):
            return value.values[self.structs[value.type].index(node.text)]
        return Thing(reason=f"`{name}`")

    def value_assign(self, node: Node) -> Any:
        """Assign, or store to memory."""
        target, sign = node.kids[0], node.text
        value = self.value(node.kids[1])
        if target.kind == "member" and target.kids[0].kind == "name":
            return self.set_member(target, value, sign)
        if target.kind == "name":
            scope = self.scope.find(target.text)
            if scope is None:
                return value
            before = scope.values[target.text]
            if isinstance(before, Record):
                value = self.record(value, before.type)
            if sign != "=":
                value = self.combined(sign[:-1], before, value)
            if isinstance(before, Sum) and not isinstance(value, Sum):
                value = self.number(value)
            scope.values[target.text] = value
            return value
        place = self.place(target)
        base = self.value(target.kids[0]) if target.kind == "index" else None
        if isinstance(base, Held) and target.kids[0].kind == "name" and sign == "=":
            scope = self.scope.find(target.kids[0].text)
            assert scope is not None
            scope.values[target.kids[0].text] = Held((*base.values, anew(value)))
            return value
        self.refuse("memory", [value], node)
        pointer = place
        while isinstance(pointer, Choice):
            pointer = pointer.yes
        if isinstance(pointer, Pointer) and pointer.space == "shared" and target.kind == "unary":
            self.tell(target.kids[0].text, value)
        if isinstance(pointer, Pointer):
            size = self.size_of(pointer.type)
            if sign != "=":
                self.access("read", place, size, node)
            self.access("written", place, size, node)
        return value

    def tell(self, name: str, value: Any) -> None:
        """Note what one thread leaves for others in a shared word that a pointer names."""
        given = self.number(value)
        low, high = given.limit(-1), given.limit(1)
        if name in self.told:
            before = self.told[name]
            lows, highs = (low, before.limit(-1)), (high, before.limit(1))
            low = None if None in lows else min(v for v in lows if v is not None)
            high = None if None in highs else max(v for v in highs if v is not None)
        reasons = [u.reason for u in unknowns_of(given) if u.reason]
        found = Unknown(name, low, high, is_exact=False, reason="; ".join(reasons))
        self.told[name] = Sum(0, {found: 1})

    def set_member(self, target: Node, value: Any, sign: str) -> Any:
        """Assign to a member of a struct."""
        name = target.kids[0].text
        scope = self.scope.find(name)
        before = scope.values[name] if scope else None
        if not (isinstance(before, Record) and target.text in self.structs.get(before.type, ())):
            self.refuse("what is not followed", [value], target)
        elif scope is not None:
            at = self.structs[before.type].index(target.text)
            if sign != "=":
                value = self.combined(sign[:-1], before.values[at], value)
            values = (*before.values[:at], value, *before.values[at + 1 :])
            scope.values[name] = Record(before.type, values, before.given)
        return value

    def combined(self, sign: str, before: Any, value: Any) -> Any:
        """Return what `+=` and its like assign."""
        if isinstance(before, Pointer | Choice) and sign in "+-":
            distance = self.number(value)
            return self.moved(before, distance if sign == "+" else -distance)
        if isinstance(before, Formula) and isinstance(value, Formula) and sign in "&|":
            return before & value if sign == "&" else before | value
        if isinstance(before, Sum | Formula) and isinstance(value, Sum | Formula):
            return self.binary(sign, self.number(before), self.number(value))
        return before

    def value_step(self, node: Node) -> Any:
        """Count on."""
        target = node.kids[0]
        if target.kind == "member" and target.kids[0].kind == "name":
            return self.set_member(target, Sum(1 if node.text == "++" else -1), "+=")
        if target.kind != "name":
            place = self.place(target)
            if isinstance(place, Pointer):
                self.access("written", place, self.size_of(place.type), node)
            return Thing()
        scope = self.scope.find(target.text)
        if scope is not None:
            before = scope.values[target.text]
            scope.values[target.text] = self.combined(
                "+" if node.text == "++" else "-", before, Sum(1)
            )
        return Thing()

    # --- calls ---

    def value_call(self, node: Node) -> Any:
        """Call a function."""
        target, name = node.kids[0], self.scope.qualified(node.text)
        if target.kind == "member":
            values = [self.value(kid) for kid in node.kids[1:]]
            value = self.value(target.kids[0])
            if isinstance(value, Record) and value.type:
                return self.method(node, target, value, values)
            kind = value.type.partition("<")[0] if isinstance(value, Thing) else ""
            function = self.chosen(f"{kind}::{target.text}", values) if kind else None
            if function is not None and not has_assembly(function):
                outer = Scope(self.globals)
                outer.types["this"] = kind
                return self.inline(function, values, node, outer)
            self.refuse(f".{name or target.text}", values, node)
            return Thing(reason=f"`.{target.text}()`")
        if name in CASTS or self.scope.type_of(name) in SIZES:
            return self.cast(node)
        scope = self.scope.find(name)
        if scope is not None and isinstance(scope.values[name], Closure):
            closure = scope.values[name]
            values = [self.value(kid) for kid in node.kids[1:]]
            inner = Scope(closure.scope)
            return self.body(closure.node.kids[0], inner, closure.node.parameters, values, node)
        if name in TABLE:
            return TABLE[name](self, node, [self.value(kid) for kid in node.kids[1:]])
        values = [self.value(kid) for kid in node.kids[1:]]
        function = self.chosen(name, values)
        own = self.chosen(f"{self.scope.type_of('this')}::{name}", values)
        if own is not None:  # a method calls another one of its object
            outer = next(s for s in scopes(self.scope) if "this" in s.types)
            return self.record(
                self.body(own.body, outer, own.parameters, values, node), own.returns
            )
        if function is None or len(self.frames) > DEEPEST:
            self.refuse(f"{name}()", values, node)
            return Thing(reason=f"`{name}()`")
        if (
            not any(
                isinstance(v, Sum | Formula | Pointer | Choice | Closure | Record) for v in values
            )
            and values
        ):
            return Thing(reason=f"`{name}()`")
        if has_assembly(function):
            self.refuse(f"{name}()", values, node)
            return Thing(reason=f"`{name}()`")
        return self.inline(function, values, node)

    def method(self, node: Node, target: Node, value: Record, values: list[Any]) -> Any:
        """Call a method of a struct, which may change it."""
        function = self.chosen(f"{value.type}::{target.text}", values)
        if function is None:
            self.refuse(f".{target.text}", values, node)
            return Thing(reason=f"`.{target.text}()`")
        outer = Scope(self.globals)
        names = self.structs[value.type]
        for name, argument in zip(self.templates[value.type], value.given, strict=False):
            if isinstance(argument, int):
                outer.values[name] = Sum(argument)
            else:
                outer.types[name] = argument
        outer.values |= dict(zip(names, value.values, strict=True))
        outer.types["this"] = value.type
        self.lines.append(node.line)
        result = self.body(function.body, outer, function.parameters, values, node)
        self.lines.pop()
        changed = Record(value.type, tuple(outer.values[n] for n in names), value.given)
        scope = self.scope.find(target.kids[0].text) if target.kids[0].kind == "name" else None
        if scope is not None:
            scope.values[target.kids[0].text] = changed
        return self.record(result, function.returns)

    def refuse(self, name: str, values: Iterable[Any], node: Node) -> None:
        """Note that a call may access what it is given, if that is memory."""
        for value in values:
            if isinstance(value, Record | Held):
                self.refuse(name, value.values, node)
            elif isinstance(value, Choice):
                self.refuse(name, [value.yes, value.no], node)
            elif isinstance(value, Closure):
                known = ((w, value.scope.find(w)) for w in sorted(value.node.words))
                inner = [s.values[w] for w, s in known if s is not None]
                self.refuse(name, [v for v in inner if v is not value], node)
            elif isinstance(value, Pointer) and value.space == "global":
                key = ("used", value.root, self.line(node))
                self.found[key] = Access("used", value.root, key[2], "undecided", f"by `{name}`")

    def cast(self, node: Node) -> Any:
        """Return an operand as another type."""
        value = self.value(node.kids[1]) if len(node.kids) > 1 else Sum(0)
        if node.arguments:
            kind = self.type_named(node.arguments[0])
            if isinstance(value, Pointer):
                is_pointer = any(t.text == "*" for t in node.arguments[0])
                return replace(value, type=kind) if is_pointer else Thing(kind, "an address")
        else:
            kind = self.scope.type_of(node.text)
        if isinstance(value, Choice | Closure):
            return value
        unsigned = kind in ("u32", "u64", "unsigned") and isinstance(value, Sum)
        if unsigned and not self.is_from(value, 0):
            return self.unknown("wrapped", "a negative number without a sign", 0)
        return self.typed(value, kind)

    def chosen(self, name: str, values: list[Any]) -> Function | None:
        """Return the function of a name that takes such arguments."""
        for function in self.functions.get(name, ()):
            parameters = function.parameters
            pack = bool(parameters) and parameters[-1].is_pack
            if len(values) == len(parameters) or (pack and len(values) >= len(parameters) - 1):
                return function
        return None

    def inline(
        self, function: Function, values: list[Any], node: Node, outer: Scope | None = None
    ) -> Any:
        """Follow a device function; outer: what is known in it."""
        outer = outer or Scope(self.globals)
        given = node.arguments or []
        for i, (name, default) in enumerate(function.template):
            tokens = given[i] if i < len(given) else None
            before = self.scope
            if tokens is None and default is not None:
                tokens, self.scope = default, outer
            if tokens is None:
                continue
            value = self.argument(tokens)
            self.scope = before
            if isinstance(value, int):
                outer.values[name] = Sum(value)
            else:
                outer.types[name] = value
        parameters = function.parameters
        if parameters and parameters[-1].is_pack:
            last = parameters[-1]
            count = len(values) - len(parameters) + 1
            rest = [
                replace(last, name=last.name if n == 0 else f"{last.name}{n}") for n in range(count)
            ]
            parameters = [*parameters[:-1], *rest]
        for parameter, value in zip(parameters, values, strict=True):
            self.deduce(outer, function, parameter.type, value)
        try:
            body = function.body
        except SyntaxProblem:
            self.refuse(f"{function.name}()", values, node)
            return Thing(reason=f"`{function.name}()`")
        self.lines.append(node.line)
        result = self.body(body, outer, parameters, values, node)
        self.lines.pop()
        return self.record(result, function.returns)

    def deduce(self, outer: Scope, function: Function, wanted: str, value: Any) -> None:
        """Bind template parameters by what is given for a parameter."""
        names = {n for n, _ in function.template if n not in outer.types and n not in outer.values}
        kind = value.type if isinstance(value, Thing | Pointer) else ""
        vector = re.search(r"Vec < (\w+) , (\w+) >", wanted)
        known = re.fullmatch(r"Vec<(.*),(\d+)>", kind)
        if vector and known:
            if vector[1] in names:
                outer.types[vector[1]] = known[1]
            if vector[2] in names:
                outer.values[vector[2]] = Sum(int(known[2]))
            return
        if isinstance(value, Pointer) and value.extents:
            counts = re.findall(r"\[ ([^\]]*) \]", wanted)
            for count, extent in zip(reversed(counts), reversed(value.extents), strict=False):
                if count in names:
                    outer.values[count] = Sum(extent)
        for word in wanted.split():
            if word in names and kind:
                outer.types[word] = kind

    def body(self, node: Node, outer: Scope, parameters: Any, values: list[Any], at: Node) -> Any:
        """Run a function's body; return what it returns."""
        scope = Scope(outer)
        for parameter, value in zip(parameters, values, strict=False):
            kind = self.type_named(tokens_of(parameter.type.rsplit(" ", 1)[0]))
            scope.values[parameter.name] = self.record(value, kind)
        saved = self.scope
        frame = Frame(len(self.path))
        self.frames.append(frame)
        self.scope = scope
        self.run_all(node.kids)
        self.scope = saved
        self.frames.pop()
        for parameter, kid in zip(parameters, at.kids[1:], strict=False):
            own = self.scope.find(kid.text) if kid.kind == "name" else None
            if is_set(parameter) and own is not None:
                value = scope.values[parameter.name]
                own.values[kid.text] = (
                    self.number(Thing(reason=f"`{kid.text}`"))
                    if len(frame.returned) > 1 and isinstance(value, Sum)
                    else value
                )
        if not frame.returned:
            return Thing()
        _, result = frame.returned[-1]
        for test, value in reversed(frame.returned[:-1]):
            result = self.join(test, value, result)
        return Thing() if result is None else result


def limits_of(
    value: Sum, divisor: int, floored: bool, facts: list[Sum]
) -> tuple[int | None, int | None]:
    """Return between what a quotient lies."""
    low, most = least(value, facts), least(-value, facts)
    if low is not None:
        low = (
            max(low, 0) // divisor
            if floored
            else -(abs(low) // divisor)
            if low < 0
            else low // divisor
        )
    elif floored:
        low = 0
    high = None if most is None else -most // divisor if -most >= 0 else 0
    return low, high


def anew(value: Any) -> Any:
    """Return a pointer for any trip of the loops that it was found in, not for this one."""
    if isinstance(value, Choice):
        return Choice(PERHAPS, anew(value.yes), anew(value.no))
    if not isinstance(value, Pointer):
        return value
    copies: dict[Unknown, Unknown] = {}

    def moves(unknown: Unknown) -> bool:
        return any(u.name == "trip" for u in unknowns_of(Sum(0, {unknown: 1})))

    def copied(total: Sum) -> Sum:
        return Sum(total.constant, {copy(u): c for u, c in total.terms.items()})

    def copy(unknown: Unknown) -> Unknown:
        if unknown not in copies:
            if not moves(unknown):
                return unknown
            made = Unknown(unknown.name, unknown.low, unknown.high, is_exact=unknown.is_exact)
            made.reason = unknown.reason
            copies[unknown] = made
            made.facts = [copied(f) for f in unknown.facts]
        return copies[unknown]

    return replace(value, offset=copied(value.offset))


def scopes(scope: Scope | None) -> Iterator[Scope]:
    """Yield a scope and those around it."""
    while scope is not None:
        yield scope
        scope = scope.outer


def has_assembly(function: Function) -> bool:
    """Return whether a function holds instructions; an empty one only keeps an order."""
    words = [t.text for t in function.tokens]
    return any(
        w == "asm" and next(t for t in words[i:] if t.startswith('"')) != '""'
        for i, w in enumerate(words)
    )


def is_set(parameter: Any) -> bool:
    """Return whether a parameter is a variable of the caller's."""
    return parameter.is_reference and "const" not in parameter.type.split()


def changes(node: Node, name: str) -> Iterator[Node]:
    """Yield the assignments to a variable, or to a member `variable.member`, in a node."""
    if node.kind in ("assign", "step"):
        target = node.kids[0]
        own = target.text if target.kind == "name" else ""
        if target.kind == "member" and target.kids[0].kind == "name":
            own = f"{target.kids[0].text}.{target.text}"
        if own == name:
            yield node
    elif node.kind == "declare" and node.declared is not None and node.declared.name == name:
        return
    for kid in node.kids:
        yield from changes(kid, name)


def has(node: Node, kind: str) -> bool:
    """Return whether a node has one of some kind in it."""
    return node.kind == kind or any(has(k, kind) for k in node.kids)


def closure_words(reader: Reader, node: Node) -> set[str]:
    """Return what function objects that a node may call assign."""
    return reader.assigned(node) - set(node.assigned)
