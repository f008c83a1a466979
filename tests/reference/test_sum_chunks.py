"""Sums over ranks in a fixed number of chunks: the same bits however many ranks share them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from nightly import mostly_nightly
from rank_verdicts import LOOPED, added_in_a_ring, collectives, run_ranks, transport_with
from test_parallel_examples import DIVIDED, HALF_FORMATS, small
from test_sums_of_ranks import FILE, WITHOUT_W

from fusec.cli import run_main
from fusec.commands.running.judge_ranks import expected_of_ranks
from fusec.diagnostics import FusecError
from fusec.driver import Compilation, reference
from fusec.ir.graph import Fusion
from fusec.ops.communication import communicates
from fusec.options import CompileOptions
from fusec.parse.reader import read_text
from fusec.reference.errors.nodes import Model
from fusec.reference.verdict import compare
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.shard.chunks import with_sum_chunks

CHUNKS = 4
SUMMING = [n for n in DIVIDED if n != "allreduce_residual_rmsnorm"]
"""The other one has a part for each rank in its input, and none for more."""


def divided(text: str, ranks: int) -> Fusion:
    return read_text(text.replace("[4]", f"[{ranks}]"), "sums.yaml")


def outputs(fusion: Fusion, kind: str = "ranges") -> tuple[Compilation, Mapping[str, Any], Any]:
    """Return a program, its inputs, and its outputs where NCCL adds in a ring."""
    program = Compilation(fusion, LOOPED)
    inputs = random_inputs(fusion, choose_sizes(fusion), 3, kind)
    return program, inputs, run_ranks(program, inputs, transport_with(added_in_a_ring))


@pytest.mark.parametrize("name", mostly_nightly(SUMMING, 4))
def test_one_two_and_four_ranks_agree_to_the_bit(name: str) -> None:
    found = list[Any]()
    for ranks in (1, 2, 4):
        fusion = with_sum_chunks(small(name, ranks, "bf16", HALF_FORMATS[name]), CHUNKS)
        program, inputs, arrays = outputs(fusion)
        spelled, model = expected_of_ranks(program, Model(), collectives(program))
        assert model.hops == frozenset()
        verdict = compare(spelled, choose_sizes(fusion), inputs, arrays, model=model)
        assert verdict.ok, verdict.text()
        found.append({key: array.tobytes() for key, array in arrays.items()})
    assert found[0] == found[1] == found[2]


def test_without_chunks_they_do_not() -> None:
    """What the option is for: a ring of four rounds otherwise than two ranks, or one."""
    found = [
        outputs(divided(FILE.replace("TYPE", "bf16"), ranks))[2]["y"].tobytes()
        for ranks in (1, 2, 4)
    ]
    assert len(set(found)) == 3


@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("text", [FILE, WITHOUT_W.replace("matmul(x, w)", "sum(x, dims=[1])")])
def test_chunks_are_of_the_same_sum(text: str, dtype: str) -> None:
    """Integers have one sum in every order."""
    plain = divided(text.replace("TYPE", dtype).replace("K: 384", "K: 64"), 2)
    chunked = with_sum_chunks(plain, CHUNKS)
    assert chunked != plain
    _, inputs, found = outputs(chunked, "integers")
    expected = reference(plain, inputs, choose_sizes(plain))
    assert found["y"].tobytes() == expected["y"].tobytes()
    rolled = {**inputs, "x": np.roll(np.asarray(inputs["x"]), 1, 0)}
    assert found["y"].tobytes() != reference(plain, rolled, choose_sizes(plain))["y"].tobytes()


def test_ranks_exchange_chunks_by_copies() -> None:
    for name, kinds in (
        ("tensor_parallel_mlp", ["all_gather"]),
        ("sequence_parallel_mlp", ["all_gather", "all_to_all"]),
        ("matmul_reduce_scatter", ["all_to_all"]),
    ):
        local = Compilation(with_sum_chunks(small(name), CHUNKS), CompileOptions()).local
        assert [n.op.name for n in local.nodes if communicates(n)] == kinds


def test_a_bias_is_added_once() -> None:
    text = FILE.replace("TYPE", "f16").replace("[K, H]", "[H, K]")
    text = text.replace("{0: mesh}", "{1: mesh}").replace("K: 384", "K: 64")
    text = text.replace("ops:", '  b: {type: "f16[H]", shard: {}}\nops:')
    plain = divided(text.replace("matmul(x, w)", "linear(x, w, b)"), 2)
    _, inputs, found = outputs(with_sum_chunks(plain, CHUNKS), "integers")
    assert found["y"].tobytes() == reference(plain, inputs, choose_sizes(plain))["y"].tobytes()


def test_rows_of_several_dims() -> None:
    text = FILE.replace("TYPE[B, K]", "f16[2, B, K]").replace("{1: mesh}", "{2: mesh}")
    text = text.replace("TYPE", "f16").replace("K: 384", "K: 64")
    plain = divided(text, 4)
    _, inputs, found = outputs(with_sum_chunks(plain, 8), "integers")
    assert found["y"].tobytes() == reference(plain, inputs, choose_sizes(plain))["y"].tobytes()


@pytest.mark.parametrize(
    ("text", "chunks", "message"),
    [
        (FILE, 6, "6 chunks are not divisible among 4 ranks along `mesh`"),
        (FILE.replace("384", "20"), 8, "`y` sums over 20 elements, not divisible into 8"),
        (WITHOUT_W.replace("matmul(x, w)", "prod(x, dims=[1])"), 4, "`y` is a `prod` over ranks"),
        (FILE.replace("[4]", "{a: 2, b: 2}").replace("1: mesh", "1: [a, b]")
         .replace("0: mesh", "0: [a, b]"), 4, "`y` is summed over 2 mesh axes"),
    ],
)  # fmt: skip
def test_what_has_no_chunks_is_refused(text: str, chunks: int, message: str) -> None:
    fusion = read_text(text.replace("TYPE", "bf16"), "sums.yaml")
    with pytest.raises(FusecError) as error:
        with_sum_chunks(fusion, chunks)
    assert message in error.value.diagnostic.message
    assert error.value.diagnostic.span is not None


def test_what_is_not_divided_stays() -> None:
    text = FILE.replace("TYPE", "bf16").replace("{1: mesh}", "{}").replace("{0: mesh}", "{}")
    whole = read_text(text, "whole.yaml")
    assert with_sum_chunks(whole, CHUNKS).nodes == whole.nodes


def test_the_command_takes_chunks(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sums.yaml"
    file.write_text(FILE.replace("TYPE", "bf16"))
    assert run_main(["dump", "--partition", str(file), "--sum-chunks", "4", "--set", "K=64"]) == 0
    text = capsys.readouterr().out
    assert "all_gather" in text
    assert "all_reduce" not in text
    assert run_main(["check", str(file), "--sum-chunks", "6"]) == 2
    assert "a multiple of 4" in capsys.readouterr().err
