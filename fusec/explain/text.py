"""A segmentation as text for people: each segment's computation, cost and reasons."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod

from fusec.explain.facts import (
    Choice,
    Crossing,
    Exchange,
    KernelFacts,
    Refused,
    Segmentation,
    SegmentFacts,
    Taken,
)
from fusec.explain.instructions import instructions
from fusec.explain.refusals import alike, reasons, takers_of, worth_reporting
from fusec.explain.units import bytes_text, share_text, time_text

WIDTH = 100
LABEL = 15
GLUE = "\u00a0"
NAMES = 8
"""Maximum number of names that one line lists."""

SAVING = ("region", "merge", "shift", "rematerialise", "redefine")


def explanation(record: Segmentation, *, every: bool = False) -> str:
    """Return the explanation of one fusion for one target.

    every: include refusals of schedulers that do not support such a kind of segment, and the
    instructions of kernels if they were counted.
    """
    text = _Text(record, every)
    blocks = [
        _overview(record),
        *(text.segment(s) for s in record.segments),
        text.boundaries(),
        _saved(record),
        text.others(),
        _choices(record.choices),
        text.rest(),
    ]
    return "\n".join("\n".join(block) + "\n" for block in map(list, blocks) if block)


class _Text:
    """The text about segments and decisions: each refusal once, and only near ones."""

    def __init__(self, record: Segmentation, every: bool) -> None:
        self._record, self._every = record, every
        self._printed: set[tuple[Refused, ...]] = set()
        self._left = 0

    def segment(self, segment: SegmentFacts) -> Iterator[str]:
        yield from _segment(segment)
        if self._every:
            for kernel in segment.occupancy:
                yield from rows("instructions", instructions(kernel))
        yield from rows("refused", self._texts(segment.refusals))

    def boundaries(self) -> Iterator[str]:
        stayed = [d for d in self._record.decisions if d.action == "boundary"]
        if stayed:
            yield "Not fused"
        for decision in stayed:
            producer, consumer = decision.subject[:2]
            over = [c for c in self._record.crossing if crosses(c, producer, consumer)]
            yield f"  {producer} -> {consumer}"
            for tensor in over:
                yield from row("tensor", crossing_text(tensor))
            yield from rows("because", self._reasons(decision))
            self._printed.add(decision.refusals)

    def others(self) -> Iterator[str]:
        rest = [
            d for d in self._record.decisions
            if d.action not in (*SAVING, "boundary") and not self._is_printed(d)
        ]  # fmt: skip
        if rest:
            yield "Other decisions"
        taken = dict[tuple[str, str], dict[str, None]]()
        for decision in rest:  # several about one value are reported together, and once
            reasons = taken.setdefault((decision.action, names(decision.subject)), {})
            reasons |= dict.fromkeys(self._reasons(decision))
        for (action, subject), reasons in taken.items():
            yield from row(action, subject)
            yield from rows("", reasons)

    def rest(self) -> Iterator[str]:
        if self._left:
            left = count(self._left, "refusal")
            yield f"{left} by unrelated schedulers not shown: use `--all`"

    def _is_printed(self, decision: Taken) -> bool:
        """Return whether boundaries have the same refusals: two segments may be everything."""
        return bool(decision.refusals) and decision.refusals in self._printed and not self._every

    def _reasons(self, decision: Taken) -> list[str]:
        takers = takers_of(self._record, decision)
        self._left += len(decision.refusals) - len(
            worth_reporting(decision.refusals, takers, self._every)
        )
        return reasons(decision, takers, every=self._every)

    def _texts(self, refusals: Sequence[Refused]) -> list[str]:
        found = worth_reporting(refusals, (), self._every)
        self._left += len(refusals) - len(found)
        return alike(found)


def _overview(record: Segmentation) -> Iterator[str]:
    target = record.target
    yield f"{record.fusion} on {target['device']} ({target['arch']}): {summary(record)}"
    yield from row("ranks", ranks_text(record.mesh)) if record.mesh else ()
    yield from row("traffic", moved(record.bytes, record.floor_bytes))
    yield from row("peak memory", f"{bytes_text(record.peak_bytes)} (excluding inputs)")
    yield from row("time", f"{time_text(record.seconds)} predicted, {reached(record)}")
    fitted = fitted_elsewhere(target)
    yield from row("cost model", fitted) if fitted else ()
    written = ", ".join(f"{output} into {given}" for output, given in record.aliases.items())
    yield from row("in place", written) if written else ()
    yield from row("saved", saved_text(record)) if record.saved else ()
    sizes = ", ".join(f"{n}={s}" for n, s in record.sizes.items() if "." not in n)
    yield from row("sizes", sizes) if sizes else ()
    yield from row("exact", exact_text(record)) if record.exact else ()


def fitted_elsewhere(target: Mapping[str, str]) -> str:
    """Return the other GPU that the cost model was fitted on; empty if it is this one."""
    if target["cost_of"] == target["arch"]:
        return ""
    return (
        f"its coefficients were fitted on another GPU, {target['cost_of']}: fractions apply to the "
        f"rates of {target['arch']}, latencies are not scaled"
    )


def ranks_text(mesh: Mapping[str, int]) -> str:
    """Return `8 (dp: 2, tp: 4), ...` of the axes of a mesh."""
    axes = ", ".join(f"{axis}: {extent}" for axis, extent in mesh.items())
    return f"{prod(mesh.values())} ({axes}); figures are per rank, for its shard"


def summary(record: Segmentation) -> str:
    """Return `2 segments, 3 kernels`."""
    kernels = sum(s.kernels for s in record.segments)
    return f"{count(len(record.segments), 'segment')}, {count(kernels, 'kernel')}"


def count(number: int, noun: str) -> str:
    """Return `1 segment`, `2 segments`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def moved(size: int, floor: int, workspace: int = 0) -> str:
    """Return the traffic and the compulsory traffic."""
    scratch = f", scratch {bytes_text(workspace)}" if workspace else ""
    if not size and not floor:
        return f"nothing{scratch}"
    share = share_text(floor, size)
    return f"{bytes_text(size)}, compulsory {bytes_text(floor)} ({share}){scratch}"


