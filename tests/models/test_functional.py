"""Writes in place become new tensors, also through views; written inputs become outputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exported import Export, Tensor, dtype

from fusec.diagnostics import Unsupported
from fusec.models.read import Imported, imported
from fusec.reference.evaluate import evaluate

F = "f32"
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def read(export: Export, tmp_path: Path) -> Imported:
    (found,) = imported(str(export.save(tmp_path / "a.pt2")))
    return found


def values(found: Imported, **inputs: Any) -> Mapping[str, Any]:
    return {
        n: np.asarray(v)
        for n, v in evaluate(found.fusion, inputs, dict(found.fusion.hints)).items()
    }


def results(found: Imported, **inputs: Any) -> list[Any]:
    made = values(found, **inputs)
    return [made[n] for n in found.model.returned if isinstance(n, str)]


def call(export: Export, name: str, like: Tensor, *shape: int, **arguments: Any) -> Tensor:
    """Add a call with a result of the type of a tensor."""
    target = name if "." in name else f"{name}.default"
    kind = (like.dtype, shape or like.shape)
    return export.node(f"aten.{target}", [kind], self=like, **arguments)


def test_a_write_into_a_new_tensor(tmp_path: Path) -> None:
    export = Export()
    x = export.input("x", F, (3, 4))
    y = call(export, "exp", x)
    written = call(export, "add_.Tensor", y, other=1.0)
    read_again = call(export, "neg", y)
    export.output(written, read_again)
    first, second = results(read(export, tmp_path), x=X / 4)
    assert np.allclose(first, np.exp(X / 4) + 1)
    assert np.allclose(second, -first)


@pytest.mark.parametrize("through", ["slice", "select", "transpose", "view", "unsqueeze"])
def test_a_write_through_a_view_changes_what_it_views(through: str, tmp_path: Path) -> None:
    export = Export()
    x = export.input("x", F, (3, 4))
    base = call(export, "neg", x)
    other = call(export, "permute", base, 4, 3, dims=[1, 0])
    view = {
        "slice": lambda: call(export, "slice.Tensor", base, 3, 2, dim=1, start=1, end=3),
        "select": lambda: call(export, "select.int", base, 4, dim=0, index=1),
        "transpose": lambda: call(export, "transpose.int", base, 4, 3, dim0=0, dim1=1),
        "view": lambda: call(export, "view", base, 12, size=[12]),
        "unsqueeze": lambda: call(export, "unsqueeze", base, 1, 3, 4, dim=0),
    }[through]()
    call(export, "mul_.Tensor", view, other=10.0)
    export.output(call(export, "add.Tensor", base, other=0.5), call(export, "abs", other, 4, 3))
    expected = -X.copy()
    part = {"slice": np.s_[:, 1:3], "select": np.s_[1]}.get(through, np.s_[:])
    expected[part] *= 10
    first, second = results(read(export, tmp_path), x=X)
    assert np.array_equal(first, expected + 0.5)
    assert np.array_equal(second, np.abs(expected).T), "another view is taken again"


def test_a_view_of_a_view(tmp_path: Path) -> None:
    export = Export()
    x = export.input("x", F, (3, 4))
    base = call(export, "clone", x)
    row = call(export, "select.int", base, 4, dim=0, index=2)
    part = call(export, "slice.Tensor", row, 2, dim=0, start=2, end=4)
    call(export, "fill_.Scalar", part, value=7.0)
    export.output(call(export, "sum.dim_IntList", base, 3, dim=[1]))
    (found,) = results(read(export, tmp_path), x=X)
    expected = X.copy()
    expected[2, 2:] = 7
    assert np.array_equal(found, expected.sum(1))


def test_a_written_buffer_is_an_output_into_it(tmp_path: Path) -> None:
    """The outputs of an archive before `run_decompositions` do not name it."""
    export = Export()
    count = export.weight("bn.count", np.ones(4, np.float32), buffer=True)
    x = export.input("x", F, (4,))
    y = call(export, "mul.Tensor", x, other=count)
    call(export, "add_.Tensor", count, other=x)
    export.output(y, call(export, "mul.Tensor", x, other=count))
    found = read(export, tmp_path)
    assert "{alias: bn_count}" in found.text or "{alias: count}" in found.text
    x_value = np.array([1, 2, 3, 4], np.float32)
    ones = np.ones(4, np.float32)
    (name,) = [n for n, e in found.model.inputs if e.kind == "buffer"]
    first, second = results(found, x=x_value, **{name: ones})
    assert np.array_equal(first, x_value)
    assert np.array_equal(second, x_value * (1 + x_value)), "it is read after the write"
    made = values(found, x=x_value, **{name: ones})
    (updated,) = [o for o in found.model.outputs if o in found.model.aliases]
    assert np.array_equal(made[updated], ones + x_value)


def test_a_buffer_that_the_archive_says_is_updated(tmp_path: Path) -> None:
    export = Export()
    count = export.weight("count", np.ones(4, np.float32), buffer=True)
    x = export.input("x", F, (4,))
    more = call(export, "add.Tensor", count, other=x)
    export.updates("count", more)
    export.output(call(export, "neg", x))
    found = read(export, tmp_path)
    assert found.model.aliases == {found.model.outputs[0]: "count"}
    assert len(found.model.returned) == 1


@pytest.mark.parametrize("name", ["expand", "reshape"])
def test_a_write_through_what_may_be_a_copy_is_rejected(name: str, tmp_path: Path) -> None:
    export = Export()
    x = export.input("x", F, (1, 4))
    base = call(export, "neg", x)
    arguments = {"size": [3, 4]} if name == "expand" else {"shape": [4]}
    shape = (3, 4) if name == "expand" else (4,)
    view = call(export, name, base, *shape, **arguments)
    call(export, "add_.Tensor", view, other=1.0)
    export.output(call(export, "abs", base))
    with pytest.raises(Unsupported, match=f"it writes through `{name}_1`") as caught:
        read(export, tmp_path)
    assert "clone" in str(caught.value)


def test_a_copy_in_another_type_keeps_what_it_copied(tmp_path: Path) -> None:
    export = Export()
    x = export.input("x", F, (4,))
    base = call(export, "neg", x)
    wide = export.node("aten.to.dtype", [("f64", (4,))], self=base, dtype=dtype("f64"))
    call(export, "add_.Tensor", base, other=1.0)
    export.output(wide, base)
    first, second = results(read(export, tmp_path), x=X[0])
    assert np.array_equal(first, -X[0])
    assert np.array_equal(second, 1 - X[0])


def test_a_conversion_to_the_type_that_it_has_is_the_operand(tmp_path: Path) -> None:
    export = Export()
    x = export.input("x", F, (4,))
    base = call(export, "neg", x)
    same = call(export, "to.dtype", base, dtype=dtype(F))
    call(export, "add_.Tensor", same, other=1.0)
    export.output(call(export, "mul.Tensor", base, other=2.0), same)
    first, second = results(read(export, tmp_path), x=X[0])
    assert np.array_equal(first, 2 - 2 * X[0])
    assert np.array_equal(second, 1 - X[0])


@pytest.mark.parametrize("name", ["reshape", "contiguous", "flatten.using_ints"])
def test_what_may_be_a_copy_is_not_read_after_a_write(name: str, tmp_path: Path) -> None:
    export = Export()
    x = export.input("x", F, (3, 4))
    base = call(export, "neg", x)
    part = call(export, name, base, 3, 4)
    call(export, "add_.Tensor", base, other=1.0)
    export.output(call(export, "abs", part))
    with pytest.raises(Unsupported, match="it may be a copy or a view") as caught:
        read(export, tmp_path)
    assert "clone" in str(caught.value)


@pytest.mark.parametrize("name", ["swapaxes.default", "mT.default", "unfold.default"])
def test_a_write_through_a_view_without_inverse_is_rejected(name: str, tmp_path: Path) -> None:
    export = Export()
    x = export.input("x", F, (4, 4))
    base = call(export, "neg", x)
    call(export, "mul_.Tensor", call(export, name, base), other=2.0)
    export.output(base)
    with pytest.raises(Unsupported, match="it writes through"):
        read(export, tmp_path)
