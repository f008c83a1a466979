"""What people divide over ranks: attention, norms, gradients, on meshes of one axis and two."""

from __future__ import annotations

import pytest
from lockstep import agree, exchanges_of, ops_of

from fusec.ir.graph import Fusion
from fusec.parse import read_text

HEADS = """
mesh: [2]
dims: {B: 2, S: 6, H: 4, E: 3}
inputs:
  x: {type: "f64[B, S, H * E]"}
  wq: {type: "f64[H * E, H * E]", shard: {0: mesh}}
  wk: {type: "f64[H * E, H * E]", shard: {0: mesh}}
  wv: {type: "f64[H * E, H * E]", shard: {0: mesh}}
  wo: {type: "f64[H * E, H * E]", shard: {1: mesh}}
ops:
  - q = permute(reshape(linear(x, wq), [B, S, H, E]), [0, 2, 1, 3])
  - k = permute(reshape(linear(x, wk), [B, S, H, E]), [0, 2, 3, 1])
  - v = permute(reshape(linear(x, wv), [B, S, H, E]), [0, 2, 1, 3])
  - p = softmax(matmul(q, k), dim=-1)
  - o = permute(matmul(p, v), [0, 2, 1, 3])
  - y = linear(reshape(o, [B, S, H * E]), wo)
outputs: [y]
"""


def read(text: str) -> Fusion:
    """Return the fusion of a file, without its first line."""
    return read_text(f"fusion: model{text}", "model.yaml")


def test_attention_over_heads() -> None:
    """Heads go through reshapes and products; the only exchange is the sum behind the last one."""
    local = agree(read(HEADS), exact=False)
    assert exchanges_of(local) == ["all_reduce"]


def test_attention_with_the_rows_of_its_result_divided() -> None:
    local = agree(read(HEADS.replace("[y]", "\n  - y: {shard: {1: mesh}}")), exact=False)
    assert exchanges_of(local) == ["reduce_scatter"]


SDPA = """
mesh: {dp: 2, tp: 2}
dims: {B: 2, H: 4, S: 5, E: 3}
inputs:
  q: {type: "f64[B, H, S, E]", shard: {0: dp, 1: tp}}
  k: {type: "f64[B, H, S, E]", shard: {0: dp, 1: tp}}
  v: {type: "f64[B, H, S, E]", shard: {0: dp, 1: tp}}
ops:
  - o, lse, seed, offset = sdpfa_fwd(q, k, v, is_causal=true)
outputs: [o, lse]
"""


def test_attention_as_one_operation_over_batch_and_heads() -> None:
    assert exchanges_of(agree(read(SDPA), exact=False)) == []


SOFTMAX = """
mesh: [4]
dims: {B: 4, H: 16}
inputs:
  x: {type: "f64[B, H]", shard: {1: mesh}}
ops:
  - y = softmax(x, dim=1)
outputs: [y]
"""


def test_softmax_along_a_divided_dim() -> None:
    local = agree(read(SOFTMAX), exact=False)
    assert [n.attributes.get("reduction") for n in local.nodes if n.op.name == "all_reduce"] == [
        "max", "sum",
    ]  # fmt: skip
    assert exchanges_of(local) == ["all_reduce", "all_reduce"]


NORM = """
mesh: [4]
dims: {B: 8, H: 12}
inputs:
  x: {type: "f64[B, H]", SAID}
  w: f64[H]
  b: f64[H]
ops:
  - y = layer_norm(x, [H], w, b)
outputs: [y]
"""


@pytest.mark.parametrize(
    ("said", "expected"),
    [("shard: {0: mesh}", []), ("shard: {1: mesh}", None), ("stream: {0: 4}", ["stream_slice"])],
)
def test_layer_norm(said: str, expected: list[str] | None) -> None:
    local = agree(read(NORM.replace("SAID", said)), exact=False)
    if expected is not None:
        assert exchanges_of(local)[: len(expected)] == expected


