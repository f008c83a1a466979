"""What of names, layouts, pins, aliases and random numbers a rank has; parts of arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lockstep import agree, divided, exchanges_of, mesh_of, ops_of, sharding

from fusec.diagnostics import FusecError, Unsupported
from fusec.driver import Compilation
from fusec.ir.dim import dim
from fusec.ir.graph import Fusion
from fusec.ir.sharding import STREAM, Part, Sharding
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.passes.complex_as_pairs import complex_as_pairs
from fusec.shard.axes import pieces_of
from fusec.shard.partition import partition, partitioned
from fusec.shard.place import assemble, local_part, local_shape, local_sizes

MESH = mesh_of(dp=2, tp=4)


def read(text: str) -> Fusion:
    """Return the fusion of a file, without its first line."""
    return read_text(f"fusion: parts{text}", "parts.yaml")


# Parts of arrays.

DIVIDED = st.sampled_from(
    ["", "0: dp", "0: dp tp", "0: tp dp", "1: tp, 0: dp", "1: _/3 tp", "0: _/2 dp _/2 tp",
     "0: dp stream/4", "1: stream/4, 0: tp", "2: dp"]
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(DIVIDED)
def test_the_parts_of_all_ranks_are_the_whole(text: str) -> None:
    how = sharding(3, text, MESH)
    whole = np.arange(32 * 24 * 2).reshape(32, 24, 2)
    parts = {rank: local_part(whole, how, MESH, rank) for rank in MESH.ranks}
    shape = local_shape(tuple(dim(n) for n in whole.shape), how)
    assert {p.shape for p in parts.values()} == {tuple(n.value for n in shape)}
    assert np.array_equal(assemble(parts, how, MESH), whole)


def test_parts_are_where_a_mesh_says() -> None:
    whole = np.arange(16)
    outer = local_part(whole, sharding(1, "0: dp tp", MESH), MESH, 5)
    assert outer.tolist() == [10, 11], "rank 5 is at place 1 along dp, 1 along tp"
    inner = local_part(whole, sharding(1, "0: _/2 tp", MESH), MESH, 5)
    assert inner.tolist() == [2, 3, 10, 11]


@pytest.mark.parametrize(
    ("slices", "at", "outer", "pieces"),
    [
        (8, 0, 1, 2),
        (8, 1, 1, None),  # not contiguous: other dims are around it
        (8, 0, 2, None),
        (4, 1, 2, 1),
        (6, 0, 1, None),
    ],
)
def test_slices_are_pieces_of_one_rank_and_contiguous(
    slices: int, at: int, outer: int, pieces: int | None
) -> None:
    assert pieces_of(Part(STREAM, dim(slices)), dim(4), at, dim(outer)) == pieces


def test_an_array_that_ranks_do_not_divide_is_an_error() -> None:
    with pytest.raises(FusecError, match="an extent of 6 is not divisible into 4 equal parts"):
        local_part(np.arange(6), sharding(1, "0: tp", MESH), MESH, 0)


ADD = """
mesh: [4]
dims: {B: {default: 16, multiple_of: 8, buckets: [64, 128]}, H: 12}
inputs:
  x: {type: "f32[B, H]", SAID}
  w: f32[H]
ops:
  - y = add(x, w)
outputs: [y]
"""


def test_a_symbol_is_the_share_of_a_rank() -> None:
    fusion = read(ADD.replace("SAID", "shard: {0: mesh}"))
    local = partition(fusion)
    (rows, columns) = local.dims
    assert (rows.default, rows.multiple_of, rows.buckets) == (4, 2, (16, 32))
    assert columns == fusion.dims[1]
    assert str(local.inputs[0].value.type) == "f32[B, H]"
    assert local_sizes(fusion, local, {"B": 64, "H": 5}) == {"B": 16, "H": 5}
    with pytest.raises(FusecError, match="dim `B` is 63, not divisible by 4 ranks"):
        local_sizes(fusion, local, {"B": 63, "H": 5})


def test_a_tensor_that_is_not_divided_has_the_sizes_of_all_ranks() -> None:
    local = partition(read(ADD.replace("SAID", "shard: {1: mesh}")))
    assert [str(i.value.type) for i in local.inputs] == ["f32[B, H]", "f32[H * 4]"]
    assert exchanges_of(local) == ["rank_slice"]


@pytest.mark.parametrize(
    ("layout", "said", "strides"),
    [
        ("", "{0: mesh}", ("H", "1")),
        ("", "{1: mesh}", ("H", "1")),
        ("stride_order: [0, 1], ", "{0: mesh}", ("1", "B")),
        ("stride_order: [0, 1], ", "{1: mesh}", ("1", "B")),
        ("contiguity: [false, true], ", "{1: mesh}", ("x.stride0", "1")),
    ],
)
def test_inputs_are_laid_out_as_the_whole_ones(layout: str, said: str, strides: object) -> None:
    text = ADD.replace("SAID", f"{layout}shard: {said}")
    assert tuple(map(str, partition(read(text)).inputs[0].strides)) == strides


# Names.

PINNED = """
mesh: [4]
dims: {T: 8, K: 16, H: 12}
inputs:
  x: {type: "f32[T, K]", shard: {1: mesh}}
  w: {type: "f32[H, K]", shard: {1: mesh}}
