"""The `segments:` of a file: values pinned together, with all nodes of their op lines."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.codes.document import MISSING_FIELD
from fusec.codes.segments import SEGMENT_INPUT, SEGMENT_TWICE, SEGMENT_VALUE, UNKNOWN_SCHEDULER
from fusec.diagnostics import FusecError, Span
from fusec.ir.annotations import Pin
from fusec.ir.graph import Fusion
from fusec.ops.names import check_name
from fusec.options import SCHEDULERS
from fusec.parse import fields
from fusec.parse.scope import near
from fusec.parse.syntax.trees import OpLine
from fusec.parse.yaml_nodes import Entry, Mapping, Scalar, YamlNode

BOUNDARIES = ("free", "explicit")
_HELP = "write `name: [y, z]` or `name: {values: [y, z], scheduler: pointwise}`"


def pins_of(node: YamlNode, fusion: Fusion, lines: Sequence[OpLine]) -> tuple[Pin, ...]:
    """Return the segments that the file names."""
    root = fields.mapping(node, "segments (a mapping)", _HELP)
    made = _made_by_line(fusion, lines)
    pins: list[Pin] = []
    owner: dict[str, tuple[str, Span]] = {}
    for entry in root.entries:
        name, options = entry.key.text, entry.value
        check_name(name, "segment", entry.key.span)
        scheduler, grows = None, False
        if isinstance(options, Mapping):
            fields.check_fields(options, ("values", "scheduler", "open"), f"segment `{name}`")
            scheduler, grows = _scheduler(options.get("scheduler")), _open(options)
            listed = options.get("values")
            if listed is None:
                raise FusecError(
                    f"segment `{name}` needs `values`",
                    span=entry.key.span,
                    help=_HELP,
                    code=MISSING_FIELD,
                )
        else:
            listed = options
        values: list[str] = []
        listed_names: set[str] = set()
        items = fields.listing(listed, "a list of values", _HELP).items
        for item in items:
            fields.text(item, "the name of a value")
            assert isinstance(item, Scalar)
            # The results of one line belong together: `var, mean` lists them both.
            group = _group(item, fusion, made, items, entry)
            first = next((owner[v] for v in group if v in owner), None)
            if first is not None and (first[0] != name or item.text in listed_names):
                raise FusecError(
                    f"`{item.text}` is in two segments"
                    if first[0] != name
                    else f"`{item.text}` is listed twice",
                    span=item.span,
                    notes=(f"first listed at {first[1].place()}, in segment `{first[0]}`",),
                    code=SEGMENT_TWICE,
                )
            listed_names.add(item.text)
            for value in group:
                if value not in owner:
                    owner[value] = (name, item.span)
                    values.append(value)
        pins.append(Pin(name, tuple(values), scheduler, entry.key.span, grows))
    return tuple(pins)


def boundaries_of(node: YamlNode) -> str:
    """Return the file's setting for where segments may end."""
    kind = fields.text(node, "`free` or `explicit`")
    if kind not in BOUNDARIES:
        raise FusecError(
            f"unknown boundaries `{kind}`",
            span=node.span,
            help=fields.did_you_mean(kind, BOUNDARIES) or "one of " + ", ".join(BOUNDARIES),
        )
    return kind


def _open(options: Mapping) -> bool:
    """Return whether a segment may contain more than the listed values."""
    node, scheduler = options.get("open"), options.get("scheduler")
    if node is None:
        return False
    text = fields.text(node, "true or false")
    if text not in ("true", "false"):
        raise FusecError(f"`open` is true or false, got `{text}`", span=node.span)
    if text == "true" and scheduler is not None:
        raise FusecError(
            "an open segment cannot have a scheduler",
            span=scheduler.span,
            help="remove `open` to fix the contents of the segment, or remove `scheduler`",
        )
    return text == "true"


def _without_inputs(items: Sequence[YamlNode], fusion: Fusion, entry: Entry) -> str | None:
    """Return the list of a segment without its inputs; None if nothing remains."""
    inputs = {i.value.name for i in fusion.inputs}
    left = [i.text for i in items if isinstance(i, Scalar) and i.text not in inputs]
    if not left:
        return "inputs are never listed: list what the segment computes"
    listed = f"[{', '.join(left)}]"
    name = "values" if isinstance(entry.value, Mapping) else entry.key.text
    return f"inputs are never listed: write `{name}: {listed}`"


def _group(
    item: Scalar,
    fusion: Fusion,
    made: dict[str, tuple[str, ...]],
    items: Sequence[YamlNode],
    entry: Entry,
) -> tuple[str, ...]:
    if item.text in made:
        return made[item.text]
    value = fusion.find(item.text)
    if value is None:
        names = sorted({v.name for n in fusion.nodes for v in n.outputs})
        raise FusecError(
            f"undefined value `{item.text}`",
            span=item.span,
            help=fields.did_you_mean(item.text, names) or "list results of ops",
            code=SEGMENT_VALUE,
        )
    if value in fusion.input_of:
        raise FusecError(
            f"`{item.text}` is an input: list results of ops",
            span=item.span,
            help=_without_inputs(items, fusion, entry),
            code=SEGMENT_INPUT,
        )
    return (item.text,)


def _made_by_line(fusion: Fusion, lines: Sequence[OpLine]) -> dict[str, tuple[str, ...]]:
    """Return, for each name of an op line, all values of the line, including nested calls."""
    line_of = {n.text: k for k, line in enumerate(lines) for n in line.names}
    made: list[list[str]] = [[] for _ in lines]
    pending: list[str] = []
    for node in fusion.nodes:
        pending += [v.name for v in node.outputs]
        named = next((v.name for v in node.outputs if v.name in line_of), None)
        if named is not None:
            made[line_of[named]] += pending
            pending = []
    return {name: tuple(made[k]) for name, k in line_of.items() if made[k]}


def _scheduler(node: YamlNode | None) -> str | None:
    if node is None:
        return None
    name = fields.text(node, "the name of a scheduler")
    if name not in SCHEDULERS:
        raise FusecError(
            f"unknown scheduler `{name}`",
            span=node.span,
            help=_near_schedulers(name),
            code=UNKNOWN_SCHEDULER,
        )
    return name


def _near_schedulers(name: str) -> str:
    """Return a question with the nearest schedulers: all with the same last word, or all there are.

    Which of them support the segment is unknown before it is planned.
    """
    nearest = near(name, SCHEDULERS)
    if nearest is None:
        return "one of " + ", ".join(SCHEDULERS)
    family = nearest.rpartition("_")[2]
    alike = [s for s in SCHEDULERS if s.rpartition("_")[2] == family]
    if name.rpartition("_")[0] or len(alike) == 1:
        return f"did you mean `{nearest}`?"
    return f"did you mean one of {', '.join(f'`{s}`' for s in alike)}?"
