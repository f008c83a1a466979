"""A segmented fusion as JSON and as a DOT graph."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from fusec.ir.graph import Fusion, Node, Value
from fusec.segment.protocol import Estimate
from fusec.segment.segmented import Segment, SegmentedFusion, tensor_bytes

SCHEMA_VERSION = 1


def segmented_fusion_json(segmented: SegmentedFusion) -> str:
    """Return segments, edges and decisions as JSON."""
    sizes = segmented.fusion.hints
    data = {
        "schema_version": SCHEMA_VERSION,
        "fusion": segmented.fusion.name,
        "sizes": dict(sizes),
        "bytes": segmented.bytes,
        "segments": [_segment(s) for s in segmented.segments],
        "edges": [
            {
                "from": e.producer,
                "to": e.consumer,
                "value": e.value.name,
                "type": str(e.value.type),
                "bytes": tensor_bytes(e.value, sizes),
            }
            for e in segmented.edges
        ],
        "decisions": [asdict(d) for d in segmented.decisions],
    }
    return json.dumps(data, indent=2) + "\n"


def _segment(segment: Segment) -> dict[str, Any]:
    return {
        "id": segment.id,
        "name": segment.fusion.name,
        "scheduler": segment.scheduler,
        "pin": segment.pin,
        "host": segment.host,
        "why": segment.why,
        "inputs": [_typed(i.value) for i in segment.fusion.inputs],
        "outputs": [
            {**_typed(o.value), **_place(segment.fusion, o.value)} for o in segment.fusion.outputs
        ],
        "nodes": [node_text(n) for n in segment.nodes],
        **({"iterations": segment.iterations} if segment.iterations > 1 else {}),
        "estimate": None if segment.estimate is None else _estimate(segment.estimate),
        "refusals": [
            {"scheduler": name, "rule": r.rule, "because": r.because}
            for name, r in segment.refusals
        ],
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    """Return a predicted cost; without the fields of communication for a kernel."""
    without = () if estimate.exchange else ("exchange", "sent")
    return {k: v for k, v in asdict(estimate).items() if k not in without}


def _typed(value: Value) -> dict[str, Any]:
    return {"name": value.name, "type": str(value.type)}


def node_text(node: Node) -> str:
    arguments = [o.name if isinstance(o, Value) else repr(o.value) for o in node.operands]
    arguments += [f"{k}={_attribute(v)}" for k, v in node.attributes.items() if v is not None]
    return f"{', '.join(v.name for v in node.outputs)} = {node.op.name}({', '.join(arguments)})"


def _attribute(value: Any) -> str:
    if isinstance(value, tuple):
        items: tuple[Any, ...] = value  # pyright: ignore[reportUnknownVariableType]
        return "[" + ", ".join(_attribute(v) for v in items) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def segmented_fusion_dot(segmented: SegmentedFusion) -> str:
    """Return a DOT graph: a box of nodes per segment, inputs above, outputs below, in run order."""
    sizes = segmented.fusion.hints
    lines = [
        f"digraph {_quoted(segmented.fusion.name)} {{",
        "  rankdir=TB;",
        '  node [shape=box, fontname="monospace", fontsize=10];',
        "  compound=true;",
    ]
    lines += _ends("source", [i.value for i in segmented.fusion.inputs], "ellipse")
    for segment in segmented.segments:
        lines += _cluster(segment)
    lines += _ends("sink", [o.value for o in segmented.fusion.outputs], "doublecircle")
    made = {o.value: s.id for s in segmented.segments for o in s.fusion.outputs}
    for segment in segmented.segments:
        for entry in segment.fusion.inputs:
            if not _is_read(segment, entry.value):
                continue
            source = made.get(entry.value)
            if source is None:
                lines.append(f"  {_quoted('end:' + entry.value.name)} -> s{segment.id};")
            else:
                size = f"{entry.value.name} {entry.value.type}"
                label = f"{size}\\n{tensor_bytes(entry.value, sizes)} bytes"
                lines.append(f"  s{source} -> s{segment.id} [label={_quoted(label)}];")
    for output in segmented.fusion.outputs:
        if output.value in made:
            target = _quoted("end:" + output.value.name)
            into = _place(segmented.fusion, output.value).get("alias")
            style = "" if into is None else f" [style=dashed, label=into_{into}]"
            lines.append(f"  s{made[output.value]} -> {target}{style};")
    return "\n".join([*lines, "}"]) + "\n"


def _place(fusion: Fusion, output: Value) -> dict[str, str]:
    """Return the input that an output is written into, if there is one."""
    target = fusion.effects.into.get(output)
    return {} if target is None else {"alias": target.value.name}


def _is_read(segment: Segment, value: Value) -> bool:
    return bool(segment.fusion.users.get(value))


def _ends(rank: str, values: list[Value], shape: str) -> list[str]:
    lines = [f"  subgraph {rank} {{", f"    rank={rank};"]
    for value in values:
        label = _quoted(f"{value.name}\\n{value.type}")
        lines.append(f"    {_quoted('end:' + value.name)} [shape={shape}, label={label}];")
    return [*lines, "  }"]


def _cluster(segment: Segment) -> list[str]:
    text = "\\l".join(node_text(n) for n in segment.nodes) + "\\l"
    title = f"{segment.name} {segment.scheduler}"
    return [
        f"  subgraph cluster_{segment.id} {{",
        f"    label={_quoted(title)};",
        f"    s{segment.id} [label={_quoted(text)}];",
        "  }",
    ]


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'
