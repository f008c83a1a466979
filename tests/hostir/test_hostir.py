"""Host programs: lowering, text, JSON, checks."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from host_json import from_json, to_json

from fusec.diagnostics import FusecError, InternalError
from fusec.hostir.expand import expand
from fusec.hostir.instructions import Alias, Allocate, Copy, Free, Launch, Memset
from fusec.hostir.lower import lower
from fusec.hostir.program import HostProgram
from fusec.hostir.sizes import parse_dim
from fusec.ir.dim import ceildiv, dim, maximum, symbol
from fusec.ir.dtype import BF16, F32, U32
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.schedule.plan import (
    Guard,
    Kernel,
    KernelPlan,
    ScalarArgument,
    SizeArgument,
    TensorArgument,
    TensorMapArgument,
    View,
    Workspace,
    WorkspaceArgument,
)
from fusec.segment.segmented import Segment, SegmentedFusion, extract

N = symbol("N")


def chain(alias: str | None = None) -> Fusion:
    b = GraphBuilder("chain")
    n = b.declare_dim("N", 16)
    x = b.input("x", F32, [n])
    scale = b.input("scale", F32, None, default=2.0)
    y = b.apply("mul", x, scale)
    z = b.apply("exp", y)
    b.output(b.apply("add", z, x), alias=alias)
    return b.finish()


def split(fusion: Fusion, *counts: int) -> SegmentedFusion:
    """Return a fusion cut into segments of so many nodes."""
    segments, begin = [], 0
    for k, count in enumerate(counts):
        nodes = fusion.nodes[begin : begin + count]
        segments.append(
            Segment(k, "pointwise", extract(fusion, nodes, f"{fusion.name}_s{k}"), None)
        )
        begin += count
    return SegmentedFusion(fusion, tuple(segments))


def plan_of(
    segment: Segment, *, extra=(), workspaces=(), in_place: bool = False, **fields
) -> KernelPlan:
    fusion = segment.fusion
    inputs = [TensorArgument(i.value.name, F32) for i in fusion.inputs if not i.value.is_scalar]
    outputs = [TensorArgument(o.value.name, F32, True) for o in fusion.outputs]
    if in_place:
        inputs = [TensorArgument(a.name, F32, True, False) if a.name == "x" else a for a in inputs]
        outputs = [a for a in outputs if a.name != fusion.outputs[-1].value.name]
    scalars = [ScalarArgument(i.value.name, F32) for i in fusion.inputs if i.value.is_scalar]
    kernel = Kernel(
        f"k{segment.id}",
        "pointwise",
        (ceildiv(N, 256), dim(1), dim(1)),
        (256, 1, 1),
        (*inputs, *outputs, *extra, *scalars, SizeArgument("N", N)),
    )
    return KernelPlan("pointwise", fusion, (kernel,), None, tuple(workspaces), **fields)


def launched(segmented: SegmentedFusion, plans: Sequence[KernelPlan]) -> HostProgram:
    """Return the program that launches the plans' kernels."""
    return expand(lower(segmented, plans), segmented, plans)


def program(alias: str | None = None, **fields) -> HostProgram:
    segmented = split(chain(alias), 1, 2)
    return launched(segmented, [plan_of(s, **fields) for s in segmented.segments])


def test_temporaries_live_from_their_writer_to_their_last_reader():
    result = program()
    assert [type(i).__name__ for i in result.instructions] == [
        "Allocate",
        "Allocate",
        "Launch",
        "Launch",
        "Free",
    ]
    assert result.instructions[0] == Allocate("add_1")
    assert result.instructions[1] == Allocate("mul_1")
    assert result.instructions[4] == Free("mul_1")


def test_the_text_form():
    assert program(guards=(Guard(N, "%", 8),)).text() == (
        "host program chain:\n"
        "  input x: f32[N]\n"
        "  output add_1: f32[N]\n"
        "  temporary mul_1: f32[N]\n"
        "  scalar scale: f32 = 2.0\n"
        "  guard N % 8 == 0\n"
        "  0: allocate add_1\n"
        "  1: allocate mul_1\n"
        "  2: launch k0 for s0 <ceildiv(N, 256), 1, 1; 256, 1, 1> (x, mul_1!, scale, N)\n"
        "  3: launch k1 for s1 <ceildiv(N, 256), 1, 1; 256, 1, 1> (x, mul_1, add_1!, N)\n"
        "  4: free mul_1\n"
        "  return add_1\n"
    )


def test_sizes_built_into_kernels_are_guarded():
    result = program(specialised={"N": 16})
    with pytest.raises(FusecError, match="`N == 16` does not hold"):
        result.check_guards({"N": 17})
    result.check_guards({"N": 16})


def test_workspaces_belong_to_their_segment():
    spaces = (
        Workspace("sums", F32, N * 2, "zeroed per launch"),
        Workspace("turns", U32, dim(4), "zeroed once"),
    )
    extra = (WorkspaceArgument("sums", F32), WorkspaceArgument("turns", U32))
    segmented = split(chain(), 3)
    result = launched(segmented, [plan_of(segmented.segments[0], extra=extra, workspaces=spaces)])
    assert result.buffer["s0.sums"].elements == N * 2
    order = [i for i in result.instructions if isinstance(i, (Memset, Launch))]
    assert order[:2] == [Memset("s0.turns", once=True), Memset("s0.sums")]
    assert "s0.sums!" in str(order[2])


def test_an_in_place_output_is_the_input_where_the_kernel_writes_it():
    segmented = split(chain("x"), 3)
    result = launched(segmented, [plan_of(segmented.segments[0], in_place=True)])
    assert Alias("add_1", "x", dim(0)) in result.instructions
    assert result.aliases == (("add_1", "x"),)


