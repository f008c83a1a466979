"""A segmented fusion in nvFuser's text, and a fusion as its `%kernel_math`."""

from __future__ import annotations

from fusec.diagnostics import FusecError
from fusec.dumps.expressions import STYLES, Printer
from fusec.dumps.numbering import Numbering
from fusec.ir.graph import Fusion, Value
from fusec.segment.segmented import Edge, Segment, SegmentedFusion


def segmented_fusion_text(segmented: SegmentedFusion, style: str = "2024") -> str:
    """Return groups, edges and group details in nvFuser's grammar: that of June 2024, or `head`.

    If there is a host level above them, its groups of kind `none` come first.
    """
    if style not in STYLES:
        raise FusecError(f"unknown style `{style}`", help="one of " + ", ".join(STYLES))
    host = "" if segmented.host is None else _Dump(segmented.host, style).text()
    return host + _Dump(segmented, style).text()


def fusion_math_text(fusion: Fusion, style: str = "2024") -> str:
    """Return a fusion's inputs, outputs and expressions as nvFuser prints its math."""
    printer = _printer(fusion, [], style)
    lines = ["Inputs:"]
    lines += [f"  {printer.value(i.value)}, {i.value.dtype.printed}" for i in fusion.inputs]
    lines.append("Outputs:")
    lines += [f"  {printer.value(o.value)}, {o.value.dtype.printed}" for o in fusion.outputs]
    lines += ["", "%kernel_math {"]
    text = "\n".join(lines) + "\n"
    for node in fusion.nodes:
        text += "".join(expression for _, expression in printer.expressions(node))
    return text + "} // %kernel_math \n"


def _printer(fusion: Fusion, crossing: list[Value], style: str) -> Printer:
    stored = [i.value for i in fusion.inputs] + [o.value for o in fusion.outputs] + crossing
    return Printer(Numbering(fusion), stored, style)


SCHEDULERS = {
    "concat": "resize",
    "scan": "greedy",
    "sort": "greedy",
    "scatter": "greedy",
    "placement": "expr_eval",
    "host": "expr_eval",
    "attention": "expr_eval",
    "attention_decode": "expr_eval",
    "attention_backward": "expr_eval",
}
"""nvFuser's names for schedulers with other names here.

Its resize scheduler takes cats, its greedy one scans, sorts and scatters; nodes without a kernel
are evaluated as expressions.
"""


class _Dump:
    def __init__(self, segmented: SegmentedFusion, style: str) -> None:
        self.segmented = segmented
        self.head = style == "head"
        crossing = [e.value for e in segmented.edges]
        self.printer = _printer(segmented.fusion, crossing, style)

    def text(self) -> str:
        """Return the whole dump."""
        margin, gap = ("  ", "") if self.head else ("", "\n")
        groups = "".join(f"{margin}{self._group(s)}{gap}\n" for s in self.segmented.segments)
        edges = "".join(f"{margin}{self._edge(e)}{gap}\n" for e in self._edges())
        details = "".join(self._detail(s) for s in self.segmented.segments)
        return (
            "Segmented_Fusion Dump: -- fusion segments:\n"
            f"Segmented_Fusion{{ \ngroups: \n{groups}edges: \n{edges}"
            f"{'' if edges and not self.head else chr(10)}group details:\n{details}"
            "} //Segmented_Fusion\n"
        )

    def _edges(self) -> list[Edge]:
        return sorted(
            self.segmented.edges, key=lambda e: (e.producer, e.consumer, self._number(e.value))
        )

    def _number(self, value: Value) -> tuple[int, int]:
        if value.is_scalar:
            return (1, int(self.printer.names.scalars[value][1:]))
        return (0, self.printer.names.tensors[value].number)

    def _group(self, segment: Segment) -> str:
        names = self.printer.names
        numbers = sorted({k for node in segment.nodes for k in names.numbers(node)})
        kind = _scheduler(segment) if self.head else "g"
        return kind + "{" + ", ".join(map(str, numbers)) + "}"

    def _edge(self, edge: Edge) -> str:
        line = "" if self.head else "\n"
        producer = self._group(self.segmented.segments[edge.producer])
        consumer = self._group(self.segmented.segments[edge.consumer])
        value = self.printer.value(edge.value)
        return f"e{{ {producer}{line} -> {consumer}{line}({value}) }}"

    def _detail(self, segment: Segment) -> str:
        margin, blank = ("  ", "") if self.head else ("", " ")
        kind = _scheduler(segment)
        lines = ["g{" if kind == "none" else f"g{{({kind})"]
        if self.head:
            lines.append(f"group id: {segment.id}")
        read = {v for node in segment.nodes for v in node.inputs}
        ends = (
            ("inputs", [i.value for i in segment.fusion.inputs if i.value in read]),
            ("outputs", [o.value for o in segment.fusion.outputs]),
        )
        for title, values in ends:
            lines.append(f"{title}:{blank}")
            lines += [margin + self.printer.typed(v) for v in sorted(values, key=self._number)]
        text = "\n".join(lines) + ("\n\n\n" if self.head else "\n\n")
        pieces = sorted(p for node in segment.nodes for p in self.printer.expressions(node))
        text += "".join(f"{expression}({number})\n" for number, expression in pieces)
        return text + "}\n\n"


def _scheduler(segment: Segment) -> str:
    return SCHEDULERS.get(segment.scheduler, segment.scheduler)
