"""`t[...]`, `@` and `.T` of the Python DSL: as in NumPy, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fusec import DataType, FusionDefinition
from fusec.diagnostics import FusecError, Unsupported
from fusec.nvfuser.modules import make_modules
from fusec.parse import read_text
from fusec.reference.evaluate import evaluate

ARRAY = np.arange(5 * 6 * 7, dtype=np.float32).reshape(5, 6, 7)
Use = Callable[[Any], Any]

INDICES: dict[str, Use] = {
    "a slice": lambda x: x[:, 1:4],
    "from the end": lambda x: x[-3:, :-1],
    "steps": lambda x: x[1::2, ..., ::3],
    "beyond the end": lambda x: x[2:100, 4:9],
    "an integer": lambda x: x[1],
    "NumPy's integer": lambda x: x[np.int64(1)],
    "negative": lambda x: x[-1, 1:],
    "all integers": lambda x: x[1, 2, 3],
    "a new dim": lambda x: x[..., None],
    "new dims between": lambda x: x[None, :, None, 2:],
    "everything": lambda x: x[-2, None, ..., 1:-1:2],
    "nothing": lambda x: x[...],
    "twice": lambda x: x[1:][:, 0],
    "in reverse": lambda x: x[::-1, 1:],
    "a list": lambda x: x[:, [0, -1, 2]],
    "a list of one": lambda x: x[[2]],
    "an array after an integer": lambda x: x[0, np.array([0, 3])],
    "rows in order": lambda x: x[range(5), 1],
    "all dims in reverse": lambda x: x.T,
}


@pytest.mark.parametrize("sizes", ["constant", "unknown", "dims"])
@pytest.mark.parametrize("name", INDICES)
def test_indices_mean_what_they_mean_in_numpy(name: str, sizes: str) -> None:
    use = INDICES[name]
    with FusionDefinition() as fd:
        shape: list[Any] = list(ARRAY.shape)
        if sizes == "dims":
            shape = [fd.define_dim(f"D{k}", n) for k, n in enumerate(shape)]
        x = fd.define_tensor([-1] * 3 if sizes == "unknown" else shape, contiguity=True)
        fd.add_output(use(x))
    (found,) = fd.execute([ARRAY])
    np.testing.assert_array_equal(found, use(ARRAY))


INDEX = np.array([[0, 4], [2, 2], [1, 3]])
TAKEN: dict[str, Callable[[Any, Any, Any], Any]] = {
    "one dim": lambda x, i, _: x[i],
    "another dim": lambda x, i, _: x[:, i],
    "after dots": lambda x, i, _: x[..., i],
    "before an integer": lambda x, i, _: x[i, 0],
    "between slices": lambda x, i, _: x[1:, i, None, ::2],
    "two dims": lambda x, _, ij: x[ij],
    "two dims after a new one": lambda x, _, ij: x[None, ij],
    "of a matrix": lambda x, _, ij: x[:, 0][ij],
    "of rows": lambda x, i, _: x[range(3), i],
    "of rows and a column": lambda x, i, ij: x[range(2), 1],
}


@pytest.mark.parametrize("module", ["fusec", "nvfuser"])
def test_a_tensor_of_integers_is_an_index(module: str) -> None:
    kind = FusionDefinition if module == "fusec" else make_modules()["nvfuser"].FusionDefinition
    index = INDEX[:, 1].astype(np.int64)
    for name, use in TAKEN.items():
        with kind() as fd:
            x = fd.define_tensor([5, 6, 7], contiguity=True, dtype=DataType.Float)
            i = fd.define_tensor([len(index)], contiguity=True, dtype=DataType.Int)
            ij = fd.define_tensor([3, 2], contiguity=True, dtype=DataType.Int)
            y = use(x, i, ij)
            fd.add_output(y)
        fusion = fd.graph()
        given = dict(
            zip((entry.value.name for entry in fusion.inputs), (ARRAY, index, INDEX), strict=True)
        )
        (found,) = evaluate(fusion, given, fusion.hints).values()
        np.testing.assert_array_equal(found, use(ARRAY, index, INDEX), name)
        assert found.shape == use(ARRAY, index, INDEX).shape


def test_the_last_step_of_an_index_has_the_name() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([5, 6], contiguity=True)
        y = x[1:, 2]
        fd.add_output(y)
    assert [v.name for v in fd.fusion().values] == ["x", "slice_1", "y"]


def test_sizes_and_scalars_are_indices() -> None:
    """A dim counts as its value; a scalar input is read when the fusion runs."""
    with FusionDefinition() as fd:
        H = fd.define_dim("H", 6)
        x = fd.define_tensor([5, H], contiguity=True)
        k = fd.define_scalar(dtype=DataType.Int)
        fd.add_output(x[:, : H // 2] * (H // 2))
        fd.add_output(x[k, x.size(1) - 1 :])
    first, second = fd.execute([ARRAY[..., 0].copy(), 3])
    np.testing.assert_array_equal(first, ARRAY[:, :3, 0] * 3)
    np.testing.assert_array_equal(second, ARRAY[3, 5:, 0])


def test_products_and_transposes() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([5, 6], contiguity=True)
        w = fd.define_tensor([7, 6], contiguity=True)
        v = fd.define_tensor([6], contiguity=True)
        fd.add_output(x @ w.T)
        fd.add_output(x[None] @ w[None].mT)
        fd.add_output(x @ v.T)
    x, w, v = ARRAY[..., 0].copy(), ARRAY[0].T.copy(), ARRAY[0, :, 0].copy()
    for found, wanted in zip(fd.execute([x, w, v]), (x @ w.T, (x @ w.T)[None], x @ v), strict=True):
        np.testing.assert_allclose(found, wanted)


def test_an_index_is_the_operation_of_a_file() -> None:
    with FusionDefinition("f") as fd:
        H = fd.define_dim("H", 6)
        x = fd.define_tensor([5, H], contiguity=True)
        y = x[1:, : H // 2]
        fd.add_output(y)
    line = "y = slice(x, [1, 0], [5, H // 2])"
    head = "fusion: f\ndims: {H: 6}\ninputs: {x: 'f32[5, H]'}"
    assert fd.fusion() == read_text(f"{head}\nops:\n  - {line}\noutputs: [y]\n")
    inputs = {"x": ARRAY[..., 0]}
    np.testing.assert_array_equal(evaluate(fd.fusion(), inputs, {"H": 6})["y"], ARRAY[1:, :3, 0])


LIST = "indexing with several lists or tensors"
REFUSED: dict[str, tuple[Use, type[FusecError], str, str]] = {
    "two lists": (lambda x: x[[0, 1], [1, 2]], Unsupported, LIST, "index_select"),
    "a mask": (lambda x: x[x > 0], Unsupported, "a mask", "write `fd.ops.where(x > 0, x, 0)`"),
    "floats": (lambda x: x[x], FusecError, "an integer or a mask, got a tensor of f32", ""),
    "a shape": (lambda x: x[x.shape], Unsupported, LIST, "index_select"),
    "a bool": (lambda x: x[True], Unsupported, "indexing with a bool", "t[None]"),
    "backwards": (lambda x: x[2::-1], Unsupported, "a slice with the step -1", "flip(t, dims)"),
    "no step": (lambda x: x[0:2:0], Unsupported, "a slice with the step 0", "positive"),
    "a step of the fusion": (lambda x: x[:: x.size(0)], Unsupported, "with the step", "constants"),
    "too many": (lambda x: x[0, 0, 0], FusecError, "3 indices for a tensor of 2 dims", ""),
    "two ellipses": (lambda x: x[..., ...], FusecError, "more than one `...`", "`:`"),
    "a float": (lambda x: x[1.5], FusecError, "1.5 is not an index", "integer"),
    "a word": (lambda x: x["a":], FusecError, "`start_indices` of `slice` must hold sizes", ""),
    "out of bounds": (lambda x: x[9], FusecError, "index 9 is out of bounds for dim 0", ""),
    "one dim": (lambda x: x[0].mT, FusecError, "`.mT` of a tensor of rank 1", "permute"),
    "an array beside": (lambda x: x + np.ones((2, 3)), FusecError, "`b` of `add`", "an input"),
    "a product of one": (lambda x: np.ones((2, 3)) @ x, FusecError, "`a` of `matmul`", "an input"),
    "a number": (lambda x: x @ 3, FusecError, "`matmul` needs a tensor", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_index_is_refused_by_name(name: str) -> None:
    use, kind, message, help = REFUSED[name]
    fd = FusionDefinition()
    x = fd.define_tensor([2, 3], contiguity=True)
    with pytest.raises(FusecError) as caught:
        use(x)
    error = caught.value.diagnostic
    assert type(caught.value) is kind
    assert message in error.message
    assert help in (error.help or "")
    assert error.span is not None
    assert error.span.file == __file__


def test_elements_are_not_assigned() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([2, 3], contiguity=True)
    with pytest.raises(Unsupported) as caught:
        x[0] = 1
    assert "update_slice" in str(caught.value.diagnostic.help)


def test_tensors_are_not_iterated() -> None:
    """Python would ask for x[0], x[1], ... until an IndexError, which no size promises."""
    fd = FusionDefinition()
    x = fd.define_tensor([2, -1], contiguity=True)
    with pytest.raises(TypeError, match="not iterable"):
        list(x)
