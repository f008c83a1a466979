"""Loops over streams: which nodes are in them, what is whole before and after."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_tools import fusec
from lockstep import agree, exchanges_of, ops_of

from fusec.diagnostics import FusecError, Unsupported
from fusec.driver import Compilation
from fusec.hostir.instructions import For
from fusec.ir.graph import Fusion
from fusec.ops.communication import STREAM_SLICE, STREAM_STACK, communicates, places
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.shard.partition import partition


def read(text: str) -> Fusion:
    """Return the fusion of a file, without its first line."""
    return read_text(f"fusion: loops{text}", "loops.yaml")


def lines(fusion: Fusion) -> list[str]:
    """Return the nodes as text."""
    return [repr(node) for node in fusion.nodes]


SETS = """
dims: {M: 8, N: 3}
inputs:
  tv0: f32[M, N]
ops:
OPS
outputs: [LAST]
shardings: {SAID}
"""


def sets(count: int, said: str) -> Fusion:
    """Return a chain of copies."""
    ops = "\n".join(f"  - tv{k} = neg(tv{k - 1})" for k in range(1, count + 1))
    return read(SETS.replace("OPS", ops).replace("LAST", f"tv{count}").replace("SAID", said))


def test_a_single_operation_in_a_loop() -> None:
    local = agree(sets(1, "tv1: {stream: 0}"))
    assert lines(local) == [
        "tv0_slice = stream_slice(tv0)",
        "tv1_slice = neg(tv0_slice)",
        "tv1 = stream_stack(tv1_slice)",
    ]
    assert local.nodes[0].output.shape == (1, local.inputs[0].value.shape[1])


def test_operations_side_by_side_share_a_loop() -> None:
    said = "tv1: {stream: 0}, tv2: {stream: 0}"
    assert lines(agree(sets(2, said))) == [
        "tv0_slice = stream_slice(tv0)",
        "tv1 = neg(tv0_slice)",
        "tv2_slice = neg(tv1)",
        "tv2 = stream_stack(tv2_slice)",
    ]


def test_what_is_said_to_be_whole_parts_two_loops() -> None:
    said = "tv1: {stream: 0}, tv2: {stream: {}}, tv3: {stream: 0}"
    assert lines(agree(sets(3, said))) == [
        "tv0_slice = stream_slice(tv0)",
        "tv1 = neg(tv0_slice)",
        "tv1_full = stream_stack(tv1)",
        "tv2 = neg(tv1_full)",
        "tv2_slice = stream_slice(tv2)",
        "tv3_slice = neg(tv2_slice)",
        "tv3 = stream_stack(tv3_slice)",
    ]


PRODUCTS = """
dims: {M: 6, K: 3, N: 15}
inputs:
  inp: {type: "f32[M, K]"INP}
  w1: {type: "f32[K, N]"W1}
  w2: {type: "f32[N, K]"}
ops:
  - h = matmul(inp, w1)
  - y = matmul(h, w2)
outputs:
  - y: {OUT}
"""


def products(inp: str = "", w1: str = "", out: str = "") -> Fusion:
    """Return two products, with what is said of their operands and of the result."""
    text = PRODUCTS.replace("INP", inp).replace("W1", w1)
    return read(text.replace("y: {OUT}", f"y: {{{out}}}" if out else "y"))


def test_columns_of_a_product_in_a_loop() -> None:
    local = agree(products(out="stream: {1: 3}"))
    assert exchanges_of(local) == ["stream_slice", "stream_stack"]
    assert lines(local)[1] == "w2_slice = stream_slice(w2)"


def test_rows_go_through_two_products_in_one_loop() -> None:
    local = agree(products(inp=", stream: {0: 3}"))
    assert ops_of(local) == ["stream_slice", "matmul", "matmul", "stream_stack"]


def test_columns_and_then_rows_are_two_loops() -> None:
    local = agree(products(w1=", stream: {1: 3}", out="stream: {0: 3}"))
    assert ops_of(local) == [
        "stream_slice", "matmul", "stream_stack", "stream_slice", "matmul", "stream_stack",
    ]  # fmt: skip


ROUND = """
dims: {M: 8, N: 4}
inputs:
  x: {type: "f32[M, N]", stream: {0: 4}}
