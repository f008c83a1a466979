"""Examples of divided programs: what ranks exchange and compute, and what is kept of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from nightly import mostly_nightly
from paths import ROOT
from peer_links import quick_barriers  # noqa: F401
from rank_verdicts import LOOPED, added_in_a_ring, added_in_a_tree, added_once, verdict_of
from streamed_programs import Threads

from fusec.driver import Compilation
from fusec.hostir.instructions import Collective, For, Instruction, Receive, Send, Share, Unshare
from fusec.ir.graph import Fusion
from fusec.nvfuser.script import load_script
from fusec.options import CompileOptions
from fusec.parse import read_file, read_text
from fusec.reference.verdict import LEAST_POWER

FOLDER = ROOT / "examples" / "parallel"
SIZES = {
    "allreduce_residual_rmsnorm": "{B: 6, H: 40}",
    "data_parallel_gradients": "{T: 24, D: 12, F: 20}",
    "decode_projection_norm": "{B: 6, D: 40}",
    "matmul_reduce_scatter": "{M: 24, K: 40, N: 12}",
    "ring_gather_matmul": "{M: 24, K: 40, N: 12}",
    "sequence_parallel_mlp": "{T: 24, D: 12, F: 40}",
    "stream_rows": "{M: 24, K: 12, F: 20}",
    "tensor_parallel_attention": "{B: 2, S: 6, D: 12, H: 8, E: 5}",
    "tensor_parallel_mlp": "{T: 6, D: 12, F: 40}",
}
"""Sizes of a test, which 1, 2, 4 and (of streams) 8 divide."""
EXCHANGES: dict[str, dict[str, int]] = {
    "allreduce_residual_rmsnorm": {"all_reduce": 1},
    "data_parallel_gradients": {"all_reduce": 2},
    "decode_projection_norm": {"all_reduce": 1},
    "matmul_reduce_scatter": {"send": 4, "receive": 4},
    "ring_gather_matmul": {"send": 8, "receive": 8},
    "sequence_parallel_mlp": {"all_gather": 1, "reduce_scatter": 1},
    "stream_rows": {},
    "tensor_parallel_attention": {"all_reduce": 1},
    "tensor_parallel_mlp": {"all_reduce": 1},
}
"""What each of four ranks begins."""
FILES = sorted(FOLDER.glob("*.yaml"))
DIVIDED = [name for name in SIZES if name != "stream_rows"]


def small(name: str, ranks: int = 4, dtype: str = "f32", sizes: str = "") -> Fusion:
    """Return an example at small sizes, for a number of ranks."""
    text = (FOLDER / f"{name}.yaml").read_text()
    text = re.sub(r"(?m)^dims: .*$", f"dims: {sizes or SIZES[name]}", text).replace("bf16", dtype)
    text = re.sub(r"(?<=[\[ ])4(?=[\],}])", str(ranks), text)
    return read_text(text, f"{name}.yaml")


def begun(instructions: Iterable[Instruction], times: int = 1) -> Counter[str]:
    """Return how often exchanges of each kind are begun."""
    found = Counter[str]()
    for each in instructions:
        match each:
            case For():
                found += begun(each.body, times * each.count.value)
            case Collective():
                found[each.kind] += times
            case Send() | Receive() | Share() | Unshare():
                found[type(each).__name__.lower()] += times
            case _:
                pass
    return found


def test_every_example_is_here() -> None:
    assert {f.stem for f in FILES} == SIZES.keys() == EXCHANGES.keys()


@pytest.mark.parametrize("name", SIZES)
def test_what_ranks_exchange(name: str) -> None:
    program = Compilation(read_file(FOLDER / f"{name}.yaml"), CompileOptions())
    assert begun(program.posts.instructions) == EXCHANGES[name]


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("name", DIVIDED)
def test_ranks_compute_the_whole(name: str, ranks: int) -> None:
    fusion = small(name, ranks)
    assert fusion.mesh is not None
    assert fusion.mesh.size == ranks
    verdict = verdict_of(fusion)
    assert verdict.ok, verdict.text()


HALF_FORMATS = SIZES | {
    "allreduce_residual_rmsnorm": "{B: 16, H: 1024}",
    "data_parallel_gradients": "{T: 48, D: 12, F: 20}",
    "decode_projection_norm": "{B: 6, D: 1024}",
    "matmul_reduce_scatter": "{M: 48, K: 48, N: 24}",
    "ring_gather_matmul": "{M: 48, K: 48, N: 24}",
    "sequence_parallel_mlp": "{T: 24, D: 12, F: 48}",
    "tensor_parallel_attention": "{B: 2, S: 6, D: 12, H: 24, E: 5}",
    "tensor_parallel_mlp": "{T: 6, D: 12, F: 48}",
}
"""Sizes that 2, 3 and 4 divide; rows are long, as the roundings of one are averaged in its norm."""


@pytest.mark.parametrize("ranks", mostly_nightly([2, 3, 4], 3))
@pytest.mark.parametrize("name", mostly_nightly(DIVIDED, 3))
def test_half_types_are_decided(name: str, ranks: int) -> None:
    """However NCCL adds, and where kernels read the parts instead."""
    sizes = HALF_FORMATS[name].replace("1024", "1536" if ranks == 3 else "1024")
    fusion = small(name, ranks, "bf16", sizes)
    nccl = replace(LOOPED, without=(*LOOPED.without, "peer_reads"))
    for options, add in (
        (LOOPED, added_in_a_ring),
        (nccl, added_in_a_ring),
        (nccl, added_in_a_tree),
    ):
        verdict = verdict_of(fusion, options=options, add=add)
        assert verdict.ok, verdict.text()
        assert verdict.power <= LEAST_POWER


@pytest.mark.parametrize("ranks", mostly_nightly([2, 4], 2))
def test_attention_is_decided_at_its_own_width(ranks: int) -> None:
    """With weights as large as initialised ones, and larger ones: a softmax of nearly one-hot."""
    fusion = small(
        "tensor_parallel_attention", ranks, "bf16", "{B: 1, S: 32, D: 1024, H: 16, E: 64}"
    )
    pushed = verdict_of(fusion, add=added_once, nccl=False)
    assert pushed.ok, pushed.text()
    assert pushed.power <= LEAST_POWER
    large = replace(fusion, inputs=tuple(replace(i, low=None, high=None) for i in fusion.inputs))
    assert verdict_of(large, add=added_once, nccl=False).ok


@pytest.mark.parametrize("name", DIVIDED)
def test_a_lost_share_of_half_types_is_found(name: str) -> None:
    if not EXCHANGES[name].keys() & {"all_reduce", "reduce_scatter"}:
        return
    fusion = small(name, 4, "bf16", HALF_FORMATS[name])
    nccl = replace(LOOPED, without=(*LOOPED.without, "peer_reads"))
    verdict = verdict_of(fusion, options=nccl, add=lambda came: added_in_a_ring(came[1:]))
    assert verdict.word == "differs"


@pytest.mark.parametrize("name", ["ring_gather_matmul", "stream_rows"])
def test_sums_of_integers_in_half_precision(name: str) -> None:
    verdict = verdict_of(small(name, dtype="bf16"), "integers")
    assert verdict.ok, verdict.text()


def test_a_lost_share_of_a_sum_is_found() -> None:
    fusion = small("sequence_parallel_mlp")
    assert verdict_of(fusion, add=lambda came: added_once(came[:-1])).word == "differs"


@pytest.mark.usefixtures("quick_barriers")
def test_a_lost_part_that_is_read_in_place_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fusion, view = small("decode_projection_norm"), Threads.view
    assert verdict_of(fusion).ok

    def without_the_last(self: Threads, buffer: str, place: int) -> Any:
        return view(self, buffer, place) * (place < 3)

    monkeypatch.setattr(Threads, "view", without_the_last)
    assert verdict_of(fusion).word == "differs"


def test_the_script_is_the_file() -> None:
    (python,) = load_script(FOLDER / "tensor_parallel_mlp.py")
    yaml = read_file(FOLDER / "tensor_parallel_mlp.yaml")
    assert (python, python.name, python.doc) == (yaml, yaml.name, yaml.doc)
    assert python.mesh == yaml.mesh
    divided = [{n: s.dims for n, s in each.shardings.items()} for each in (python, yaml)]
    assert divided[0] == divided[1]


def test_goldens_tell_what_a_rank_runs() -> None:
    for file in FILES:
        folder = FOLDER / "golden" / file.stem
        assert (folder / "partition.txt").read_text().startswith(f"fusion: {file.stem}\n")
        program = (folder / "host_ir.txt").read_text()
        begins = program.count("Communication 0 (") + program.count(" Share(")
        assert begins == bool(EXCHANGES[file.stem])
        assert ("FOR StreamIdx" in program) == ("stream:" in file.read_text())
