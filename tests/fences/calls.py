"""What calls do: the effects of the table, function objects, and bodies of device functions."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from .effects import EFFECTS, Effect
from .order import WARP
from .phases import Step
from .syntax import Function, Node
from .values import Either, Pointer, Unknown, is_exact, is_uniform, text_of
from .walk import BLOCK_BYTES, Closure, Frame, Scope, Walk

CASTS = frozenset(
    "static_cast reinterpret_cast const_cast int Index u32 i32 i64 u64 bool float double Acc".split()
)


def call(walk: Walk, node: Node) -> Any:
    """Return what a call returns and do its effects."""
    target = node.kids[0]
    if target.kind == "member":
        return method(walk, node, target)
    name = node.text
    if name in CASTS:
        return cast(walk, node)
    scope = walk.scope.find(name)
    if scope is not None and isinstance(scope.values[name], Closure):
        return call_closure(walk, node, scope.values[name])
    effect = EFFECTS.get(name)
    if effect is not None:
        return Effects(walk, node, effect).happen()
    function = chosen(walk, name, len(node.kids) - 1)
    if function is not None and (name in walk.interesting or is_short(function)):
        return inline(walk, node, function)
    values = [walk.value(kid) for kid in node.kids[1:]]
    width = walk.constant(node.arguments[1]) if len(node.arguments or ()) > 1 else WARP
    if name == "warp_reduce" and walk.threads == WARP == width:
        return walk.unknown(name, False)  # the only warp's result
    if all(is_uniform(v) for v in values):
        if name in ("min", "max") and all(is_exact(v) for v in values):
            return min(values) if name == "min" else max(values)
        if name == "tile_count" and all(is_exact(v) for v in values):
            return -(-values[0] // values[1])
        return Unknown(f"{name}({', '.join(text_of(v) for v in values)})")
    return Unknown("?", True)


def cast(walk: Walk, node: Node) -> Any:
    """Return the argument, a pointer with the size of what it now points at."""
    value = walk.value(node.kids[1]) if len(node.kids) > 1 else 0
    if node.text == "reinterpret_cast" and isinstance(value, Pointer) and node.arguments:
        text = "".join(t.text for t in node.arguments[0])
        if value.space == "shared":
            vector = re.fullmatch(r"Vec<(.*),[^,]*>\*?", text)
            inner = walk.size_of(vector[1]) if vector else None
            return replace(value, left=0, size=walk.size_of(text), inner=inner)
    return value


DYNAMIC = frozenset({"shared", "shared_memory"})


def method(walk: Walk, node: Node, target: Node) -> Any:
    """Call a method; those of an mbarrier have effects."""
    effect = EFFECTS.get(f"Barrier::{target.text}")
    place = walk.place(target.kids[0])
    if effect is not None and place is None:
        value = walk.value(target.kids[0])
        place = value if isinstance(value, Pointer) else None
    if effect is not None and place is not None and place.space == "shared":
        return Effects(walk, node, effect, place).happen()
    values = [walk.value(kid) for kid in (target.kids[0], *node.kids[1:])]
    if place is not None:
        return walk.unknown(target.text, False)
    varies = not all(is_uniform(v) for v in values)
    return walk.unknown(target.text, varies)


def chosen(walk: Walk, name: str, count: int) -> Function | None:
    """Return the function of a name with so many parameters."""
    return next((f for f in walk.functions.get(name, ()) if len(f.parameters) == count), None)


def is_short(function: Function) -> bool:
    """Return whether a function only returns an expression."""
    return [t.text for t in function.tokens[1:2]] == ["return"]


def call_closure(walk: Walk, node: Node, closure: Closure) -> Any:
    """Run a function object's body where it was made."""
    values = [walk.value(kid) for kid in node.kids[1:]]
    return body(walk, closure.node, closure.scope, closure.node.parameters, values, "lambda", node)