def saved_text(record: Segmentation) -> str:
    """Return what the phases of a joint graph save for each other."""
    kept = ", ".join(f"{s.name} {bytes_text(s.bytes)}" for s in record.saved[:NAMES])
    more = f" and {len(record.saved) - NAMES} more" if len(record.saved) > NAMES else ""
    return f"{bytes_text(record.saved_bytes)} between phases: {kept}{more}"


EXACT_SPACE = (
    "over all segmentations of this definition that compute reductions, GEMMs, scans and sorts "
    "once and may recompute other operations; indices count as distinct"
)
"""The set of segmentations that the exact bound is proven over: `fusec.exact.bound`."""


def exact_text(record: Segmentation) -> str:
    """Return how close to the least traffic a segmentation is; pins are ignored there."""
    exact, found = record.exact, record.bytes
    if exact is None:
        return ""
    if exact.lower_bytes >= found:
        best = f"{bytes_text(found)} is proven minimal ({exact.method})"
        return f"gap 0 %: {best}, {EXACT_SPACE}"
    lower = f"lower bound {bytes_text(exact.lower_bytes)} ({exact.method})"
    better = f"; {bytes_text(exact.compulsory_bytes)} is possible"
    pinned = " without pins" if any(s.pin for s in record.segments) else ""
    known = better + pinned if exact.compulsory_bytes < found else ""
    return f"gap at most {100 * exact.gap:.1f} %: {lower}{known}, {EXACT_SPACE}"


def _segment(segment: SegmentFacts) -> Iterator[str]:
    pin = f", pinned as `{segment.pin}`" if segment.pin else ""
    yield f"{segment.name} {segment.scheduler}{pin}"
    yield from row("computes", computes(segment))
    if segment.exchange:
        yield from row("collective", exchange(segment.exchange))
        yield from row("transport", carried(segment.exchange))
    yield from row("runs", runs(segment)) if segment.iterations > 1 else ()
    yield from row("traffic", moved(segment.bytes, segment.floor_bytes, segment.workspace_bytes))
    yield from row("time", time_of(segment))
    yield from row("host", segment.host) if segment.host else ()
    if segment.kernels:
        yield from row("kernels", launches(segment))
        yield from rows("occupancy", map(registers, segment.occupancy))
        yield from row("schedule", schedule(segment))
        if segment.tuned is not None and segment.tuned.reordered:
            yield from row("sum order", reordered(segment.tuned.reordered))
        yield from rows("orders", orders(segment))
    yield from rows("specialized", specialised(segment))
    yield from row("overridden", overridden(segment)) if segment.overrides else ()
    yield from row("alternatives", others) if (others := rivals(segment)) else ()