ops:
  - a = neg(x)
  - s = sum(a, dims=[0])
  - b = mul(a, broadcast_in_dim(s, [M, N], [1]))
  - t = sum(b, dims=[0])
  - c = add(b, broadcast_in_dim(t, [M, N], [1]))
  - d = add(c, a)
outputs: [a, d]
"""


def test_what_a_later_loop_reads_is_taken_from_the_whole() -> None:
    """A slice is there in its own loop alone; sums over all slices part the loops."""
    local = agree(read(ROUND))
    assert exchanges_of(local) == [
        "stream_slice", "stream_stack", "stream_slice", "stream_stack",
        "stream_slice", "stream_slice", "stream_stack",
    ]  # fmt: skip


def test_programs_take_slices_in_the_loops_that_read_them() -> None:
    loops = [i for i in Compilation(read(ROUND), CompileOptions()).posts.instructions
             if isinstance(i, For) and i.streams]  # fmt: skip
    assert len(loops) == 3


COPIED = """
mesh: [4]
dims: {M: 8, N: 4}
inputs:
  x: {type: "f32[M, N]", stream: {0: 4}}
ops:
  - a = neg(x)
  - b = neg(a)
  - c = flip(b, dims=[1])
outputs: [a, b, c]
shardings:
  c: {shard: {1: mesh}, stream: {0: 4}}
"""


def test_stacks_read_what_a_kernel_writes_for_them_alone() -> None:
    summed = SCATTERED.replace("\n  - y: {shard: {0: mesh}}", " [y]").replace(", b)", ")")
    for fusion in (read(ROUND), read(RING), read(COPIED), read(summed)):
        local = agree(fusion)
        for node in local.nodes:
            if node.op is STREAM_STACK:
                maker = local.producer[node.inputs[0]]
                assert len(local.users[node.inputs[0]]) == 1
                assert not communicates(maker)
                assert not places(maker)


RING = """
mesh: [4]
dims: {T: 8, H: 6, F: 12}
inputs:
  x: {type: "f32[T, H]", shard: {0: mesh}}
  w: {type: "f32[F, H]", shard: {0: mesh}}
ops:
  - full = set(x)
  - y = linear(full, w)
outputs: [y]
shardings:
  full: {stream: {0: 4}}
"""


def test_a_ring_holds_no_full_copy() -> None:
    """The parts of other ranks come one by one, each as large as the own one."""
    local = agree(read(RING))
    assert exchanges_of(local) == ["receive_slice", "stream_stack"]
    whole = local.inputs[0].value.shape
    assert all(v.shape[0] == whole[0] for n in local.nodes[:-1] for v in n.outputs)


SCATTERED = """
mesh: [4]
dims: {T: 8, K: 16, H: 6}
inputs:
  x: {type: "f32[T, K]", shard: {1: mesh}, stream: {0: 4}}
  w: {type: "f32[H, K]", shard: {1: mesh}}
  b: f32[H]
ops:
  - y = linear(x, w, b)
outputs:
  - y: {shard: {0: mesh}}
"""


def test_a_product_and_its_scattered_sums_in_a_loop() -> None:
    local = agree(read(SCATTERED))
    assert exchanges_of(local) == ["stream_slice", "send_slice"]
    assert ops_of(local)[-5:] == ["linear", "send_slice", "reshape", "sum", "add"]


def test_sums_over_ranks_in_each_iteration() -> None:
    text = SCATTERED.replace("\n  - y: {shard: {0: mesh}}", " [y]").replace("0: 4}", "0: 2}")
    local = agree(read(text))
    assert exchanges_of(local) == ["stream_slice", "all_reduce", "stream_stack"]


def test_fewer_slices_than_ranks_are_scattered_after_the_loop() -> None:
    local = agree(read(SCATTERED.replace("0: 4}", "0: 2}")))
    assert exchanges_of(local) == ["reduce_scatter"]


def test_slices_within_the_part_of_a_rank() -> None:
    text = RING.replace("full: {stream: {0: 4}}", "full: {shard: {0: mesh}, stream: {0: 2}}")
    local = agree(read(text))
    assert exchanges_of(local) == ["all_gather", "stream_slice", "stream_stack"]


ALONG = """
dims: {M: 8, N: 4}
inputs:
  x: {type: "f32[M, N]"}
ops:
  - y = OP
