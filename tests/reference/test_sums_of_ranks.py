"""The verdict of sums that ranks have taken part of, and rounded, each for itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from peer_links import quick_barriers  # noqa: F401
from rank_verdicts import added_in_a_ring, added_in_a_tree, added_once, collectives

from fusec.cli import run_main
from fusec.commands.running.judge_ranks import added_on_the_way, expected_of_ranks
from fusec.driver import Compilation, model_of
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse.reader import read_text
from fusec.reference.errors.nodes import Model
from fusec.reference.verdict import LEAST_POWER, Verdict, compare
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.shard.partials import with_partials
from fusec.shard.partition import partitioned

FILE = """\
fusion: sums
mesh: [4]
dims: {B: 64, H: 64, K: 384}
inputs:
  x: {type: "TYPE[B, K]", shard: {1: mesh}}
  w: {type: "TYPE[K, H]", shard: {0: mesh}}
ops: [ "y = matmul(x, w)" ]
outputs: [y]
"""
WITHOUT_W = "".join(line for line in FILE.splitlines(True) if not line.startswith("  w:"))
NCCL = CompileOptions(without=("peer_reads",))
Parts = Sequence[Any]


def sums(dtype: str, ranks: int = 4) -> Fusion:
    text = FILE.replace("TYPE", dtype).replace("[4]", f"[{ranks}]")
    return read_text(text, "sums.yaml")


def products(x: Any, w: Any, ranks: int) -> list[Any]:
    """Return the rounded partial result of each rank."""
    pairs = zip(np.split(x, ranks, 1), np.split(w, ranks, 0), strict=True)
    return [(a.astype(np.float32) @ b.astype(np.float32)).astype(x.dtype) for a, b in pairs]


def judged(
    fusion: Fusion,
    add: Callable[[Parts], Any],
    *,
    nccl: bool = True,
    change: Callable[[Parts], Parts] = list,
) -> Verdict:
    """Return the verdict of partial results that are added so; change: makes other ones of them."""
    assert fusion.mesh is not None
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes, 3)
    parts = products(np.asarray(inputs["x"]), np.asarray(inputs["w"]), fusion.mesh.size)
    outputs = {"y": add(change(parts))}
    program = Compilation(fusion, NCCL)
    spelled, model = expected_of_ranks(program, Model(), collectives(program) if nccl else ())
    return compare(spelled, sizes, inputs, outputs, model=model)


ADDITIONS = (added_once, added_in_a_ring, added_in_a_tree)


@pytest.mark.parametrize("add", ADDITIONS)
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_sums_are_verified_in_every_order(
    dtype: str, ranks: int, add: Callable[[Parts], Any]
) -> None:
    verdict = judged(sums(dtype, ranks), add)
    assert verdict.word == "verified", verdict.text()
    assert verdict.power <= LEAST_POWER


def test_two_ranks_round_once() -> None:
    """The sum of two halves has no rounding but that of the result, however it is taken."""
    for nccl in (True, False):
        verdict = judged(sums("bf16", 2), added_in_a_ring, nccl=nccl)
        assert verdict.word == "verified"
        assert verdict.ratio == 0
        assert verdict.power < 1e-3


def test_roundings_on_the_way_differ_where_there_are_none() -> None:
    """Sockets and peer reads add in f32: what a ring gives is wrong there."""
    fusion = sums("bf16", 4)
    assert judged(fusion, added_once, nccl=False).word == "verified"
    assert judged(fusion, added_in_a_ring, nccl=False).word == "differs"


def test_parts_that_are_not_rounded_differ() -> None:
    fusion = sums("bf16", 2)
    inputs = random_inputs(fusion, choose_sizes(fusion), 3)
    x, w = (np.asarray(inputs[name]).astype(np.float32) for name in "xw")
    outputs = {"y": (x @ w).astype(np.asarray(inputs["x"]).dtype)}
    program = Compilation(fusion, NCCL)
    spelled, model = expected_of_ranks(program, Model(), collectives(program))
    assert compare(spelled, choose_sizes(fusion), inputs, outputs, model=model).word == "differs"


WRONG: dict[str, Callable[[Parts], Parts]] = {
    "left out": lambda parts: parts[:-1],
    "added twice": lambda parts: [*parts, parts[-1]],
    "a little larger": lambda parts: [(parts[0] * parts[0].dtype.type(1 + 2**-6)), *parts[1:]],
    "of another rank": lambda parts: [parts[1], *parts[1:]],
    "rows of a neighbour": lambda parts: [np.roll(parts[0], 1, 0), *parts[1:]],
    "all 2 % larger": lambda parts: [(p.astype(np.float32) * 1.02).astype(p.dtype) for p in parts],
}


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_part_differs(name: str, ranks: int) -> None:
    """Also in the order with the most roundings, and in the one with none."""
    fusion, change = sums("bf16", ranks), WRONG[name]
    assert judged(fusion, added_once, change=change, nccl=False).word == "differs"
    if (name, ranks) == ("a little larger", 8):
        return  # a fifth of a percent of the whole: less than one rounding on the way
    for add in (added_once, added_in_a_ring):
        assert judged(fusion, add, change=change).word == "differs"


def test_only_rounded_sums_are_written_in_parts() -> None:
    fusion = sums("f32")
    found = with_partials(fusion, partitioned(fusion))
    assert found.combined == {"y"}
    assert judged(fusion, added_once).word == "verified"
    for dtype, call in (("i32", "sum(x, dims=[1])"), ("bf16", "max(x, dims=[1])")):
        text = WITHOUT_W.replace("TYPE", dtype).replace("matmul(x, w)", call)
        other = read_text(text, "other.yaml")
        assert with_partials(other, partitioned(other)).fusion is other


def test_factors_that_ranks_have_rounded() -> None:
    """A product of a wrong factor is none."""
    text = WITHOUT_W.replace("TYPE[B, K]", "f16[B, 8]").replace("matmul(x, w)", "prod(x, dims=[1])")
    fusion = read_text(text, "p.yaml")
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes, 3)
    program = Compilation(fusion, NCCL)
    spelled, model = expected_of_ranks(program, Model(), collectives(program))
    for scale, word in ((1.0, "verified"), (1.02, "differs")):
        x = np.split(np.asarray(inputs["x"]).astype(np.float32), 4, 1)
        total = (x[0].prod(axis=1) * scale).astype(np.float16)
        for part in x[1:]:
            factor = part.prod(axis=1).astype(np.float16)
            total = (total.astype(np.float32) * factor.astype(np.float32)).astype(np.float16)
        assert compare(spelled, sizes, inputs, {"y": total}, model=model).word == word


def test_axes_that_both_divide_a_sum_are_combined_in_turn() -> None:
    """Each axis rounds: the sum over the first is what ranks along the second exchange."""
    text = FILE.replace("TYPE", "bf16").replace("[4]", "{a: 2, b: 2}")
    text = text.replace("{1: mesh}", "{1: [a, b]}").replace("{0: mesh}", "{0: [a, b]}")
    fusion = read_text(text, "both.yaml")
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes, 3)
    parts = products(np.asarray(inputs["x"]), np.asarray(inputs["w"]), 4)
    program = Compilation(fusion, NCCL)
    spelled, model = expected_of_ranks(program, Model(), collectives(program))
    over_a = [added_once([parts[b], parts[2 + b]]) for b in range(2)]
    assert len(spelled.nodes) > 10
    for found, word in ((added_once(over_a), "verified"), (added_once(parts), "differs")):
        assert compare(spelled, sizes, inputs, {"y": found}, model=model).word == word


def test_a_bias_is_added_after_the_ranks() -> None:
    text = (
        FILE.replace("TYPE", "bf16").replace("[K, H]", "[H, K]").replace("{0: mesh}", "{1: mesh}")
    )
    text = text.replace("ops:", '  b: {type: "bf16[H]", shard: {}}\nops:')
    fusion = read_text(text.replace("matmul(x, w)", "linear(x, w, b)"), "bias.yaml")
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes, 3)
    x, w, b = (np.asarray(inputs[name]) for name in "xwb")
    total = added_in_a_ring(products(x, w.T, 4))
    program = Compilation(fusion, NCCL)
    spelled, model = expected_of_ranks(program, Model(), collectives(program))
    outputs = {"y": added_once([total, np.broadcast_to(b, total.shape)])}
    assert compare(spelled, sizes, inputs, outputs, model=model).word == "verified"
    assert compare(spelled, sizes, inputs, {"y": total}, model=model).word == "differs"


def test_explain_says_what_carries_an_exchange(
    tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    """Few bytes of a type that a kernel adds are pushed; of others kernels read what they need."""
    file = f"{tmp_path}/sums.yaml"
    for dtype, options, said in (
        ("bf16", [], "pushed sums: small: one kernel per GPU pushes to the others and adds"),
        (
            "f64",
            ["--without", "peer-reads"],
            "NCCL: it is a reduction, which copy engines cannot do",
        ),
    ):
        with open(file, "w") as out:
            out.write(FILE.replace("TYPE", dtype))
        assert run_main(["explain", file, *options]) == 0
        assert f"transport     by {said}" in capsys.readouterr().out


@pytest.mark.usefixtures("quick_barriers")
def test_only_exchanges_that_add_round_on_the_way() -> None:
    """What kernels read of all ranks is added in f32."""
    fusion = sums("bf16")
    for without, added in (((), set[str]()), (("peer_reads",), {"y"})):
        program = Compilation(fusion, CompileOptions(without=without))
        assert added_on_the_way(program, collectives(program)) == added
        assert added_on_the_way(program, ()) == set()


HEADS = """\
fusion: heads
mesh: [2]
dims: {B: 2, N: 8, S: 512, E: 64}
inputs:
  q: {type: "bf16[B, N, S, E]", shard: {1: mesh}}
  k: {type: "bf16[B, N, S, E]", shard: {1: mesh}}
  v: {type: "bf16[B, N, S, E]", shard: {1: mesh}}
ops:
  - o, lse, seed, off = sdpfa_fwd(q, k, v)
outputs: [o]
"""


def test_divided_heads_are_judged_by_the_plan_of_a_rank() -> None:
    """The kernel's orders, and that it rounds weights before it divides them."""
    program = Compilation(read_text(HEADS, "heads.yaml"), CompileOptions())
    local = model_of(program.host, choose_sizes(program.local))
    assert local.early
    _, model = expected_of_ranks(program, local, collectives(program))
    text = HEADS.replace("mesh: [2]\n", "").replace(", shard: {1: mesh}", "")
    alone = Compilation(read_text(text, "alone.yaml"), CompileOptions())
    expected = model_of(alone.host, choose_sizes(alone.local))
    assert model == replace(expected, ranks=True)


def test_partial_products_have_the_order_of_a_rank() -> None:
    program = Compilation(sums("bf16", 2), CompileOptions())
    local = model_of(program.host, choose_sizes(program.local))
    _, model = expected_of_ranks(program, local, collectives(program))
    partial = local.orders["y_partial"]
    assert model.orders["y_partial"] == model.orders["y_partial_2"] == partial
