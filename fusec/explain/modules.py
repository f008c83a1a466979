"""A model by its modules: their predicted time and traffic, and boundaries between segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from fusec.dataclasses import dataclass, replace
from fusec.explain.facts import Break, Crossing, ModuleFacts, Segmentation, SegmentFacts, Taken
from fusec.explain.refusals import reasons, takers_of
from fusec.explain.remedies import ATTENTION, remedy
from fusec.segment.segmented import Segment, SegmentedFusion
from fusec.target import Target

_GEMM = 1000
"""Number of operations that one GEMM counts as: its module is that of its segment."""


def with_modules(
    record: Segmentation, segmented: SegmentedFusion, target: Target, modules: Mapping[str, str]
) -> Segmentation:
    """Return a record with the modules of its segments, and the boundaries between segments.

    modules: the paths of modules by the names of the values that they compute.
    """
    located = tuple(
        replace(facts, module=_module_of(segment, modules))
        for facts, segment in zip(record.segments, segmented.segments, strict=True)
    )
    record = replace(record, segments=located, modules=tuple(tree_of(located)))
    return replace(record, breaks=tuple(_breaks(record, target)))


def _module_of(segment: Segment, modules: Mapping[str, str]) -> str:
    """Return the module of a segment's GEMM, else of most of its operations.

    Passes and composites add values that belong to no module: they count to the next one that does.
    """
    votes: Counter[str] = Counter()
    unnamed = 0
    last = ""
    for node in segment.nodes:
        known = next((modules[v.name] for v in node.outputs if v.name in modules), None)
        weight = _GEMM if node.op.family == "contraction" else 1
        if known is None:
            unnamed += weight
            continue
        votes[known] += weight + unnamed
        last, unnamed = known, 0
    votes[last] += unnamed
    return max(votes, key=lambda path: votes[path])


def parents_of(path: str) -> list[str]:
    """Return a path and its parents, the outermost first: `a`, `a.b` of `a.b`; `` of ``."""
    return list(accumulate(path.split("."), lambda a, b: f"{a}.{b}"))


def tree_of(segments: Sequence[SegmentFacts]) -> Iterator[ModuleFacts]:
    """Yield each module with segments, after its parents; its figures include its submodules."""
    members: dict[str, list[SegmentFacts]] = {}
    for segment in segments:
        for path in parents_of(segment.module):
            members.setdefault(path, []).append(segment)
    order = {path: number for number, path in enumerate(members)}

    def place(path: str) -> list[tuple[bool, int]]:
        """Return a sort key of modules: numbered ones by number, others in order of execution."""
        words = zip(path.split("."), parents_of(path), strict=True)
        return [(w.isdecimal(), int(w) if w.isdecimal() else order[p]) for w, p in words]

    for path in sorted(members, key=place):
        own = members[path]
        yield ModuleFacts(
            path, tuple(s.id for s in own), sum(s.seconds for s in own),
            sum(s.bytes + s.workspace_bytes for s in own), sum(s.floor_bytes for s in own),
        )  # fmt: skip


@dataclass(frozen=True)
class Nested:
    """A module with its direct submodules."""

    facts: ModuleFacts
    inner: tuple[Nested, ...]


def nested(modules: Sequence[ModuleFacts]) -> tuple[Nested, ...]:
    """Return the outermost modules, with their submodules."""

    def inside(path: str | None) -> tuple[Nested, ...]:
        own = (m for m in modules if _parent(m.module) == path)
        return tuple(Nested(m, inside(m.module)) for m in own)

    return inside(None)


def _parent(path: str) -> str | None:
    """Return the parent of a module, None for an outermost one."""
    around = parents_of(path)[:-1]
    return around[-1] if around else None


def _breaks(record: Segmentation, target: Target) -> Iterator[Break]:
    """Yield the pairs of segments that are not fused, by decreasing traffic."""
    found: list[Break] = []
    for decision in record.decisions:
        pair = _pair(record, decision)
        if pair is None:
            continue
        is_path = decision.action == "attention"
        over = _between(record, *pair) if is_path else _direct(record, *pair)
        if over:
            found.append(_break(record, decision, pair, over, target))
    yield from sorted(found, key=lambda b: -b.bytes)


Pair = tuple[SegmentFacts, SegmentFacts]


def _pair(record: Segmentation, decision: Taken) -> Pair | None:
    """Return the segments of a boundary, or of the two GEMMs of an attention."""
    if decision.action == "boundary":
        names = {s.name: s for s in record.segments}
    elif decision.action == "attention":
        names = {n: s for s in record.segments for node in s.nodes for n in node.outputs}
    else:
        return None
    first, second = (names.get(name) for name in decision.subject[:2])
    return None if first is None or second is None else (first, second)


def _direct(record: Segmentation, first: SegmentFacts, second: SegmentFacts) -> list[Crossing]:
    """Return the tensors that one segment writes and another one reads."""
    return [c for c in record.crossing if c.producer == first.id and second.id in c.consumers]


def _between(record: Segmentation, first: SegmentFacts, second: SegmentFacts) -> list[Crossing]:
    """Return the tensors on the way from a segment to another one."""
    after, before = {first.id}, {second.id}
    for tensor in sorted(record.crossing, key=lambda c: c.producer):
        if tensor.producer in after:
            after.update(tensor.consumers)
    for tensor in sorted(record.crossing, key=lambda c: -c.producer):
        if before.intersection(tensor.consumers):
            before.add(tensor.producer)
    inside = after & before
    return [c for c in record.crossing if c.producer in inside and inside.intersection(c.consumers)]


def _break(
    record: Segmentation, decision: Taken, pair: Pair, over: Sequence[Crossing], target: Target
) -> Break:
    producer, consumer = pair
    # The write is saved only if the tensor has no other reader and is not an output.
    size = sum(c.bytes * (2 if len(c.consumers) == 1 and not c.is_output else 1) for c in over)
    about = decision.action == "attention"
    takers = {*ATTENTION} if about else takers_of(record, decision)
    told = [r for r in decision.refusals if r.near or r.scheduler in takers]
    # A boundary between other GEMMs is not one of attention.
    own = [r for r in told if about or r.scheduler not in ATTENTION]
    fixes = (remedy(r.scheduler, r.rule) for r in own)
    return Break(
        producer.name, consumer.name, producer.module, consumer.module,
        tuple(c.name for c in over), size, size / target.read_bandwidth + target.launch,
        tuple(reasons(decision, takers)), next((fix for fix in fixes if fix), ""),
    )  # fmt: skip