def specialised(segment: SegmentFacts) -> Iterator[str]:
    """Yield the specialized dims, what requires each, and how to keep it dynamic."""
    for fixed in segment.specialised:
        yield f"{fixed.dim} = {fixed.size}: {fixed.because}; {fixed.way_out}"


def orders(segment: SegmentFacts) -> Iterator[str]:
    """Yield the orders of sums that lose bits to 16-bit partial sums, or whose bits vary."""
    for each in segment.orders:
        if each.arrives:
            yield f"{each.value}: {each.order}; bits vary between runs"
        elif each.rounded:
            yield f"{each.value}: {each.order}"


def exchange(facts: Exchange) -> str:
    """Return `all_reduce (sum) over tp: each of 4 ranks sends 1 MiB`."""
    reduction = f" ({facts.reduction})" if facts.reduction else ""
    sent = bytes_text(facts.sent_bytes)
    return f"{facts.kind}{reduction} over {facts.axis}: each of {facts.ranks} ranks sends {sent}"


def carried(facts: Exchange) -> str:
    """Return `by NCCL: it is a reduction, which copy engines cannot do`."""
    return f"by {facts.carrier}: {facts.carrier_because}"


def runs(segment: SegmentFacts) -> str:
    """Return how often a segment runs."""
    return f"{segment.iterations} times, once per slice; traffic and time are totals"


def overridden(segment: SegmentFacts) -> str:
    """Return the fields of the schedule that the user set, and where."""
    set_ = ((o.field, str(o.value), o.place) for o in segment.overrides)
    return ", ".join(f"{f} {v.lower()}" + (f" ({p})" if p else "") for f, v, p in set_)


def schedule(segment: SegmentFacts) -> str:
    """Return how the schedule was selected, and where it was measured."""
    tuned = segment.tuned
    if tuned is None:
        halves = any((o.field, o.value) == ("workspace_dtype", "half") for o in segment.overrides)
        chosen = "set by `schedules:`" if segment.overrides else "selected by the cost model"
        return f"{chosen}, 16-bit workspace" if halves else chosen
    time = time_text(tuned.us * 1e-6)
    at = "" if tuned.exact else f" at {tuned.sizes}"
    return f"tuned: {time} measured{at} on {tuned.device}, {tuned.date} (from {tuned.source})"


def reordered(sums: Iterable[str]) -> str:
    """Return that a measured schedule changes the last bits of some sums."""
    names = ", ".join(f"`{name}`" for name in sums)
    return f"the measured schedule changes the last bits of {names}; use `--untuned` to avoid this"


def launches(segment: SegmentFacts) -> str:
    """Return how many kernels a segment has, and how close to its limit they run."""
    return f"{segment.kernels}, {count(segment.ctas, 'block')}, {reached(segment)}"


def registers(kernel: KernelFacts) -> str:
    """Return the resources of a kernel and its blocks per SM, predicted or as built."""
    size = kernel.shared_bytes
    shared = f", {bytes_text(size)} shared memory/block" if size else ""
    spilled = "; spills: the launch bounds allow no more" if kernel.spills else ""
    told = f"about {kernel.registers}"
    if kernel.built_registers is not None:
        told = f"{kernel.built_registers} ({told} predicted)"
    return (
        f"{kernel.name}: {told} registers/thread, {kernel.threads} threads/block{shared}, "
        f"{count(kernel.resident_blocks, 'block')}/SM{spilled}"
    )


def reached(facts: SegmentFacts | Segmentation) -> str:
    """Return how close the predicted time is to a limit: to the tensor cores' if they bind."""
    binds = isinstance(facts, SegmentFacts) and facts.bound == "tensor_cores"
    if binds or facts.tensor_share > facts.share:
        return f"{share_text(facts.tensor_share, 1)} of peak tensor-core throughput (GEMMs)"
    left = facts.l2_bytes if isinstance(facts, SegmentFacts) else 0
    stays = f" except {bytes_text(left)} that stays in L2" if left else ""
    return f"{share_text(facts.share, 1)} of peak bandwidth (compulsory traffic{stays})"


