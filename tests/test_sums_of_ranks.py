"""The verdict of sums that ranks have taken part of, and rounded, each for itself."""

from __future__ import annotations

import numpy as np
import pytest
from peer_links import quick_barriers  # noqa: F401

from fusec.cli import run_main
from fusec.commands.rank import adds_on_the_way
from fusec.driver import Compilation
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse.reader import read_text
from fusec.reference.nodes import Model
from fusec.reference.verdict import Verdict, compare
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.run.transports.reduction import reduce_blocks
from fusec.shard.partition import partitioned

RANKS = 4
FILE = """\
fusion: sums
mesh: [4]
dims: {B: 64, H: 64, K: 256}
inputs:
  x: {type: "TYPE[B, K]", shard: {1: mesh}}
  w: {type: "TYPE[K, H]", shard: {0: mesh}}
ops: [ "y = matmul(x, w)" ]
outputs: [y]
"""


def sums(dtype: str) -> Fusion:
    return read_text(FILE.replace("TYPE", dtype), "sums.yaml")


def summed(fusion: Fusion, *, lost: int | None = None, scale: float = 1.0) -> tuple[dict, dict]:
    """Return inputs, and the outputs of ranks that add rounded parts; `lost`: without one."""
    inputs = random_inputs(fusion, choose_sizes(fusion), 3)
    x, w = (np.asarray(inputs[name]) for name in "xw")
    parts = [
        (a.astype(np.float32) @ b.astype(np.float32) * scale).astype(x.dtype)
        for a, b in zip(np.split(x, RANKS, 1), np.split(w, RANKS, 0), strict=True)
    ]
    kept = [part for number, part in enumerate(parts) if number != lost]
    return inputs, {"y": reduce_blocks(kept, "sum")}


def judged(fusion: Fusion, model: Model, **how: float) -> Verdict:
    inputs, outputs = summed(fusion, **how)  # pyright: ignore[reportArgumentType]
    return compare(fusion, choose_sizes(fusion), inputs, outputs, model=model)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_rounded_parts_are_expected_where_ranks_have_them(dtype: str) -> None:
    fusion = sums(dtype)
    parts = partitioned(fusion).parts
    assert parts == {"y": RANKS}
    assert judged(fusion, Model(parts=parts)).word == "verified"
    # As one GPU takes the sum, such errors are too large.
    assert judged(fusion, Model()).word == "differs"


def test_what_is_wrong_still_shows() -> None:
    fusion = sums("f16")
    model = Model(parts=partitioned(fusion).parts, hops=True)
    assert judged(fusion, model).word == "verified"
    assert judged(fusion, model, lost=2).word == "differs"
    assert judged(fusion, model, scale=1.02).word == "differs"


def test_full_precision_and_other_reductions_have_no_rounded_parts() -> None:
    fusion = sums("f32")
    assert judged(fusion, Model(parts=partitioned(fusion).parts)).word == "verified"
    text = FILE.replace("TYPE", "bf16").replace("matmul(x, w)", "max(x, dims=[1])")
    largest = read_text(text.replace('  w: {type: "bf16[K, H]", shard: {0: mesh}}\n', ""), "m.yaml")
    assert partitioned(largest).parts == {}


def test_factors_that_ranks_have_rounded() -> None:
    """A product of a wrong factor is none."""
    text = FILE.replace("TYPE[B, K]", "f16[B, 8]").replace("matmul(x, w)", "prod(x, dims=[1])")
    fusion = read_text(text.replace('  w: {type: "TYPE[K, H]", shard: {0: mesh}}\n', ""), "p.yaml")
    inputs = random_inputs(fusion, choose_sizes(fusion), 3)
    model = Model(parts=partitioned(fusion).parts)
    assert model.parts == {"y": RANKS}
    for scale, word in ((1.0, "verified"), (1.02, "differs")):
        x = np.split(np.asarray(inputs["x"]).astype(np.float32) * np.sqrt(scale), RANKS, 1)
        factors = [part.prod(axis=1).astype(np.float16) for part in x]
        outputs = {"y": reduce_blocks(factors, "prod")}
        sizes = choose_sizes(fusion)
        assert compare(fusion, sizes, inputs, outputs, model=model).word == word
        assert compare(fusion, sizes, inputs, outputs).word == "differs"


def test_explain_says_what_carries_an_exchange(
    tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    """Few bytes of a type that a kernel adds are pushed; of others kernels read what they need."""
    file = f"{tmp_path}/sums.yaml"
    for dtype, options, said in (
        ("bf16", [], "pushed sums: few bytes: one kernel on each GPU writes to the others and"),
        ("f64", ["--without", "peer-reads"], "NCCL: numbers are added, which copy engines cannot"),
    ):
        with open(file, "w") as out:
            out.write(FILE.replace("TYPE", dtype))
        assert run_main(["explain", file, *options]) == 0
        assert f"carried       by {said}" in capsys.readouterr().out


@pytest.mark.usefixtures("quick_barriers")
def test_only_exchanges_that_add_round_on_the_way() -> None:
    """What kernels read of all ranks is added in f32."""
    fusion = sums("bf16")
    for without, adds in (((), False), (("peer_reads",), True)):
        program = Compilation(fusion, CompileOptions(without=without))
        assert adds_on_the_way(program) == adds