outputs: [y]
shardings: {SAID: {stream: {0: 4}}}
"""


@pytest.mark.parametrize(
    ("op", "said", "line"),
    [
        ("cumsum(x, dim=0)", "y", 8),
        ("cumsum(x, dim=0)", "x", 8),
        ("argsort(x, dim=0)", "y", 8),
        ("sum(x, dims=[0])", "x", 8),
        ("max(x, dims=[0, 1])", "x", 8),
    ],
)
def test_a_loop_over_what_carries_a_dependence(op: str, said: str, line: int) -> None:
    text = ALONG.replace("OP", op).replace("SAID", said)
    with pytest.raises(FusecError, match="carries a dependence") as caught:
        partition(read(text))
    span = caught.value.diagnostic.span
    assert span is not None
    assert (span.line, span.text[span.column - 1 :][: span.width]) == (line, said)


UNEVEN = """
DIMS
inputs:
  x: f32[A, 16]
  w: f32[8, 16]
ops:
  - e = exp(x)
  - h = linear(e, w)
  - s = sum(h, dims=[0])
  - y = sub(h, broadcast_in_dim(s, [A, 8], [1]))
outputs: [h, y, e]
shardings: {e: {stream: {0: 4}}, h: {stream: {0: 4}}, y: {stream: {1: 3}}}
"""


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 10, 11])
@pytest.mark.parametrize("given", ["dims: {A: SIZE}", ""])
def test_slices_that_are_not_equal(size: int, given: str) -> None:
    """Each has ceildiv(A, 4) elements, as in nvFuser; the last begins where it ends with A."""
    text = UNEVEN.replace("DIMS", given).replace("SIZE", str(size))
    text = text if given else text.replace("A,", f"{size},")
    fusion = read(text)
    local = agree(fusion, exact=False)
    sizes = dict(local.hints)
    made = {n.output.name: n.output.shape[0].evaluate(sizes) for n in local.nodes}
    assert made["e_slice" if "e_slice" in made else "e"] == -(-size // 4)
    counts = {n.attributes["parts"].evaluate(sizes) for n in local.nodes if n.op is STREAM_STACK}
    assert max(counts) <= 4
    if not given and size > 1:  # no iteration is for nothing where the extent is known
        assert -(-size // -(-size // 4)) in counts
    program = Compilation(fusion, CompileOptions()).posts
    assert any(isinstance(i, For) and i.streams for i in program.instructions)


def test_programs_of_slices_that_are_not_equal_are_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the size that they are made for, and at others."""
    path = tmp_path / "loops.yaml"
    path.write_text("fusion: loops" + UNEVEN.replace("DIMS", "dims: {A: 10}"), encoding="utf-8")
    assert fusec(capsys, "run", path, "--device", "reference").code == 0
    assert fusec(capsys, "compile", path, "-o", tmp_path / "out").code == 0
    for size in (1, 3, 8, 13):
        run = ("run", tmp_path / "out", "--device", "reference", "--set", f"A={size}")
        assert fusec(capsys, *run).code == 0


def test_slices_that_are_not_equal_within_parts_of_ranks_are_refused() -> None:
    text = RING.replace("full: {stream: {0: 4}}", "full: {shard: {0: mesh}, stream: {0: 3}}")
    with pytest.raises(FusecError, match="is not divisible into 12 equal slices"):
        partition(read(text))


ENDED = """
dims: {M: 8}
inputs: {x: "f32[M, M]"}
ops:
  - e = exp(x)
  - y = OP
outputs: [OUT]
shardings: {e: {stream: {0: 4}}}
"""


@pytest.mark.parametrize(
    "op",
    [
        "sum(e, dims=[0])",
        "max(e, dims=[0, 1])",
        "cumsum(e, dim=0)",
        "argsort(e, dim=0)",
        "matmul(x, e)",
        "softmax(e, dim=0)",
        "matmul(permute(e, [1, 0]), e)",
    ],
)
@pytest.mark.parametrize("out", ["y", "e, y"])
def test_a_reader_that_needs_all_slices_ends_the_loop(op: str, out: str) -> None:
    """Of a value that is computed, annotated or not, output or not."""
    said = agree(read(ENDED.replace("OP", op).replace("OUT", out)))
    from_input = ENDED.replace("e: {stream: {0: 4}}", "x: {stream: {0: 4}}")
    inferred = agree(read(from_input.replace("OP", op).replace("OUT", out)))
    for local in (said, inferred):
        ops = ops_of(local)
        assert ops.index("exp") < ops.index("stream_stack") < len(ops) - 1


