"""A divided fusion is rewritten into what one rank runs: all ranks together compute the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockstep import agree, divided, exchanges_of, mesh_of, ops_of, sharding

from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion, Node
from fusec.parse import read_text
from fusec.shard.divided import Partition
from fusec.shard.partition import partition, partitioned

COPY = read_text("""
fusion: copy
dims: {M: 8, N: 12}
inputs: {x: "f32[M, N]"}
ops:
  - y = set(x)
outputs: [y]
""")
PRODUCT = read_text("""
fusion: product
dims: {M: 8, N: 12, K: 16}
inputs: {x: "f32[M, K]", w: "f32[N, K]"}
ops:
  - y = linear(x, w)
outputs: [y]
""")
MLP = read_text("""
fusion: mlp
dims: {T: 8, H: 12, F: 16}
inputs: {x: "f32[T, H]", w1: "f32[F, H]", b1: "f32[F]", w2: "f32[H, F]", b2: "f32[H]"}
ops:
  - h = linear(x, w1, b1)
  - a = relu(h)
  - y = linear(a, w2, b2)
outputs: [y]
""")
SUMS = read_text("""
fusion: sums
dims: {M: 8, N: 12}
inputs: {x: "f32[M, N]"}
ops:
  - y = sum(x, dims=[0])
