"""Parts of a sum of which each rank has one: no kernel reduces them, and other sizes are others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rank_processes
from called import on_gpu
from test_calls_of_ranks import Lanes, OverSockets, device  # noqa: F401
from test_parallel_examples import verdict_of

import fusec
from fusec.driver import Compilation
from fusec.hostir.instructions import Alias
from fusec.ir.sharding import Mesh
from fusec.options import CompileOptions
from fusec.parse.reader import read_text
from fusec.passes.specialize_units import specialize_units
from fusec.run.distributed.exchange import Member
from fusec.run.distributed.links import Links
from fusec.shard.partition import partitioned

PARTS = """
fusion: parts
mesh: [2]
dims: {B: 3, R: 2, H: 40}
inputs:
  x: {type: "TYPE[R, B, H]", shard: {0: mesh}}
  r: TYPE[B, H]
ops:
  - y = add(sum(x, dims=[0]), r)
outputs: [y]
"""


def compiled(parts: int = 2, **options: Any) -> Compilation:
    text = PARTS.replace("TYPE", "bf16").replace("R: 2", f"R: {parts}")
    return Compilation(read_text(text), CompileOptions(**options))


def guards(program: Compilation) -> list[str]:
    return [str(guard) for guard in program.host.guards]


def test_the_one_part_of_a_rank_is_added_where_it_lies() -> None:
    program = compiled()
    assert Alias in [type(i) for i in program.host.instructions]
    assert len(program.host.launches) == 1
    assert "R == 1" in guards(program)
    without = compiled(without=("specialize_units",))
    assert len(without.host.launches) == 2
    assert "R == 1" in guards(without)


def test_of_several_parts_a_kernel_makes_one() -> None:
    program = compiled(6)
    assert len(program.host.launches) == 2
    assert "R == 3" in guards(program)


@pytest.mark.parametrize("parts", [2, 6])
def test_both_are_right(parts: int) -> None:
    text = PARTS.replace("TYPE", "f32").replace("R: 2", f"R: {parts}")
    assert verdict_of(read_text(text)).ok


def test_on_one_gpu_nothing_is_specialized() -> None:
    text = PARTS.replace("TYPE", "f32").replace("R: 2", "R: 1")
    fusion = read_text(text.replace("mesh: [2]\n", "").replace(", shard: {0: mesh}", ""))
    assert specialize_units(fusion) is fusion
    rank = partitioned(read_text(PARTS.replace("TYPE", "f32"))).fusion
    once = specialize_units(rank)
    assert once is not rank
    assert specialize_units(once) is once


def test_a_call_with_other_parts_is_built_for_them(
    device: Lanes,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
) -> None:
    program = fusec.compile(PARTS.replace("TYPE", "f32"), target="sm_90a")
    program._build({"B": 3, "R": 3, "H": 40}, device)  # once for both processes
    normal = np.random.default_rng(0).standard_normal
    given = [
        (normal((parts, 3, 40), np.float32), normal((3, 40), np.float32)) for parts in (2, 6, 2)
    ]

    def work(links: Links) -> list[np.ndarray]:
        def member_of(called: str, of: Mesh, device: Any) -> Member:
            return Member(of, links.rank, OverSockets(links))

        monkeypatch.setattr("fusec.run.distributed.process.member_of", member_of)
        own = [(np.split(x, 2)[links.rank], r) for x, r in given]
        return [np.array(program(*map(on_gpu, arrays)).array) for arrays in own]

    for found in rank_processes.run(2, work, tmp_path):
        for y, (x, r) in zip(found, given, strict=True):
            np.testing.assert_allclose(y, x.sum(0) + r, rtol=1e-4, atol=1e-5)