REDUCED_NORM = """
mesh: [4]
dims: {T: 8, H: 12, K: 16}
inputs:
  x: {type: "bf16[T, K]", shard: {1: mesh}}
  w: {type: "bf16[H, K]", shard: {1: mesh}}
  residual: bf16[T, H]
  weight: bf16[H]
ops:
  - y = linear(x, w)
  - h = cast(add(cast(y, f32), cast(residual, f32)), bf16)
  - z = rms_norm(h, [H], weight)
outputs:
  - h
  - z: OUT
"""


def test_sums_over_ranks_then_residual_and_norm() -> None:
    local = agree(read(REDUCED_NORM.replace("z: OUT", "z")))
    assert exchanges_of(local) == ["all_reduce"]
    assert local.find("y_partial") is not None


MEAN = """
mesh: {dp: 2, tp: 2}
dims: {B: 8, H: 12}
inputs:
  x: {type: "f64[B, H]", shard: {0: [dp, tp]}}
  g: {type: "f64[B, H]", shard: {0: dp}}
ops:
  - m = mean(x, dims=[0])
  - n = mean(mul(x, g))
outputs: [m, n]
"""


def test_means_count_the_elements_of_all_ranks() -> None:
    local = agree(read(MEAN), exact=False)
    assert ops_of(local).count("all_reduce") == 4


GRADIENTS = """
mesh: {dp: 2, tp: 2}
dims: {B: 8, I: 6, O: 4}
inputs:
  x: {type: "f32[B, I]", shard: {0: dp}}
  dy: {type: "f32[B, O]", shard: {0: dp, 1: tp}}
  w: {type: "f32[O, I]", shard: {0: tp}}
ops:
  - dw = matmul(permute(dy, [1, 0]), x)
  - db = sum(dy, dims=[0])
  - dx = matmul(dy, w)
  - w2 = sub(w, dw)
outputs:
  - dw
  - db
  - dx: {shard: {0: dp}}
  - w2: {alias: w}
"""


def test_gradients_are_summed_over_what_divides_the_batch() -> None:
    local = agree(read(GRADIENTS))
    axes = [n.attributes["axis"] for n in local.nodes if n.op.name == "all_reduce"]
    assert axes == ["dp", "dp", "tp"]


FSDP = """
mesh: [2]
dims: {T: 4, H: 6, F: 8}
inputs:
  x: {type: "f32[T, H]", shard: {0: mesh}}
  w1: {type: "f32[F, H]", shard: {0: mesh}}
  w2: {type: "f32[H, F]", shard: {0: mesh}}
ops:
  - y = linear(relu(linear(x, w1)), w2)
outputs: [y]
"""


def test_weights_that_ranks_have_parts_of_are_gathered() -> None:
    assert exchanges_of(agree(read(FSDP))) == ["all_gather", "all_gather"]


MOVED = """
mesh: [2]
dims: {B: 4, S: 6, H: 8}
inputs:
  x: {type: "f32[B, S, H]", shard: {X}}
  i: {type: "i64[B, 2, H]"}
ops:
  - a = slice(x, [0, 1, 0], [B, S, H])
  - b = cat([x, a], dim=1)
  - c = pad(x, [1, 2, 0, 0, 0, 0])
  - d = flip(x, dims=[1])
  - e = cumsum(x, dim=1)
  - f = argsort(x, dim=2)
  - g = broadcast_in_dim(sum(x, dims=[1]), [B, 3, H], [0, 2])
  - h = squeeze(sum(x, dims=[2], keepdim=true), dims=[2])
  - j = expand(sum(x, dims=[0], keepdim=true), [B, S, H])
  - k = full([B, S, H], 2.0)
  - l = add(mul(x, k), j)
  - m = argmax(x, dim=1)
  - n = var(x, dims=[1])
  - o = take_along_axis(x, abs(i), dim=1)
  - p = reshape(x, [B * S, H])
  - q = reshape(x, [B, S * H])
  - r = reshape(permute(x, [1, 0, 2]), [S, B * H])
  - s = any(ne(x, 0.0), dims=[0])
  - t = prod(x, dims=[0])
  - u = min(x, dims=[0, 1, 2])
outputs: [b, c, d, e, f, g, h, l, m, n, o, p, q, r, s, t, u]
"""


