"""Advice on calls that are wrong: of any form of their arguments, and never in the error's way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import verification
from benchmarks.corpus_graph import define
from fusec.diagnostics import FusecError
from fusec.ir.dim import dim
from fusec.ir.dtype import F32, I64
from fusec.ir.graph import Const
from fusec.ops.builder import build
from fusec.ops.builder.build import GraphBuilder
from fusec.parse.dsl import DataType, FusionDefinition

FORMS = [5, [5], (5,), dim(5), [dim(5)], Const(5, I64), [Const(5, I64)]]


@pytest.mark.parametrize("form", FORMS, ids=repr)
def test_a_wrong_reshape_is_named_in_every_form_of_its_shape(form: Any) -> None:
    builder = GraphBuilder()
    x = builder.input("x", F32, [2, 3])
    with pytest.raises(FusecError, match=r"`reshape` to \[5\] changes the number") as caught:
        builder.call("reshape", [x], {"new_shape": form})
    assert caught.value.exit_code == 2
    assert not any("no advice" in note for note in caught.value.diagnostic.notes)


@pytest.mark.parametrize("form", [1, [1], [-1], dim(1), [dim(1)], Const(1, I64), [Const(1, I64)]])
def test_what_is_reduced_is_known_in_every_form_of_its_dims(form: Any) -> None:
    builder = GraphBuilder()
    x = builder.input("x", F32, [2, 3])
    total = builder.apply("sum", x, dims=form)
    with pytest.raises(FusecError) as caught:
        builder.apply("add", x, total)
    assert "keepdim=True)` keeps dim 1" in str(caught.value.diagnostic.help)


def test_a_wrong_reshape_of_a_definition_is_an_error_at_its_call() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[2, 3], contiguity=True, dtype=DataType.Float)
        five = fd.define_scalar(5, DataType.Int)
        with pytest.raises(FusecError, match="changes the number of elements") as caught:
            fd.ops.reshape(x, [five])
        fd.add_output(x)
    assert caught.value.exit_code == 2


def test_advice_that_fails_hides_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> FusecError:
        raise ZeroDivisionError("in advice")

    monkeypatch.setattr(build, "advised_of_sizes", fails)
    builder = GraphBuilder()
    with pytest.raises(FusecError, match="changes the number of elements") as caught:
        builder.call("reshape", [builder.input("x", F32, [2, 3])], {"new_shape": [5]})
    assert any("ZeroDivisionError: in advice" in n for n in caught.value.diagnostic.notes)


GRAPH = {
    "inputs": [
        {"id": "T0", "kind": "tensor", "dtype": "float32", "shape": [2, 3], "is_cpu": False,
         "contiguity": [True, True], "stride_order": None},
    ],
    "scalars": [{"id": "S1", "value": 5, "dtype": "int64"}],
    "ops": [{"op": "reshape", "args": [{"ref": "T0"}], "kwargs": {"new_shape": [{"ref": "S1"}]},
             "outputs": ["T1"]}],
    "outputs": [{"id": "T1"}],
}  # fmt: skip


def test_a_wrong_graph_is_an_error_of_its_operation() -> None:
    with pytest.raises(FusecError, match="changes the number of elements") as caught:
        define(GRAPH, "graph")
    assert "operation 0 of the graph: T1 = reshape(...)" in caught.value.diagnostic.notes


def test_the_benchmark_goes_on_after_a_graph_that_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(row: Any, path: Path, *_: Any) -> None:
        if path.stem == "a":
            raise TypeError("of this graph")

    monkeypatch.setattr(verification, "measure", measure)
    monkeypatch.setattr(verification, "_device", lambda: None)
    for name in "ab":
        (tmp_path / f"{name}.json").write_text("{}")
    assert verification.main([str(tmp_path)]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert "TypeError: of this graph" in first
    assert second.startswith("b: ")