def test_inputs_with_another_reader_keep_their_loop() -> None:
    text = ALONG.replace("[y]", "[y, z]").replace("OP", "sum(x, dims=[0])\n  - z = neg(x)")
    assert ops_of(agree(read(text.replace("SAID", "x")))) == [
        "sum", "stream_slice", "neg", "stream_stack",
    ]  # fmt: skip


def test_annotated_intermediates_give_the_loops_of_annotated_inputs() -> None:
    text = """
dims: {A: 8, C: 16}
inputs: {x: "f32[A, C]"}
ops:
  - e = exp(x)
  - s = sum(e, dims=[0])
outputs: [s]
shardings: {NAME: {stream: 0}}
"""
    e, x = (ops_of(agree(read(text.replace("NAME", name)))) for name in ("e", "x"))
    assert e == x == ["stream_slice", "exp", "stream_stack", "sum"]


@pytest.mark.parametrize("op", ["flip(x, dims=[0])", "cat([x, x], dim=0)", "sum(x, dims=[1])"])
def test_a_loop_over_what_moves_or_is_kept_is_none(op: str) -> None:
    text = ALONG.replace("OP", op)
    agree(read(text.replace("SAID", "x")))
    agree(read(text.replace("SAID", "y")))


def test_what_is_only_passed_on_is_whole_again_before_a_sum() -> None:
    local = agree(read(ALONG.replace("OP", "sum(neg(x), dims=[0])").replace("SAID", "x")))
    assert ops_of(local) == ["stream_slice", "neg", "stream_stack", "sum"]


def test_slices_that_would_lie_apart_are_stacked_before_a_reshape() -> None:
    text = """
inputs:
  x: {type: "f32[8, 4]", stream: {1: 2}}
ops:
  - y = reshape(neg(x), [32])
outputs: [y]
"""
    assert ops_of(agree(read(text)))[-2:] == ["stream_stack", "reshape"]


def test_slices_of_each_block_of_a_dim() -> None:
    """They are taken out of views, and written at their places."""
    text = ALONG.replace("OP", "neg(x)").replace("{stream: {0: 4}}", "{SAID}")
    said = "shard: {0: [{whole: 2}, {stream: 2}]}"
    local = agree(read(text.replace("SAID: ", "y: ").replace("SAID", said)))
    assert ops_of(local) == [
        "reshape", "stream_slice", "reshape", "neg", "reshape", "stream_stack", "reshape",
    ]  # fmt: skip


def test_slices_of_two_dims() -> None:
    """Both in one loop; an operand that has one of them takes its own."""
    text = ALONG.replace("OP", "add(x, broadcast_in_dim(sum(x, dims=[0]), [M, N], [1]))")
    said = "{stream: {0: 4, 1: 2}}"
    local = agree(read(text.replace("{SAID: {stream: {0: 4}}}", f"{{y: {said}}}")))
    assert exchanges_of(local) == ["stream_slice"] * 3 + ["stream_stack"]
    slices = [n.attributes for n in local.nodes if n.op is STREAM_SLICE]
    assert {str(a["times"]) for a in slices} == {"8"}


def test_what_is_the_same_in_every_iteration_is_made_before_the_loop() -> None:
    local = agree(read(ALONG.replace("OP", "broadcast_in_dim(sum(x, dims=[0]), [M, N], [1])")
                       .replace("SAID", "y")))  # fmt: skip
    assert ops_of(local) == ["sum", "broadcast_in_dim"]


def test_an_output_in_an_input_is_not_written_slice_by_slice() -> None:
    text = ALONG.replace("OP", "neg(x)").replace("SAID", "y").replace("[y]", "\n  - y: {alias: x}")
    with pytest.raises(Unsupported, match="slice by slice"):
        partition(read(text))


def test_slices_that_a_symbol_is_a_multiple_of() -> None:
    """The symbol keeps its meaning, and is declared what the loop needs it to be."""
    local = partition(read(ALONG.replace("OP", "neg(x)").replace("SAID", "y")))
    facts = {d.name: d for d in local.dims}
    assert (facts["M"].default, facts["M"].multiple_of) == (8, 4)
    assert str(local.nodes[0].output.shape[0]) == "M // 4"
    assert str(local.outputs[0].value.shape[0]) == "M"