@pytest.mark.parametrize("said", ["0: mesh", "1: mesh", "2: mesh", "1: [{whole: 3}, mesh]"])
def test_everything_that_moves_or_reduces(said: str) -> None:
    agree(read(MOVED.replace("X", said)))


SPLIT = """
mesh: [2]
dims: {B: 4, S: 6}
inputs:
  x: {type: "f32[B, S, 8]", shard: {0: mesh}}
  y: {type: "f32[B * S, 8]", shard: {0: mesh}}
ops:
  - a = reshape(x, [B * S, 8])
  - b = add(a, y)
  - c = reshape(b, [B, S, 8])
  - d = reshape(c, [B, 1, S * 8])
  - e = reshape(d, [B, S, 2, 4])
outputs: [c, e]
"""


def test_reshapes_carry_outermost_factors() -> None:
    assert exchanges_of(agree(read(SPLIT))) == []


GROUPED = """
mesh: [2]
dims: {M: 18, K: 8, N: 6, F: 4}
inputs:
  x: {type: "f32[M, K]", SAID}
  w: {type: "f32[6, K, N]", WEIGHT}
  ends: {type: "i64[6]"}
ops:
  - y = grouped_mm(x, w, cumsum(abs(ends), dim=0))
outputs: [y]
"""


@pytest.mark.parametrize(
    ("said", "weight", "expected"),
    [
        ("shard: {}", "shard: {2: mesh}", []),
        ("shard: {1: mesh}", "shard: {1: mesh}", ["all_reduce"]),
        ("shard: {0: mesh}", "shard: {}", ["all_gather"]),
        ("shard: {}", "shard: {0: mesh}", ["all_gather"]),
    ],
)
def test_products_of_groups(said: str, weight: str, expected: list[str]) -> None:
    fusion = read(GROUPED.replace("SAID", said).replace("WEIGHT", weight))
    assert exchanges_of(agree(fusion)) == expected

    text = """
mesh: [2]
dims: {M: 4, K: 18, N: 6}
inputs:
  x: {type: "f32[M, K]"}
  w: {type: "f32[K, N]", shard: {0: mesh}}
  ends: {type: "i64[6]"}
ops:
  - y = grouped_mm(x, w, cumsum(abs(ends), dim=0))
outputs: [y]
"""
    assert exchanges_of(agree(read(text))) == ["all_gather"], "groups of what is summed"


TRIANGLE = """
mesh: {z: 2, y: 2, x: 2}
dims: {B: 2, N: 4, C: 3}
inputs:
  p: {type: "f32[B, N, N, C]", shard: {0: z, 1: y, 2: x}}
  q: {type: "f32[B, N, N, C]", shard: {0: z, 1: y, 2: x}}
ops:
  - a = permute(p, [0, 3, 1, 2])
  - b = permute(q, [0, 3, 2, 1])
  - m = matmul(a, b)
  - o = permute(m, [0, 2, 3, 1])
outputs: [o]
shardings:
  m: {shard: {0: z, 2: y, 3: x}}
"""


def test_sums_along_one_axis_of_three_are_scattered() -> None:
    """The other factor is gathered along the axis that divides rows of the result."""
    local = agree(read(TRIANGLE))
    named = {n.op.name: n.attributes["axis"] for n in local.nodes if "axis" in n.attributes}
    assert named == {"all_gather": "y", "reduce_scatter": "x"}


SEVERAL = """
mesh: [2]
dims: {B: 4, H: 8}
inputs:
  x: {type: "f64[B, H]", shard: {0: mesh}}
ops:
  - v, i = sort(x, dim=1)
  - w, m = var_mean(x, dims=[1])
outputs: [v, i, w, m]
shardings:
  i: {shard: {1: mesh}}
  m: {shard: {}}
"""


def test_each_of_several_results_is_divided_as_the_file_says() -> None:
    local = agree(read(SEVERAL), exact=False)
    assert {o.value.name: str(o.value.type) for o in local.outputs} == {
        "v": "f64[B, H * 2]", "i": "i64[B * 2, H]", "w": "f64[B]", "m": "f64[B * 2]",
    }  # fmt: skip