ops:
  - y = linear(x, w)
  - z = relu(y)
outputs: [y, z]
segments:
  product: [y]
"""


def test_a_pin_names_what_is_computed() -> None:
    local = partition(read(PINNED))
    assert [p.values for p in local.pins] == [("y_partial",)]
    assert {o.value.name for o in local.outputs} == {"y", "z"}
    places = [n.span.line for n in local.nodes if n.span is not None]
    assert places == [8, 8, 9]


def test_programs_take_the_passes_of_what_a_rank_runs() -> None:
    fusion = read(PINNED)
    program = Compilation(fusion, CompileOptions())
    assert program.original is fusion
    assert exchanges_of(program.local) == ["all_reduce"]
    assert ops_of(program.fusion) == ops_of(program.local)
    plain = replace(fusion, shardings={})
    assert Compilation(plain, CompileOptions()).local is plain


# Outputs in inputs.

UPDATE = """
mesh: [4]
dims: {B: 16, H: 12}
inputs:
  x: {type: "f32[B, H]", shard: {0: mesh}}
  w: {type: "f32[B, H]", WEIGHT}
ops:
  - y = sub(w, x)
outputs:
  - y: {alias: w, RESULT}
"""


@pytest.mark.parametrize("weight", ["shard: {0: mesh}", "shard: {1: mesh}", "shard: {}"])
def test_an_output_is_divided_as_the_input_that_it_is_written_into(weight: str) -> None:
    text = UPDATE.replace("WEIGHT", weight).replace(", RESULT", "")
    local = agree(read(text))
    assert local.outputs[0].value.type == local.inputs[1].value.type


def test_an_output_that_is_divided_otherwise_than_its_input_is_refused() -> None:
    text = UPDATE.replace("WEIGHT", "shard: {0: mesh}").replace("RESULT", "shard: {1: mesh}")
    with pytest.raises(Unsupported, match="`y` is written to `w`, which is divided otherwise"):
        partition(read(text))


# What is not of small integers.

DROPOUT = """
mesh: [2]
dims: {B: 4, H: 8}
inputs:
  x: {type: "f64[B, H]", shard: {0: mesh}}
  seed: i64 = 3
ops:
  - r = uniform(0.0, 1.0, [B, H], seed, 0, dtype=f64)
  - y = mul(x, r)
  - z = sum(mul(y, cast(broadcast_in_dim(iota(B), [B, H], [0]), f64)), dims=[0])
outputs: [y, z]
"""


def test_random_numbers_are_those_of_the_whole() -> None:
    """A rank takes its part of what one would draw alone, and of a range of numbers."""
    assert exchanges_of(agree(read(DROPOUT), exact=False)).count("rank_slice") == 2


COMPLEX = """
mesh: [2]
dims: {B: 4, H: 8}
inputs:
  x: {type: "c64[B, H]", shard: {1: mesh}}
ops:
  - y = mul(x, x)
  - s = sum(x, dims=[1])
outputs:
  - y: {shard: {0: mesh}}
  - s
"""


def test_complex_numbers_are_divided_like_others() -> None:
    local = agree(read(COMPLEX))
    assert exchanges_of(local) == ["all_to_all", "all_reduce"]
    pairs = complex_as_pairs(partition(read(COMPLEX)))
    assert not any(v.dtype.is_complex for v in pairs.values)


def test_factors_that_stay_whole_may_be_symbols() -> None:
    text = """
mesh: [2]
dims: {B: 4, S: 6}
inputs:
  x: {type: "f32[B, S, 2]", shard: {1: mesh}}
ops:
  - y = neg(reshape(x, [B * S, 2]))
outputs: [y]
"""
    assert exchanges_of(agree(read(text))) == []
    assert str(partitioned(read(text)).placed["y"]) == "{0: _:B mesh:2}"


def test_a_whole_sharding_is_an_entry_too() -> None:
    fusion = divided(read(UPDATE.replace("WEIGHT", "").replace(", RESULT", "")), mesh_of(mesh=4))
    assert exchanges_of(agree(replace(fusion, shardings={"y": Sharding.whole(2)}))) == []
