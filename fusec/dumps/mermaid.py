"""A segmented fusion as a Mermaid flowchart, which README files show as a picture."""

from __future__ import annotations

from collections import Counter

from fusec.ir.graph import Value
from fusec.segment.segmented import Segment, SegmentedFusion, tensor_bytes

MOST_KINDS = 6
COLOURS = ("#0072b2", "#c44e00", "#00805f", "#b0478a", "#966000", "#6a4fc0", "#6f6500", "#5c6670")


def segmented_fusion_mermaid(segmented: SegmentedFusion) -> str:
    """Return a flowchart: a box per segment, its tensors on the arrows, inputs above."""
    sizes = segmented.fusion.hints
    numbers = {i.value: k for k, i in enumerate(segmented.fusion.inputs)}
    made = {o.value: s.id for s in segmented.segments for o in s.fusion.outputs}
    lines = ["flowchart TB"]
    read = {v for s in segmented.segments for n in s.nodes for v in n.inputs}
    lines += [f"  i{k}([{_typed(v)}])" for v, k in numbers.items() if v in read]
    lines += [f"  s{s.id}[{_segment(s)}]" for s in segmented.segments]
    for number, output in enumerate(segmented.fusion.outputs):
        lines.append(f"  o{number}([{_typed(output.value)}])")
    for segment in segmented.segments:
        used = {v for n in segment.nodes for v in n.inputs}
        for value in (i.value for i in segment.fusion.inputs if i.value in used):
            if value in numbers:
                lines.append(f"  i{numbers[value]} --> s{segment.id}")
            elif made[value] != segment.id:
                size = f"{_escaped(value.name)}<br/>{tensor_bytes(value, sizes):,} bytes"
                lines.append(f'  s{made[value]} == "{size}" ==> s{segment.id}')
    for number, output in enumerate(segmented.fusion.outputs):
        if output.value in made:
            target = segmented.fusion.effects.into.get(output.value)
            into = f'-. "into {_escaped(target.value.name)}" .->' if target else "-->"
            lines.append(f"  s{made[output.value]} {into} o{number}")
    for segment in segmented.segments:
        colour = COLOURS[segment.id % len(COLOURS)]
        lines.append(f"  style s{segment.id} stroke:{colour},stroke-width:3px")
    return "\n".join(lines) + "\n"


def _segment(segment: Segment) -> str:
    kinds = Counter(n.op.name for n in segment.nodes).most_common()
    shown = [f"{n} {op}" if n > 1 else op for op, n in kinds[:MOST_KINDS]]
    more = [f"{len(kinds) - MOST_KINDS} more kinds"] if len(kinds) > MOST_KINDS else []
    what = ", ".join([*shown, *more])
    return f'"<b>{segment.name} {_escaped(segment.scheduler)}</b><br/>{_escaped(what)}"'


def _typed(value: Value) -> str:
    return f'"{_escaped(f"{value.name} {value.type}")}"'


def _escaped(text: str) -> str:
    """Return text with the signs that mean something to Mermaid or HTML as entities."""
    signs = {"&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "#": "#35;", "`": "#96;"}
    return "".join(signs.get(c, c) for c in text)