def test_an_in_place_output_with_memory_of_its_own_is_copied_at_the_end():
    result = program("x")
    assert result.instructions[-1] == Copy("x", "add_1")


def test_reading_an_input_after_it_is_overwritten_is_a_bug():
    b = GraphBuilder()
    x = b.input("x", F32, [b.declare_dim("N", 16)])
    b.output(b.apply("exp", x), alias="x")
    b.output(b.apply("log", x))
    segmented = split(b.finish(), 1, 1)
    first, second = segmented.segments
    with pytest.raises(InternalError, match="s1 reads `x` after `exp_1` was written"):
        launched(segmented, [plan_of(first, in_place=True), plan_of(second)])


def views() -> tuple[SegmentedFusion, View]:
    b = GraphBuilder("views")
    n = b.declare_dim("N", 16)
    x = b.input("x", F32, [n, 4])
    e = b.apply("exp", x)
    b.output(b.apply("permute", e, dims=[1, 0]))
    segmented = split(b.finish(), 1, 1)
    return segmented, View("permute_1", "exp_1", dim(0), (dim(4), n), (dim(1), dim(4)))


def test_a_view_keeps_the_memory_it_is_made_of():
    segmented, view = views()
    nothing = KernelPlan("no_op", segmented.segments[1].fusion, (), None, views=(view,))
    result = launched(segmented, [plan_of(segmented.segments[0]), nothing])
    assert not [i for i in result.instructions if isinstance(i, Free)]
    assert result.instructions[-1] == Alias("permute_1", "exp_1", dim(0))
    assert "output permute_1: f32[4, N] strides [1, 4]" in result.text()


def test_a_segment_that_expects_another_layout_is_a_bug():
    b = GraphBuilder("views")
    n = b.declare_dim("N", 16)
    x = b.input("x", F32, [n, 4])
    y = b.apply("permute", x, dims=[1, 0])
    b.output(b.apply("exp", y))
    segmented = split(b.finish(), 1, 1)
    view = View("permute_1", "x", dim(0), (dim(4), n), (dim(1), dim(4)))
    nothing = KernelPlan("no_op", segmented.segments[0].fusion, (), None, views=(view,))
    with pytest.raises(
        InternalError, match=r"reads `permute_1` with strides \[N, 1\], it has \[1, 4\]"
    ):
        launched(segmented, [nothing, plan_of(segmented.segments[1])])


def test_the_json_form_reads_back():
    box = TensorMapArgument("map", "x", F32, (N, dim(3)), (N * 4,), (64, 1), "128B")
    spaces = (Workspace("sums", BF16, maximum(N, 4) // 3 + 1),)
    result = program(
        extra=(WorkspaceArgument("sums", BF16), box),
        workspaces=spaces,
        guards=(Guard(N * 4, "<=", 99, "why"),),
    )
    data = json.loads(json.dumps(to_json(result)))
    back = from_json(data)
    assert back == result
    assert back.text() == result.text()


@pytest.mark.parametrize(
    "value",
    [
        dim(0),
        dim(-3),
        N,
        N * 2 + 1,
        ceildiv(N * 3, 4),
        N // 2 * symbol("M") - 1,
        (N + 1) % 8,
        maximum(N, symbol("M")),
        symbol("x.stride0") * N,
        (N + 1) * (N - 1) // 7,
    ],
)
def test_size_expressions_read_back(value):
    assert parse_dim(str(value)) == value


@pytest.mark.parametrize(
    "text", ["N +", "f(N, 2)", "__import__('os')", "N.a.b", "1.5", "N if N else 2", "", "N ** 2"]
)
def test_other_expressions_are_refused(text: str):
    with pytest.raises(FusecError, match="is not a size expression"):
        parse_dim(text)


def damaged(change) -> dict:
    data = json.loads(json.dumps(to_json(program())))
    change(data)
    return data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("buffers"), "it has no `buffers`"),
        (lambda d: d.update(version=99), "has version 99, expected 1"),
        (lambda d: d["instructions"][0].update({"is": "explode"}), 'found "explode"'),
        (lambda d: d["instructions"].pop(1), "uses `mul_1`, which has no memory"),
        (lambda d: d.update(outputs=["q"]), "uses `q`, which has no memory"),
        (lambda d: d.update(scalars=[]), "uses `scale`, not a scalar input"),
    ],
)
def test_damaged_programs_are_refused(change, message: str):
    with pytest.raises(FusecError, match=message):
        from_json(damaged(change))


def in_place(shape: list, strides: list) -> HostProgram:
    b = GraphBuilder("in_place")
    n = b.declare_dim("N", 4)
    extents = [n if e == "N" else dim(e) for e in shape]
    x = b.input("x", F32, extents, strides=[dim(s) for s in strides])
    b.output(b.apply("neg", x), alias="x")
    return lowered(b.finish())


def lowered(fusion: Fusion) -> HostProgram:
    segmented = split(fusion, len(fusion.nodes))
    return launched(segmented, [plan_of(s, in_place=True) for s in segmented.segments])


def test_overlapping_elements_are_not_written_into():
    with pytest.raises(FusecError, match="whose elements overlap"):
        in_place(["N", 8], [4, 1])
    in_place(["N", 8], [8, 1]).check_guards({"N": 4})


def test_nothing_overlaps_in_an_empty_tensor():
    in_place(["N", 0, 8], [4, 4, 1])
    padded = in_place([8, "N"], [5, 1])
    padded.check_guards({"N": 4})
    padded.check_guards({"N": 0})
    with pytest.raises(FusecError, match="does not hold"):
        padded.check_guards({"N": 6})
    in_place(["N", 8], [8, 1]).check_guards({"N": 0})
