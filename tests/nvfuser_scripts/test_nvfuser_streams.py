"""nvFuser's tests of streams, shardings and communication, by their names."""

from __future__ import annotations

import ast

import numpy as np
import pytest
from lockstep import agree, exchanges_of, ops_of
from loop_scripts import STREAM, X, mesh_of
from paths import TESTS
from test_multidevice_names import run_ranks

from fusec.ir.graph import Fusion
from fusec.ir.text import to_text
from fusec.nvfuser.definition import DirectDefinition
from fusec.parse import read_text
from fusec.parse.dsl.datatype import DataType
from fusec.parse.dsl.mesh import DeviceMesh
from fusec.shard.partition import partition

RANKS = TESTS / "ranks_of_nvfuser.py"


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_communication_shardings_and_overlap(size: int) -> None:
    """test_communication.py, test_sharding.py and test_overlap.py, over the host transport."""
    text = RANKS.read_text(encoding="utf-8")
    functions = (n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef))
    names = [f.name for f in functions if f.name.startswith("test_")]
    assert len(names) >= 14
    code = f"import runpy; runpy.run_path({str(RANKS)!r}, run_name='__main__')"
    assert [out.split() for out in run_ranks(code, size)] == [names] * size


# -- test_stream.py

C = 3


def integers(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32)


def in_loops(fusion: Fusion) -> list[str]:
    return ops_of(partition(fusion))


def test_matmul() -> None:
    with DirectDefinition() as fd:
        inp, w = (fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.Float) for _ in "ab")
        out = fd.ops.matmul(inp, w)
        fd.add_output(out)
        out.outer_split(1, C)
        out.axis(1).parallelize(STREAM)
    a, b = integers(5, 7), integers(7, C * 2)
    (found,) = fd.execute([a, b], _enable_options=["host_ir_lowering"])
    np.testing.assert_array_equal(found, a @ b)
    assert in_loops(fd.graph()) == ["stream_slice", "matmul", "stream_stack"]
    local = partition(fd.executed_as or fd.graph())
    assert local.nodes[0].output.shape[1].evaluate(local.hints) == 2


def test_two_matmuls_inlinable() -> None:
    with DirectDefinition() as fd:
        inp, w1, w2 = (
            fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.Float) for _ in "abc"
        )
        out = fd.ops.matmul(fd.ops.matmul(inp, w1), w2)
        fd.add_output(out)
        inp.outer_split(0, C)
        inp.axis(0).parallelize(STREAM)
    a, b, c = integers(C * 2, 3), integers(3, 5), integers(5, 3)
    (found,) = fd.execute([a, b, c], _enable_options=["host_ir_lowering"])
    np.testing.assert_array_equal(found, a @ b @ c)
    assert in_loops(fd.graph()) == ["stream_slice", "matmul", "matmul", "stream_stack"]


def test_two_matmuls_not_inlinable() -> None:
    with DirectDefinition() as fd:
        inp, w1, w2 = (
            fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.Float) for _ in "abc"
        )
        out = fd.ops.matmul(fd.ops.matmul(inp, w1), w2)
        fd.add_output(out)
        w1.split(1, C, inner_split=False)
        w1.axis(1).parallelize(STREAM)
        out.split(0, C, inner_split=False)
        out.axis(0).parallelize(STREAM)
    a, b, c = integers(C * 2, 3), integers(3, C * 5), integers(C * 5, 3)
    (found,) = fd.execute([a, b, c], _enable_options=["host_ir_lowering"])
    np.testing.assert_array_equal(found, a @ b @ c)
    assert in_loops(fd.graph()) == [
        "stream_slice", "matmul", "stream_stack", "stream_slice", "matmul", "stream_stack",
    ]  # fmt: skip


# -- test_resharding.cpp: whether ranks exchange anything for one operation


def resharding(ranks: int, op: str, *said: int | None, **more: object) -> list[str]:
    """Return the exchanges of an operation on three dims; said: of operands and result."""
    with DirectDefinition() as fd:
        count = len(said) - 1
        shape = [ranks * 2] * (2 if op == "matmul" else 3)
        tvs = [fd.define_tensor(shape, contiguity=True) for _ in range(count)]
        tvs.append(getattr(fd.ops, op)(*tvs, **more))
        fd.add_output(tvs[-1])
        for tv, at in zip(tvs, said, strict=True):
            tv.set_device_mesh(mesh_of(ranks))
            if at is not None:
                tv.outer_split(at, ranks)
                tv.axis(at).parallelize(X)
    return exchanges_of(partition(fd.graph()))


@pytest.mark.parametrize(
    ("name", "ranks", "op", "said", "exchanges"),
    [
        ("Set_SameMesh_NoParallelTypes", 2, "set", (None, None), []),
        ("Set_DifferentParallelTypes", 3, "set", (None, 0), ["rank_slice"]),
        ("Set_SameMesh_SameParallelType", 3, "set", (0, 0), []),
        ("Sum_SameMesh_NoParallelTypes", 3, "sum", (None, None), []),
        ("Sum_ParallelizeDifferentAxes", 3, "sum", (0, 2), ["reduce_scatter"]),
        ("Sum_AllReduce", 3, "sum", (0, None), ["all_reduce"]),
        ("Add_SameMesh_NoParallelTypes", 2, "add", (None, None, None), []),
        ("Add_OnlyOutputParallelized", 2, "add", (None, None, 0), ["rank_slice", "rank_slice"]),
        ("Add_OnlyInputsParallelized", 2, "add", (0, 0, None), ["all_gather"]),
        ("Add_SameMesh_SameParallelTypes", 2, "add", (0, 0, 0), []),
        ("Add_InputsParallelizedDifferently", 3, "add", (0, None, 0), ["rank_slice"]),
        ("Matmul_NoResharding", 2, "matmul", (0, None, 0), []),
        ("Matmul_Resharding", 2, "matmul", (0, 1, 0), ["all_gather"]),
        ("Allgather", 2, "set", (0, None), ["all_gather"]),
    ],
)
def test_resharding(
    name: str, ranks: int, op: str, said: tuple[int | None, ...], exchanges: list[str]
) -> None:
    """A rank's own part of what it holds whole is no exchange, but nvFuser calls it resharding."""
    more = {"dims": [0]} if op == "sum" else {}
    assert resharding(ranks, op, *said, **more) == exchanges, name


@pytest.mark.parametrize(
    ("name", "op", "before", "after"),
    [
        ("Set_DifferentMeshes", "set", [0, 1], [0, 2]),
        ("Sum_DifferentMeshes", "sum", [0, 1], [0, 1, 2]),
        ("Add_DifferentMeshes", "add", [0, 1], [0, 1, 2]),
    ],
)
def test_resharding_between_meshes(name: str, op: str, before: list[int], after: list[int]) -> None:
    with DirectDefinition() as fd:
        count = 2 if op == "add" else 1
        tvs = [fd.define_tensor([4, 4, 4], contiguity=True) for _ in range(count)]
        out = getattr(fd.ops, op)(*tvs, *([[0]] if op == "sum" else []))
        fd.add_output(out)
        for tv in tvs:
            tv.set_device_mesh(DeviceMesh(before))
        out.set_device_mesh(DeviceMesh(after))
    graph = fd.graph()
    local = agree(graph)
    assert set(exchanges_of(local)) == {"broadcast_rank"}, name
    assert read_text(to_text(graph)) == graph