def inline(walk: Walk, node: Node, function: Function) -> Any:
    """Run a device function's body."""
    outer = Scope(walk.globals)
    given = node.arguments or []
    for i, (name, default) in enumerate(function.template):
        tokens = given[i] if i < len(given) else default
        bind_template(walk, outer, name, tokens)
    deduce(walk, outer, function, given)
    values: list[Any] = []
    for parameter, kid in zip(function.parameters, node.kids[1:], strict=True):
        place = walk.place(kid) if parameter.is_reference else None
        values.append(walk.value(kid) if place is None else place)
        if parameter.is_reference and place is None and kid.kind == "name":
            values[-1] = Alias(walk, kid.text)
    numbers = [str(v) for v in outer.values.values() if is_exact(v)]
    name = f"{function.name}<{','.join(numbers)}>"
    return body(walk, function.body, outer, function.parameters, values, name, node)


class Alias:
    """A reference to a local variable of the caller."""

    def __init__(self, walk: Walk, name: str) -> None:
        self.name = name
        self.scope = walk.scope.find(name)


def bind_template(walk: Walk, outer: Scope, name: str, tokens: Any) -> None:
    """Bind a template parameter to a number or a type."""
    if tokens is None:
        return
    value = walk.constant(tokens)
    if value is not None:
        outer.values[name] = value
    else:
        outer.types[name] = walk.scope.type_of("".join(t.text for t in tokens))


def deduce(walk: Walk, outer: Scope, function: Function, given: Any) -> None:
    """Leave template parameters that are not given unknown, but the same in all threads."""
    for name, default in function.template[len(given) :]:
        if default is None and name not in outer.types:
            outer.values[name] = Unknown(f"{function.name}.{name}")


def body(
    walk: Walk, node: Node, outer: Scope, parameters: Any, values: list[Any], name: str, at: Node
) -> Any:
    """Run a function's body with the threads that call it, and return what it returns."""
    scope = Scope(outer)
    aliases: list[tuple[str, Alias]] = []
    for parameter, value in zip(parameters, values, strict=True):
        if isinstance(value, Alias):
            aliases.append((parameter.name, value))
            known = value.scope.values.get(value.name) if value.scope else None
            value = Unknown("?", True) if known is None else known
        scope.values[parameter.name] = value
        scope.since[parameter.name] = walk.mask.copy(), walk.unsure
    inner = node.kids[0] if node.kind == "lambda" else node
    saved = walk.scope, walk.mask, walk.loops, walk.sums
    walk.frames.append(Frame(name))
    if name != "lambda":
        walk.lines.append(at.line)
        walk.sums = {}
    walk.scope, walk.loops = scope, []
    walk.run(inner, walk.mask)
    frame = walk.frames.pop()
    walk.scope, walk.mask, walk.loops, walk.sums = saved
    if name != "lambda":
        walk.lines.pop()
    for parameter_name, alias in aliases:
        if alias.scope is not None:
            alias.scope.values[alias.name] = scope.values[parameter_name]
    if len(frame.results) == 1:
        return frame.results[0][1]
    return walk.unknown(name, not all(is_uniform(v) for _, v in frame.results) or len(frame.results) > 1)