outputs: [y]
""")

FOUR = mesh_of(mesh=4)


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ("", "", []),
        ("0: mesh", "0: mesh", []),
        ("0: mesh", "", ["all_gather"]),
        ("1: mesh", "", ["all_gather"]),
        ("", "0: mesh", ["rank_slice"]),
        ("", "1: mesh", ["rank_slice"]),
        ("0: mesh", "1: mesh", ["all_to_all"]),
        ("1: mesh", "0: mesh", ["all_to_all"]),
        ("0: mesh", "0: stream/4", ["receive_slice", "stream_stack"]),
        ("0: mesh", "0: stream/8", ["receive_slice", "stream_stack"]),
        ("1: mesh", "1: stream/12", ["all_gather", "stream_slice", "stream_stack"]),
        ("0: mesh", "0: stream/2", ["all_gather", "stream_slice", "stream_stack"]),
        ("1: mesh", "0: stream/4", ["stream_slice", "all_gather", "stream_stack"]),
        ("", "0: stream/4", ["stream_slice", "stream_stack"]),
        ("", "1: stream/3", ["stream_slice", "stream_stack"]),
        ("1: stream/3", "", []),
        ("0: mesh", "0: mesh stream/2", ["stream_slice", "stream_stack"]),
        ("0: mesh", "0: _/2 mesh", ["all_gather", "rank_slice"]),
        ("0: _/2 mesh", "", ["all_gather"]),
        ("1: _/3 mesh", "0: mesh", ["all_to_all"]),
    ],
)
def test_one_exchange_leads_from_one_sharding_to_another(
    x: str, y: str, expected: list[str]
) -> None:
    assert exchanges_of(agree(divided(COPY, FOUR, x=x, y=y))) == expected


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ("0: a, 1: b", "1: a b", ["all_gather", "all_gather", "rank_slice", "rank_slice"]),
        ("0: a, 1: b", "1: b a", ["all_to_all"]),
        ("0: a b", "0: a, 1: b", ["all_to_all"]),
        ("0: a b", "0: b a", ["all_gather", "all_gather", "rank_slice", "rank_slice"]),
        ("0: a b", "0: a", ["all_gather"]),
        ("0: a b", "0: a stream/2", ["receive_slice", "stream_stack"]),
        ("0: a b", "0: stream/2", ["receive_slice", "all_gather", "stream_stack"]),
        ("0: a b", "0: stream/4", ["all_gather", "receive_slice", "stream_stack"]),
        ("0: a b", "0: b stream/2",
         ["all_gather", "all_gather", "rank_slice", "stream_slice", "stream_stack"]),
        ("0: a", "0: a, 1: b", ["rank_slice"]),
    ],
)  # fmt: skip
def test_exchanges_over_a_mesh_of_two_axes(x: str, y: str, expected: list[str]) -> None:
    assert exchanges_of(agree(divided(COPY, mesh_of(a=2, b=2), x=x, y=y))) == expected


def test_what_is_not_divided_stays_the_fusion_that_it_is() -> None:
    assert partition(COPY) is COPY
    assert partition(divided(COPY, FOUR)).nodes is COPY.nodes


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"w": "0: mesh"}, []),
        ({"x": "0: mesh"}, []),
        ({"x": "1: mesh", "w": "1: mesh"}, ["all_reduce"]),
        ({"x": "1: mesh"}, ["rank_slice", "all_reduce"]),
        ({"x": "1: mesh", "w": "1: mesh", "y": "0: mesh"}, ["reduce_scatter"]),
        ({"x": "1: mesh", "w": "1: mesh", "y": "1: mesh"}, ["reduce_scatter"]),
        ({"x": "0: mesh", "w": "0: mesh", "y": "1: mesh"}, ["all_gather"]),
        ({"x": "0: mesh", "w": "0: mesh"}, ["all_gather"]),
        ({"x": "0: mesh", "w": "1: mesh"}, ["all_gather"]),
        (
            {"x": "0: stream/2, 1: mesh", "w": "1: mesh"},
            ["stream_slice", "all_reduce", "stream_stack"],
        ),
        ({"x": "0: mesh", "w": "0: mesh", "y": "0: stream/4, 1: mesh"},
         ["receive_slice", "stream_stack"]),
        ({"x": "0: stream/4, 1: mesh", "w": "1: mesh", "y": "0: mesh"},
         ["stream_slice", "send_slice"]),
        ({"x": "0: mesh", "w": "0: mesh", "y": "0: stream/8, 1: mesh"},
         ["receive_slice", "stream_stack"]),
        ({"x": "0: stream/8, 1: mesh", "w": "1: mesh", "y": "0: mesh"},
         ["stream_slice", "send_slice"]),
    ],
)  # fmt: skip
def test_products_of_divided_matrices(said: dict[str, str], expected: list[str]) -> None:
    assert exchanges_of(agree(divided(PRODUCT, FOUR, **said))) == expected


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        ("0: a b", ["reduce_scatter", "reduce_scatter"]),
        ("0: b a", ["reduce_scatter", "reduce_scatter"]),
        ("0: a, 1: b", ["reduce_scatter", "reduce_scatter"]),
        ("1: b", ["all_reduce", "reduce_scatter"]),
        ("1: _/3 a", ["reduce_scatter", "all_reduce"]),
    ],
)
def test_sums_over_two_axes(y: str, expected: list[str]) -> None:
    said = {"x": "1: a b", "w": "1: a b", "y": y}
    assert exchanges_of(agree(divided(PRODUCT, mesh_of(a=2, b=2), **said))) == expected


def test_an_mlp_in_tensor_parallel_form() -> None:
    local = agree(divided(MLP, FOUR, w1="0: mesh", b1="0: mesh", w2="1: mesh"))
    assert exchanges_of(local) == ["all_reduce"]
    assert ops_of(local)[-2:] == ["broadcast_in_dim", "add"], "the bias is added once"


def test_an_mlp_in_sequence_parallel_form() -> None:
    said = {"x": "0: mesh", "w1": "0: mesh", "w2": "1: mesh", "h": "1: mesh", "y": "0: mesh"}
    assert exchanges_of(agree(divided(MLP, FOUR, **said))) == [
        "all_gather", "rank_slice", "reduce_scatter",
    ]  # fmt: skip


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_sums_over_what_ranks_have(ranks: int) -> None:
    mesh = mesh_of(mesh=ranks)
    agree(divided(SUMS, mesh, x="0: mesh"))
    agree(divided(SUMS, mesh, x="0: mesh", y="0: mesh"))


def bad(fusion: Fusion, message: str) -> None:
    """Assert that a fusion is refused with a place and a message."""
    with pytest.raises(FusecError, match=message) as caught:
        partition(fusion)
    span = caught.value.diagnostic.span
    assert span is not None
    assert span.line == 7


def test_sizes_that_ranks_do_not_divide_are_errors_with_a_place() -> None:
    bad(divided(COPY, mesh_of(mesh=5), x="0: mesh"), "extent of M, 8 by default, is not divisible")
    bad(divided(COPY, mesh_of(mesh=16), x="0: mesh"), "not divisible into 16 equal parts")
    agree(divided(COPY, FOUR, y="0: stream/3"))  # slices on one rank need not be equal


MESH_OF_THREE = """fusion: f
mesh: {{tp: 3}}
dims: {{B: {size}, H: 64}}
inputs:
  x: {{type: "f32[B, H]", shard: {{1: tp}}}}