def rivals(segment: SegmentFacts) -> str:
    """Return the other schedulers that support the segment, with their times."""
    return segment.why.partition("; ")[2]


def computes(segment: SegmentFacts) -> str:
    """Return the outputs, inputs and operations of a segment, as `y = f(x, b): 6 mul, 2 cast`."""
    kinds = Counter(n.op for n in segment.nodes)
    by = ", ".join(f"{n} {op}" if n > 1 else op for op, n in kinds.most_common(NAMES))
    rest = f" and {count(len(kinds) - NAMES, 'other kind')}" if len(kinds) > NAMES else ""
    return f"{names(segment.outputs)} = f({names(segment.inputs)}): {by}{rest}"


def names(every: Sequence[str]) -> str:
    """Return names, at most NAMES of them."""
    more = f" and {len(every) - NAMES} more" if len(every) > NAMES else ""
    return ", ".join(every[:NAMES]) + more


def time_of(segment: SegmentFacts) -> str:
    """Return the predicted time and what bounds it."""
    if segment.bound == "nothing":
        return "no kernel is launched"
    parts = (
        f"{resource(name)} {time_text(seconds)}"
        for name, seconds in sorted(segment.time.items(), key=lambda item: -item[1])
        if seconds >= 1e-8
    )
    return f"{time_text(segment.seconds)}, bound by {resource(segment.bound)} ({', '.join(parts)})"


def resource(key: str) -> str:
    """Return the name of a resource as people write it."""
    return key.replace("l2", "L2").replace("_", " ")


def crosses(tensor: Crossing, producer: str, consumer: str) -> bool:
    """Return whether a tensor goes from one segment to another."""
    return f"s{tensor.producer}" == producer and consumer in {f"s{c}" for c in tensor.consumers}


def crossing_text(tensor: Crossing) -> str:
    """Return a tensor with its type and the cost of storing it."""
    shape = ", ".join(map(str, tensor.shape))
    reads = count(len(tensor.consumers), "reader")
    stored = ", an output anyway" if tensor.is_output else ""
    return f"{tensor.name} {tensor.dtype}[{shape}], {bytes_text(tensor.bytes)}, {reads}{stored}"


def _saved(record: Segmentation) -> Iterator[str]:
    taken = [d for d in record.decisions if d.action in SAVING]
    if taken or record.rematerialised:
        yield "Saved"
    for decision in taken:
        yield from row(decision.action, f"{names(decision.subject)}: {decision.because}")
    for value in record.rematerialised:
        where = names([f"s{k}" for k in value.segments])
        shape = ", ".join(map(str, value.shape))
        yield from row(
            "recomputed",
            f"{value.name} {value.dtype}[{shape}] in {where}, saves "
            f"{bytes_text(value.saved_bytes)}: {value.because}",
        )


def _choices(found: Iterable[Choice]) -> Iterator[str]:
    last: str | None = None
    for choice in found:
        if choice.dim != last:
            yield f"Choices over {choice.dim}"
            last = choice.dim
        where = f"{choice.first}..{choice.last}" if choice.first < choice.last else choice.first
        yield from row(str(where), choice_text(choice), label=max(LABEL, len(str(where)) + 1))


def choice_text(choice: Choice) -> str:
    """Return the choice over a range of sizes."""
    if choice.refused is not None or choice.seconds is None:
        return f"not possible: {choice.refused}"
    parts = "; ".join(f"{p.scheduler} ({names(p.outputs)})" for p in choice.segments)
    first, last = map(time_text, choice.seconds)
    time = f"{first} to {last}" if choice.first < choice.last else first
    return f"{count(len(choice.segments), 'segment')}, {time}: {parts}"


def rows(name: str, texts: Iterable[str]) -> Iterator[str]:
    """Yield the lines of several texts under one label."""
    for number, text in enumerate(texts):
        yield from row("" if number else name, text)


def row(name: str, text: str, *, label: int = LABEL) -> Iterator[str]:
    """Yield the lines of a labelled text; numbers stay with their units."""
    head = f"    {name:<{label - 2}} "
    kept = re.sub(r"(?<=\d) (?=(?:[um]?s|[kMGTP]?B|%)(?!\w))", GLUE, text)
    lines = textwrap.wrap(
        kept,
        WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )
    yield from (line.replace(GLUE, " ") for line in lines)