class Effects:
    """One call of a function of the table."""

    def __init__(self, walk: Walk, node: Node, effect: Effect, barrier: Pointer | None = None):
        self.walk = walk
        self.order = walk.order
        self.node = node
        self.effect = effect
        self.mask = walk.mask
        self.line = walk.line(node)
        running = {n for n, state in walk.sums.items() if state == "running"}
        kids = node.kids[1:]
        if effect.kind == "multiply_stage":
            kids = kids[1:]
        self.arguments = [walk.value(kid) for kid in kids]
        if effect.kind == "multiply_stage":
            self.arguments.insert(0, None)
        self.running = running
        self.barrier = barrier

    def happen(self) -> Any:
        """Do the effect and return the call's value."""
        return getattr(self, self.effect.kind)()

    # --- parts ---

    def pointer(self, number: int | None) -> Pointer | None:
        """Return the pointer that a parameter is, or None."""
        value = self.arguments[number] if number is not None else None
        return value if isinstance(value, Pointer) else None

    def template(self, number: int) -> int | None:
        """Return a template argument's number."""
        given = self.node.arguments or []
        return self.walk.constant(given[number]) if number < len(given) else None

    def bytes(self) -> int | None:
        """Return how many bytes are moved, where that is known."""
        value = None if self.effect.bytes is None else self.arguments[self.effect.bytes]
        return int(value) if is_exact(value) and not isinstance(value, np.ndarray) else None

    def length(self, place: Pointer) -> int | None:
        """Return how many units of a place's index are accessed."""
        if self.effect.bytes is None:
            return self.walk.length(place, self.template(0) or 1)
        size = place.size
        if size is None or place.size == 1 and place.root not in DYNAMIC:
            return 1
        return self.effect.bytes

    def key(self, place: Pointer | None, what: str = "") -> tuple[str, int] | None:
        """Return the name of an mbarrier, None where its place is not known."""
        at = place.index[-1] if place is not None and place.index else None
        if place is None or (at is not None and (not is_exact(at) or isinstance(at, np.ndarray))):
            self.walk.say("barrier place", self.node, "which mbarrier this is cannot be told")
            return None
        return place.root, int(at or 0)

    def step(self, kind: str, value: int | None = None, **more: Any) -> None:
        """Note a step on the way of these threads."""
        self.walk.steps.append(Step(kind, self.line, self.mask.copy(), value=value, **more))

    # --- nothing to do with order ---

    def pure(self) -> Any:
        """Change nothing."""
        return self.walk.unknown(self.node.text, True)

    def uniform(self) -> Any:
        """Return something that all threads agree on."""
        return Unknown(self.node.text)

    def elect(self) -> Any:
        """Return true in one lane of each warp."""
        return np.arange(self.walk.threads) % WARP == 0

    # --- accesses ---

    def read(self) -> Any:
        """Read some elements."""
        place = self.pointer(self.effect.shared)
        if place is None:
            return self.walk.unknown("load", True)
        if place.space == "shared":
            return self.walk.load(place, self.node, self.length(place))
        return self.walk.load(place, self.node)

    def read_constant(self) -> Any:
        """Read through the path for data that nothing writes."""
        place = self.pointer(self.effect.shared)
        if place is not None and place.space == "global":
            self.walk.constant_reads.append((place.root, self.line))
        return self.walk.unknown("load", True)

    def write(self) -> None:
        """Write some elements."""
        place = self.pointer(self.effect.shared)
        if place is not None:
            self.walk.store(place, self.node, self.length(place))

    def atomic(self) -> Any:
        """Change one element, in order with other such changes."""
        place = self.pointer(self.effect.shared)
        if place is not None and place.space == "shared":
            self.order.access("atomic", place, self.walk.length(place), self.mask, self.line)
        return self.walk.unknown("atomic", True)

    # --- barriers ---

    def block_barrier(self) -> None:
        """Meet all threads of the block."""
        self.meet(np.ones_like(self.mask))
        self.order.barrier(self.mask)
        self.step("sync")

    def meet(self, all_threads: Any) -> None:
        """Report threads that do not come to a barrier."""
        walk = self.walk
        if (all_threads & ~self.mask).any() or walk.doubtful or self.maybe_left():
            walk.say("barrier for all", self.node, "not all threads of the block come to this barrier")

    def maybe_left(self) -> bool:
        """Return whether some threads may have left on the way here."""
        walk = self.walk
        return any(f.maybe_left for f in [*walk.frames, *walk.loops])

    def warp_barrier(self) -> None:
        """Meet the lanes of the warp."""
        self.order.warp_barrier(self.mask)

    def named_barrier(self) -> None:
        """Meet as many threads as the barrier is told."""
        count = self.template(0)
        if count != int(self.mask.sum()) or self.walk.doubtful:
            self.walk.say(
                "barrier for all",
                self.node,
                f"{int(self.mask.sum())} threads come to a barrier of {count}",
            )
        self.order.barrier(self.mask)
        self.step("sync")

    def cluster_sync(self) -> None:
        """Meet all threads of all blocks of the cluster."""
        self.meet(np.ones_like(self.mask))
        self.order.cluster_barrier(self.mask)
        self.step("sync")

    def thread_fence(self) -> None:
        """Order own writes at gpu scope, as the counters of grid.cuh do by themselves."""

    # --- the asynchronous proxy ---

    def fence_shared(self) -> None:
        """Order own shared accesses before the asynchronous proxy's."""
        self.order.fence(self.mask, ("write", "atomic"))

    def fence_all(self) -> None:
        """The same for all memory, so also after an acquire."""
        self.fence_shared()
        self.fence_global()

    def fence_global(self) -> None:
        """Order what was acquired before the asynchronous proxy's accesses."""
        self.order.unfenced = self.order.unfenced & ~self.mask

    def async_store(self) -> None:
        """Begin a bulk store or reduction."""
        place, target = self.pointer(self.effect.shared), self.pointer(self.effect.target)
        if target is not None:
            self.order.written.add(target.root)
        if place is not None:
            size = self.bytes()
            self.order.async_store(place, size, self.mask, self.line)

    def bulk_commit(self) -> None:
        """Close a group."""
        self.order.commit(self.mask)

    def bulk_wait(self) -> None:
        """Wait until the writes of older groups have happened."""
        self.order.wait(self.mask, self.template(0) or 0, "written")

    def bulk_wait_read(self) -> None:
        """Wait until the shared memory of older groups has been read."""
        self.order.wait(self.mask, self.template(0) or 0, "read")

    # --- cp.async ---

    def copy_async(self) -> None:
        """Begin a copy of this thread."""
        place = self.pointer(self.effect.shared)
        if place is not None:
            self.order.access("write", place, self.length(place), self.mask, self.line, done=False)

    def copy_commit(self) -> None:
        """Close a group of copies."""
        self.order.copy_commit(self.mask)

    def copy_wait(self) -> None:
        """Wait for older groups."""
        self.order.copy_wait(self.mask, self.template(0) or 0)

    def copy_wait_all(self) -> None:
        """Wait for all copies."""
        self.order.copy_wait(self.mask, None)

    # --- other blocks ---

    def acquire(self) -> Any:
        """See what was released with the flag."""
        self.order.acquire(self.mask)
        return self.walk.unknown("flag", True)

    def release(self) -> None:
        """Release what the block wrote."""
        self.order.release(self.mask, self.line)

    def exchange(self) -> Any:
        """Release and acquire."""
        self.order.release(self.mask, self.line)
        self.order.acquired = self.order.acquired | self.mask
        return self.walk.unknown("count", True)

    def cluster_load(self) -> Any:
        """Read a peer's shared memory."""
        place = self.pointer(self.effect.shared)
        if place is not None:
            self.order.cluster_read(place, self.walk.length(place), self.mask, self.line)
        varies = place is None or not all(is_uniform(i) for i in place.index)
        return self.walk.unknown("peer", varies)

    # --- mbarriers ---

    def number(self) -> int | None:
        """Return the argument that is a number, the same in all threads."""
        value = self.arguments[self.effect.count or 0]
        if isinstance(value, np.ndarray):
            held = np.unique(value[self.mask])
            value = int(held[0]) if len(held) == 1 else None
        if is_exact(value):
            return int(value)
        self.walk.say("barrier place", self.node, "the number given to the mbarrier cannot be told")
        return None

    def barrier_init(self) -> None:
        """Set the arrivals of a phase."""
        key = self.key(self.barrier)
        if key and self.barrier:
            self.step("init", self.number(), barrier=key)
            self.order.access("init", self.barrier, 8, self.mask, self.line)

    def fence_barrier_init(self) -> None:
        """Show own initialised barriers to the cluster and the asynchronous proxy."""
        self.order.fence(self.mask, ("init",))

    def barrier_invalidate(self) -> None:
        """End a barrier."""

    def used(self) -> tuple[str, int] | None:
        """Return the name of the barrier used, which was initialised in order before."""
        key = self.key(self.barrier)
        for old in self.order.accesses.get(key[0], []) if key else []:
            if old.kind != "init" or int(old.place.index[-1]) != key[1]:
                continue
            if (old.mask & ~old.fenced).any():
                self.walk.say(
                    "barrier init",
                    self.node,
                    f"the mbarrier of line {old.line} is used without fence_barrier_init after init",
                )
            elif (self.mask & ~old.after_fence).any():
                self.walk.say(
                    "barrier init",
                    self.node,
                    f"the mbarrier of line {old.line} is used without a barrier after its init",
                )
        return key

    def barrier_arrive(self) -> None:
        """Arrive, and announce bytes where they are given."""
        key = self.used()
        if key:
            self.step("arrive", self.bytes() or 0, barrier=key)

    def barrier_expect(self) -> None:
        """Announce bytes."""
        key = self.used()
        if key:
            self.step("expect", self.bytes() or 0, barrier=key)

    def barrier_arrive_remote(self) -> None:
        """Arrive in another block: what no kernel does yet."""
        self.walk.say("unknown", self.node, "arrivals in other blocks are not followed")

    def barrier_wait(self) -> None:
        """Wait for a phase."""
        key = self.used()
        if not key:
            return
        parity = self.arguments[self.effect.count or 0]
        if isinstance(parity, Either):
            parity = parity.first
        self.arguments[self.effect.count or 0] = parity
        self.step("wait", self.number(), barrier=key)

    def barrier_try_wait(self) -> Any:
        """Ask for a phase: as good as waiting where it is asked until it says yes."""
        self.barrier_wait()
        return 1

    def async_load(self) -> None:
        """Begin a copy into shared memory."""
        self.fill(self.bytes())

    def load_operand(self) -> None:
        """Begin the copies of an operand's tile: kExtent x 64 elements of 16 bits."""
        extent = self.template(0)
        self.fill(None if extent is None else extent * 128)

    def fill(self, size: int | None) -> None:
        """Begin copies of so many bytes, which complete on a barrier."""
        place, self.barrier = self.pointer(self.effect.shared), self.pointer(self.effect.barrier)
        key = self.used()
        if key is None or place is None:
            return
        at = place.index[-1]
        if size is None or not is_exact(at) or isinstance(at, np.ndarray):
            self.walk.say("unknown", self.node, "what this copy fills cannot be told")
            return
        if self.mask.sum() > 1:
            self.walk.say("one issuer", self.node, f"{int(self.mask.sum())} threads issue one copy")
        self.step("load", size, barrier=key, span=(place.root, int(at), int(at) + size))

    # --- wgmma ---

    def wgmma_fence(self) -> None:
        """Order the accumulators before the next products."""
        self.walk.fenced_sums = True

    def wgmma(self) -> None:
        """Multiply by descriptors, whose addresses cannot be told."""
        self.walk.say("unknown", self.node, "call multiply_stage: the operands' place cannot be told")

    def multiply_stage(self) -> None:
        """Begin products of what lies in shared memory."""
        walk = self.walk
        sums = self.node.kids[1].text
        if walk.sums.get(sums) != "running" and not walk.fenced_sums:
            walk.say("wgmma fence", self.node, f"{sums} is summed up without wgmma_fence before")
        walk.sums[sums] = "running"
        for number, size in ((1, BLOCK_BYTES), (2, (self.template(1) or 64) * 128)):
            place = self.pointer(number)
            at = place.index[-1] if place is not None and place.index else None
            if place is None or not is_exact(at):
                walk.say("unknown", self.node, "what is multiplied cannot be told")
                continue
            values = np.broadcast_to(np.asarray(at), self.mask.shape)
            for first in np.unique(values[self.mask]):
                before, walk.mask = walk.mask, self.mask & (values == first)
                span = (place.root, int(first), int(first) + size)
                where = Pointer(place.root, "shared", (int(first),))
                self.order.async_read(where, size, walk.mask, self.line)
                walk.open.append(walk.read_step(span, self.node, ends=False))
                walk.mask = before

    def wgmma_commit(self) -> None:
        """Close a group of products."""
        self.walk.pending.append(self.walk.open)
        self.walk.open = []

    def wgmma_wait(self) -> None:
        """Wait for all but the last groups."""
        walk = self.walk
        keep = self.template(0) or 0
        while len(walk.pending) > keep:
            for number in walk.pending.pop(0):
                begun = walk.steps[number]
                step = Step("end", self.line, begun.mask, value=number, span=begun.span)
                walk.steps.append(step)
        if not walk.pending and not walk.open:
            walk.sums = {name: "ready" for name in walk.sums}
            walk.fenced_sums = False