ops: [y = relu(x)]
outputs: [y]
"""


@pytest.mark.parametrize(("size", "is_other"), [(8, False), (9, True)])
def test_the_caret_stands_at_the_axis_that_does_not_divide(size: int, is_other: bool) -> None:
    with pytest.raises(FusecError, match="not divisible into 3 equal parts") as caught:
        partition(read_text(MESH_OF_THREE.format(size=size)))
    diagnostic = caught.value.diagnostic
    assert diagnostic.span is not None
    assert (diagnostic.span.line, diagnostic.span.column, diagnostic.span.width) == (5, 37, 2)
    assert "give the mesh axis `tp` a size that divides 64" in (diagnostic.help or "")
    assert ("shard another dim" in (diagnostic.help or "")) == is_other


def test_errors_tell_extents_as_the_file_does() -> None:
    """Not as a rank's share, where ranks divide the same symbol."""
    told = "an extent of M, 8 by default, is not divisible into"
    agree(divided(COPY, FOUR, x="0: stream/3", y="0: mesh"))
    bad(divided(COPY, FOUR, x="0: mesh stream/3"), f"{told} 12 equal slices")


def test_a_fusion_is_partitioned_once() -> None:
    fusion = divided(COPY, FOUR, x="0: mesh")
    assert partitioned(fusion) is partitioned(fusion)


def test_a_loop_over_what_is_summed_carries_a_dependence() -> None:
    bad(divided(SUMS, FOUR, x="0: stream/4"), "carries a dependence through `sum`")


def broken(fusion: Fusion, op: str, **changed: object) -> Partition:
    """Return what a rank runs with the attributes of an operation changed."""
    local = partitioned(fusion)
    nodes = [
        replace(n, attributes={**n.attributes, **changed}) if n.op.name == op else n
        for n in local.fusion.nodes
    ]
    assert any(n.op.name == op for n in nodes)
    return replace(local, fusion=local.fusion.with_nodes(nodes))


def test_what_ranks_get_wrong_is_seen() -> None:
    """The check of all others fails where an exchange or a part of it is another one."""
    summed = divided(PRODUCT, FOUR, x="1: mesh", w="1: mesh")
    moved = divided(COPY, mesh_of(a=2, b=2), x="0: a, 1: b")
    parts = divided(COPY, mesh_of(a=2, b=2), y="0: a")
    for fusion, op, changed in (
        (summed, "all_reduce", {"reduction": "max"}),
        (replace(moved, shardings={**moved.shardings, "y": sharding(2, "")}), "all_gather",
         {"axis": "a"}),
        (parts, "rank_slice", {"axis": "b"}),
    ):  # fmt: skip
        agree(fusion)
        with pytest.raises(AssertionError):
            agree(fusion, broken(fusion, op, **changed))


def test_a_slice_that_another_loop_made_is_seen() -> None:
    chain = read_text("""
fusion: chain
dims: {M: 8}
inputs: {x: "f32[M]"}
ops:
  - a = neg(x)
  - b = add(a, sum(a, dims=[0]))
  - y = mul(a, b)
outputs: [y]
""")
    fusion = divided(chain, x="0: stream/4")
    local = partitioned(fusion)
    again = next(n for n in local.fusion.nodes if n.inputs[0].name == "a_full")
    assert ops_of(local.fusion).count("stream_slice") == 2
    wrong = [
        Node(n.op, tuple(local.fusion.find("a") or o if o in again.outputs else o
                         for o in n.operands), n.attributes, n.outputs)
        for n in local.fusion.nodes
    ]  # fmt: skip
    with pytest.raises(AssertionError, match="is of another loop"):
        agree(fusion, replace(local, fusion=local.fusion.with_nodes(wrong)))


BOTH = """
mesh: [4]
dims: {T: TOKENS, D: 8, F: 16}
inputs:
  x: {type: "f32[T, D]", shard: {0: mesh}}
  w: {type: "f32[F, D]", shard: {0: mesh}}
ops:
  - y = linear(x, w)
outputs: [y]
"""


@pytest.mark.parametrize(
    ("tokens", "gathered", "said"),
    [(8, "x", {1: "mesh"}), (16, "w", {0: "mesh"}), (64, "w", {0: "mesh"})],
)
def test_of_operands_that_do_not_agree_the_smaller_is_gathered(
    tokens: int, gathered: str, said: dict[int, str]
) -> None:
    whole = read_text("fusion: f" + BOTH.replace("TOKENS", str(tokens)), "f.yaml")
    local = agree(whole)
    (exchange,) = [node for node in local.nodes if node.op.name == "all_gather"]
    assert [v.name for v in exchange.inputs] == [gathered]
    dims = partitioned(whole).placed["y"].dims
    assert {k: p.axis for k, parts in enumerate(dims) for p in parts} == said
