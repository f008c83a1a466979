"""Fusions that one rank or one iteration runs, made by hand, and host programs of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fusec.hostir.expand import expand
from fusec.hostir.lower import lower
from fusec.hostir.passes import Known, run_pipeline
from fusec.hostir.program import HostProgram, check_program, dense_strides
from fusec.ir.dim import DimLike, ceildiv, dim, symbol
from fusec.ir.dtype import F32
from fusec.ir.graph import DimFact, Fusion, Input, Node, Output, Type, Value
from fusec.ir.op import OpDef
from fusec.ops import TABLE
from fusec.ops.communication import STREAM_STACK, make_node
from fusec.schedule.plan import (
    Kernel,
    KernelPlan,
    SizeArgument,
    TensorArgument,
    TensorMapArgument,
    Workspace,
    WorkspaceArgument,
)
from fusec.segment.segmented import Segment, SegmentedFusion, extract

RANKS = 4


class Local:
    """Builds a divided fusion node by node."""

    def __init__(self, name: str = "local", **sizes: int) -> None:
        """Declare dims with their sizes."""
        self.name, self.sizes = name, sizes
        self.inputs: list[Input] = []
        self.nodes: list[Node] = []

    def input(self, name: str, *shape: DimLike) -> Value:
        """Declare an f32 tensor."""
        extents = tuple(dim(e) for e in shape)
        value = Value(name, Type(F32, extents))
        self.inputs.append(Input(value, dense_strides(extents)))
        return value

    def op(self, name: str, op: str, *operands: Value, **attributes: Any) -> Value:
        """Apply an operation of the table."""
        definition = TABLE[op]
        (result,) = definition.infer(operands, attributes)
        self.nodes.append(Node(definition, operands, attributes, (Value(name, result),)))
        return self.nodes[-1].output

    def part(self, name: str, op: OpDef, operand: Value, **attributes: Any) -> Value:
        """Apply an operation between ranks or on parts."""
        given: Any = {k: dim(v) if k == "parts" else v for k, v in attributes.items()}
        self.nodes.append(make_node(op, operand, name, **given))
        return self.nodes[-1].output

    def finish(self, *outputs: Value | Output) -> Fusion:
        """Return the fusion."""
        dims = tuple(DimFact(name, size) for name, size in self.sizes.items())
        results = tuple(o if isinstance(o, Output) else Output(o) for o in outputs)
        return Fusion(self.name, tuple(self.inputs), tuple(self.nodes), results, dims)


def segmented(fusion: Fusion) -> SegmentedFusion:
    """Return a fusion with each node as a segment; what is stacked is written where it will lie."""
    stacks = {n.inputs[0]: n for n in fusion.nodes if n.op is STREAM_STACK}
    segments: list[Segment] = []
    for k, node in enumerate(fusion.nodes):
        part = extract(fusion, (node,), f"{fusion.name}_s{k}")
        stack = stacks.get(node.output)
        if stack is not None:
            lain = replace(part.outputs[0], strides=fusion.effects.strides(stack.output))
            part = replace(part, outputs=(lain,))
        for entry in part.inputs:
            assert entry.value in fusion.producer or entry.value in fusion.input_of
        family = {"communication": "communication", "placement": "placement"}
        kind = family.get(node.op.family, "pointwise")
        segments.append(Segment(k, kind, _read_as_it_lies(fusion, part), None))
    return SegmentedFusion(fusion, tuple(segments))


def _read_as_it_lies(fusion: Fusion, part: Fusion) -> Fusion:
    """Return a segment whose inputs that are parts of others have the strides of these."""
    return replace(
        part, inputs=tuple(replace(i, strides=_strides(fusion, i.value)) for i in part.inputs)
    )


def _strides(fusion: Fusion, value: Value) -> tuple[Any, ...]:
    node = fusion.producer.get(value)
    if node is None:
        return fusion.input_of[value].strides
    if node.op.name in ("stream_slice", "rank_slice"):
        return _strides(fusion, node.inputs[0])
    stack = next((u for u in fusion.users.get(value, ()) if u.op is STREAM_STACK), None)
    return fusion.effects.strides(value if stack is None else stack.output)


def plans_of(cut: SegmentedFusion, workspace: str = "", maps: bool = False) -> list[KernelPlan]:
    """Return a plan with one kernel for each segment that computes."""
    return [_plan(s, workspace, maps) for s in cut.segments]


def _plan(segment: Segment, workspace: str, maps: bool) -> KernelPlan:
    fusion = segment.fusion
    if segment.scheduler != "pointwise":
        return KernelPlan(segment.scheduler, fusion, (), None)
    given = [TensorArgument(i.value.name, F32) for i in fusion.inputs]
    made = [TensorArgument(o.value.name, F32, True) for o in fusion.outputs]
    size = fusion.outputs[0].value.shape[0]
    spaces = (Workspace("turns", F32, dim(2), workspace),) if workspace else ()
    arguments = [*given, *made, *(WorkspaceArgument("turns", F32) for _ in spaces)]
    if maps:
        first = fusion.inputs[0].value
        arguments.append(TensorMapArgument("m", first.name, F32, first.shape, (), (1,)))
    kernel = Kernel(
        f"k{segment.id}",
        "pointwise",
        (ceildiv(size, 256), dim(1), dim(1)),
        (256, 1, 1),
        (*arguments, SizeArgument("n", size)),
    )
    return KernelPlan("pointwise", fusion, (kernel,), None, spaces)


def program_of(
    fusion: Fusion, *, without: Sequence[str] = (), streams: int = 4, **plans: Any
) -> HostProgram:
    """Return the host program that runs the segments, after the passes but some."""
    cut = segmented(fusion)
    program = lower(cut, plans_of(cut, **plans), None, streams)
    known = Known(fusion.hints, streams)
    program = run_pipeline(program, known, without=without)
    check_program(program)
    return program


def launched(fusion: Fusion, **plans: Any) -> HostProgram:
    """Return the host program that launches the segments' kernels."""
    cut = segmented(fusion)
    every = plans_of(cut, **plans)
    program = run_pipeline(lower(cut, every), Known(fusion.hints))
    return expand(program, cut, every)


N, M = symbol("N"), symbol("M")
