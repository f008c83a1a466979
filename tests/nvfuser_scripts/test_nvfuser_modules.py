"""`nvfuser` and `nvfuser_direct` as their clients use them: names, texts, caches, errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from paths import ROOT

import fusec.nvfuser
from fusec.diagnostics import FusecError, Unsupported
from fusec.nvfuser.caches import FusionCache, LRUCache, LruFusionCache
from fusec.nvfuser.definition import DirectDefinition, FusionDefinition
from fusec.nvfuser.descriptors import compute_contiguity, compute_tensor_descriptor
from fusec.nvfuser.modules import make_modules
from fusec.nvfuser.repro import clone
from fusec.nvfuser.script import load_script
from fusec.nvfuser.versions import Version, version
from fusec.parse.dsl import DataType
from fusec.parse.dsl.inputs import Actual, adopt
from fusec.run.arrays import StridedArray
from fusec.run.inputs import bind_sizes

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")


@pytest.fixture
def modules() -> Iterator[dict[str, Any]]:
    made: dict[str, Any] = make_modules()
    sys.modules.update(made)
    FusionCache.reset()
    yield made
    for name in made:
        del sys.modules[name]


def define(fd: Any, sizes: list[int] | None = None) -> None:
    x = fd.define_tensor(shape=sizes or [-1, -1], contiguity=[True, True], dtype=DataType.Float)
    s = fd.define_scalar(DataType.Double)
    half = fd.define_scalar(0.1)
    mean = fd.ops.broadcast_in_dim(fd.ops.mean(x, [1]), x.shape(), [0])
    first, second = fd.ops.var_mean(x, [0], 0)
    wide = fd.ops.where(x > mean, x, fd.ops.neg(x)) * s + half
    fd.add_output(fd.ops.cast(wide, DataType.Half))
    fd.add_output(fd.ops.cat([first, second], 0))


def inputs() -> list[Any]:
    return [np.arange(12, dtype=np.float32).reshape(3, 4), 2.0]


@pytest.mark.parametrize("kind", [FusionDefinition, DirectDefinition])
def test_the_text_of_a_definition_defines_it_again(kind) -> None:
    with kind() as fd:
        define(fd)
    names: dict[str, Any] = {"FusionDefinition": kind, "DataType": DataType}
    exec(repr(fd), names)
    with kind() as again:
        names[fd.definition_name](again)
    assert again.fusion == fd.fusion
    for one, other in zip(fd.execute(inputs()), again.execute(inputs()), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_texts_are_nvfusers() -> None:
    FusionCache.reset()
    with FusionDefinition() as first:
        x = first.define_tensor(shape=[-1, 4], contiguity=True)
        first.add_output(first.ops.mul(first.ops.sum(x, [1]), first.define_scalar(3.0)))
    assert repr(first) == (
        "\ndef nvfuser_fusion_id0(fd : FusionDefinition) -> None :\n"
        "    T0 = fd.define_tensor(shape=[-1, 4], contiguity=[True, True], dtype=DataType.Float,"
        " is_cpu=False)\n"
        "    T1 = fd.ops.sum(T0, dims=[1])\n"
        "    T3 = fd.ops.mul(T1, 3.00000)\n"
        "    fd.add_output(T3)\n\n"
    )
    with DirectDefinition() as second:
        second.define_tensor(shape=[1], dtype=DataType.Bool)
        second.define_scalar(1, DataType.Int32)
    assert repr(second) == (
        "def nvfuser_fusion(fd : FusionDefinition) -> None :\n"
        "    tv0 = fd.define_tensor(shape=[1], contiguity=[False], dtype=DataType.Bool,"
        " is_cpu=False)\n"
        "    c1 = fd.define_scalar(1, dtype=DataType.Int32)\n"
    )


def test_constants_and_numbers_read_the_same() -> None:
    texts: list[str] = []
    for constant in (False, True):
        with DirectDefinition() as fd:
            given = [fd.define_scalar(v) if constant else v for v in (5, 0, 1)]
            fd.add_output(fd.ops.iota(*given, DataType.Int))
        texts.append(repr(fd))
    assert texts[0] == texts[1]


def test_operations_that_write_into_inputs_are_printed_once() -> None:
    with DirectDefinition() as fd:
        x = fd.define_tensor(shape=[4, 3, 5])
        mean, var = (fd.define_tensor(shape=[3]) for _ in range(2))
        fd.add_output(fd.ops.batch_norm(x, None, None, mean, var, 0.1, 1e-5)[0])
    assert repr(fd).count("add_output") == 1
    names: dict[str, Any] = {"FusionDefinition": DirectDefinition, "DataType": DataType}
    exec(repr(fd), names)
    with DirectDefinition() as again:
        names["nvfuser_fusion"](again)
    assert len(again.graph().outputs) == 3


def test_install_makes_the_modules_resolve_anywhere() -> None:
    code = """
import importlib.util, fusec.nvfuser
assert importlib.util.find_spec("nvfuser_direct") is None
fusec.nvfuser.install()
fusec.nvfuser.install()
import nvfuser, nvfuser_direct as direct
from nvfuser import FusionCache, FusionDefinition, DataType, Tensor, clone, compute_contiguity
from nvfuser.pytorch_utils import torch_dtype_to_nvfuser_dtype, retry_on_oom_or_skip_test
from nvfuser.nvfuser_version import Version
from nvfuser_direct import LRUCache, LruFusionCache, PythonProfiler, TensorView
from nvfuser_direct import multidevice, ParallelType, execute_with_dtensors
from nvfuser_direct.benchmark_utils import CuptiTimer, FusionProfileTimer
from nvfuser_direct.nvfuser_direct_version import Version
import nvfuser.contrib.nn.normalization
assert importlib.util.find_spec("nvfuser_direct") is not None
assert torch_dtype_to_nvfuser_dtype(float) is DataType.Double
assert "torch" not in __import__("sys").modules
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_install_does_not_replace_nvfuser_itself(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "nvfuser", type(sys)("nvfuser"))
    with pytest.raises(FusecError, match="already imported"):
        fusec.nvfuser.install()


def test_missing_names_are_attribute_and_import_errors(modules) -> None:
    direct = modules["nvfuser_direct"]
    assert not hasattr(direct, "FusionDefinitio")
    assert not hasattr(direct.FusionDefinition(), "multidevice_schedule")
    assert not hasattr(direct.FusionDefinition().ops, "addd")
    with pytest.raises(ImportError, match="did you mean `FusionDefinition`"):
        exec("from nvfuser_direct import FusionDefinitio")
    with pytest.raises(ImportError, match="scheduling"):
        exec("from nvfuser_direct import inline_most")


def test_what_can_be_imported_and_not_used_is_refused_by_name(modules) -> None:
    direct = modules["nvfuser_direct"]
    assert repr(direct.SchedulerType.matmul) == "nvfuser_direct.SchedulerType.matmul"
    with pytest.raises(Unsupported, match="manual scheduling"):
        direct.KernelExecutor()


def test_errors_of_definitions_are_runtime_errors() -> None:
    with pytest.raises(RuntimeError, match="broadcast"), DirectDefinition() as fd:
        fd.ops.add(fd.define_tensor(shape=[3]), fd.define_tensor(shape=[4]))
    with pytest.raises(NotImplementedError, match="Fusion does not exist!"):
        DirectDefinition().execute([])
    with DirectDefinition() as empty:
        pass
    with pytest.raises(NotImplementedError, match="Fusion is empty!"):
        empty.execute([])


def test_versions_compare_by_numbers() -> None:
    assert version() >= "0.2.34"
    assert version() > Version("0.2.9")
    assert Version("0.10.0") > "0.9.0+gitabc"
    assert not Version("1.2") < "1.2"
    assert {Version("1.2")} == {Version("1.2")}


@pytest.mark.parametrize(
    ("sizes", "strides", "contiguity", "order"),
    [
        ((8, 4), (4, 1), [True, True], [1, 0]),
        ((2, 3, 5), (15, 1, 3), [True, True, True], [2, 0, 1]),
        ((2, 1, 3, 1, 4), (24, 4, 8, 4, 2), [True, True, None, None, False], [4, 2, 3, 1, 0]),
        # A stride of 0 holds its place; a dim of 1 goes where its stride says.
        ((2, 2, 1, 2, 4, 2), (2, 32, 1, 8, 0, 4),
         [False, True, True, False, None, None], [2, 5, 0, 4, 1, 3]),
        ((), (), [], []),
    ],
)  # fmt: skip
def test_descriptors_of_tensors(sizes, strides, contiguity, order) -> None:
    assert compute_tensor_descriptor(sizes, strides) == (contiguity, order)


def test_contiguity_in_the_order_of_the_shape() -> None:
    found = compute_contiguity([2, 1, 3, 1, 4, 5], [40, 15, 15, 999, 0, 3])
    assert found == [False, None, True, None, None, False]


def test_equal_definitions_share_an_executor() -> None:
    made: list[DirectDefinition] = []
    cache = LruFusionCache(max_fusions=2)

    @cache
    def create(size: int) -> DirectDefinition:
        with DirectDefinition() as fd:
            define(fd, [size, -1])
        made.append(fd)
        return fd

    assert "The fusion cache is empty." in create.stats()
    one, same = create(3), create(3)
    assert one.fec is same.fec
    assert one.fusion == same.fusion
    one.execute(inputs())
    assert same.fec.is_compiled(inputs())
    assert create(4).fusion != one.fusion
    create(5)
    assert create.num_fusions() == 2
    assert "Cache Lookups: 4\nCache Hits: 1\nHit Rate: 25%" in create.stats()
    assert create(3).fec is not one.fec


def test_the_cache_takes_the_fusion_of_a_definition() -> None:
    cache = LRUCache(max_fusions=4)
    with DirectDefinition() as fd:
        define(fd)
    fd.fec = cache.cache_compile(fd.fusion)
    del fd._fusion
    assert cache.num_fusions() == 1
    assert fd.fusion.inputs() == fd.inputs()
    assert [t.is_tensor() for t in fd.fusion.inputs()] == [True, False]
    assert len(fd.fusion.outputs()) == len(fd.execute(inputs())) == 2


INLINE = """
def nvfuser_fusion_id0(fd : FusionDefinition) -> None :
    T0 = fd.define_tensor(shape=[-1, -1], contiguity=[False, False], dtype=DataType.Float, is_cpu=False)
    S1 = fd.define_scalar(None, dtype=DataType.Int)
    T5 = fd.ops.broadcast_in_dim(T0, shape=[2, 2, S1], broadcast_dims=[0, 1])
    T7 = fd.ops.mul(T5, 2.00000)
    T11 = fd.ops.reshape(T7, new_shape=[4, -1])
    T18 = fd.ops.slice(T11, start_indices=[0, 1], end_indices=[2, 4])
    T19 = fd.ops.permute(T18, dims=[1, 0])
    fd.add_output(T19)

"""  # noqa: E501


def test_constants_that_are_written_in_place_take_numbers() -> None:
    """As lists of sizes do, which nvFuser makes vectors of, and define_scalar's constants."""
    names: dict[str, Any] = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(INLINE, names)
    FusionCache.reset()
    with FusionDefinition() as fd:
        names["nvfuser_fusion_id0"](fd)
    assert repr(fd) == INLINE
    with FusionDefinition() as other:
        x = other.define_tensor(sizes=[4, 3], strides=[3, 1])
        two = other.define_scalar(2.0)
        other.add_output(other.ops.add(x, two))
    assert "T2 = fd.ops.add(T0, 2.00000)" in repr(other)
    assert "stride_order=[1, 0]" in repr(other)


@pytest.mark.parametrize("sizes", [[], [4], [4, 3], [1, 3]])
def test_tensors_that_are_declared_by_strides_are_printed_as_they_are_read(
    sizes: list[int],
) -> None:
    FusionCache.reset()
    with FusionDefinition() as fd:
        x = fd.define_tensor(sizes=sizes, strides=[3, 1][2 - len(sizes) :])
        fd.add_output(fd.ops.neg(x))
    names: dict[str, Any] = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(repr(fd), names)
    with FusionDefinition() as again:
        names[fd.definition_name](again)
    assert repr(again) == repr(fd)
    assert FusionCache.get().num_fusions() == 1


def test_definitions_are_numbered_and_written(tmp_path: Path) -> None:
    FusionCache.reset()
    kinds = [[-1, -1], [3, -1], [-1, -1]]
    made = [FusionDefinition() for _ in kinds]
    for fd, sizes in zip(made, kinds, strict=True):
        assert fd.id() is None
        with fd:
            define(fd, sizes)
    assert [fd.id() for fd in made] == [0, 1, 0]
    path = str(tmp_path / "cache")
    FusionCache.get().serialize(path)
    FusionCache.reset()
    assert FusionCache.get().num_fusions() == 0
    FusionCache.get().deserialize(path)
    assert made[1].id() == 1
    again = FusionDefinition(1)
    assert again.fusion == made[1].fusion
    assert len(again.execute(inputs())) == 2
    with pytest.raises(FusecError, match="number 7"):
        FusionDefinition(7)


def test_a_clone_defines_the_same() -> None:
    with FusionDefinition() as fd:
        define(fd)
    copy = FusionDefinition()
    clone(fd, copy)
    assert copy.segment(inputs()) == []
    for one, other in zip(fd.execute(inputs()), copy.execute(inputs()), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_a_definition_was_compiled_to() -> None:
    with FusionDefinition() as fd:
        define(fd)
    with pytest.raises(RuntimeError, match="never been executed"):
        fd.last_cuda_code()
    fd.execute(inputs())
    assert "__global__" in fd.last_cuda_code()
    assert fd.cuda_code_for(inputs()) == fd.last_cuda_code()
    assert "Segmented" in fd.last_scheduled_fusion_ir()
    other = [np.zeros((5, 6), np.float32), 2.0]
    with pytest.raises(RuntimeError, match="not compiled"):
        fd.cuda_code_for(other)
    assert fd.debug_output() is None
    fd.execute(inputs(), capture_debug_output=True)
    assert fd.debug_output() is not None


def test_options_are_known_by_name() -> None:
    with DirectDefinition() as fd:
        define(fd)
    fd.execute(inputs(), _enable_options=["fuse_matmul"], _disable_options=["matmul_expr_eval"])
    with pytest.raises(RuntimeError, match="did you mean `fuse_matmul`"):
        fd.execute(inputs(), _enable_options=["fuse_matmull"])
    with pytest.raises(TypeError):
        fd.execute(inputs(), fast=True)  # pyright: ignore[reportCallIssue]
    with pytest.warns(UserWarning, match="profile"):
        fd.execute(inputs(), profile=True)
    with pytest.raises(RuntimeError, match="`cpu` is not a GPU"):
        fd.execute(inputs(), device="cpu")


def test_repro_scripts(capsys) -> None:
    with DirectDefinition() as fd:
        define(fd)
    with pytest.raises(AssertionError, match="save_repro_inputs"):
        fd.last_repro_script()
    fd.execute([*inputs()], save_repro_inputs=True)
    script = fd.last_repro_script()
    assert script == fd.repro_script_for(inputs())
    assert "from nvfuser_direct import FusionDefinition, DataType\ndef nvfuser_fusion(" in script
    fd.execute(inputs(), print_repro=True)
    assert capsys.readouterr().out.strip() == script.strip()


@needs_torch
def test_results_are_tensors_of_the_inputs_rank_and_strides(modules) -> None:
    import torch  # pyright: ignore[reportMissingImports]

    with DirectDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1, -1])
        fd.add_output(fd.ops.sum(x))
        fd.add_output(fd.ops.neg(x), stride_order=[2, 0, 1])
        fd.add_output(fd.ops.neg(x), x)
    x = torch.randn(2, 3, 4)
    was = x.clone()
    total, turned = fd.execute([x])
    assert total.shape == ()
    assert turned.stride() == (12, 1, 3)
    torch.testing.assert_close(turned, -was)
    torch.testing.assert_close(x, -was)


@needs_torch
def test_a_fusion_without_tensors_returns_tensors() -> None:
    import torch  # pyright: ignore[reportMissingImports]

    with DirectDefinition() as fd:
        fd.add_output(fd.ops.iota(5, 1, 2, DataType.Int))
    (found,) = fd.execute([])
    assert isinstance(found, torch.Tensor)
    assert found.tolist() == [1, 3, 5, 7, 9]


@needs_torch
@pytest.mark.parametrize("training", [True, False])
def test_instance_norm_and_its_gradients(modules, training) -> None:
    import torch  # pyright: ignore[reportMissingImports]
    from nvfuser.contrib.nn.normalization import (  # pyright: ignore[reportMissingImports]
        InstanceNorm2dNVFuser,
    )

    own = InstanceNorm2dNVFuser(3, affine=True, track_running_stats=True).train(training)
    other = torch.nn.InstanceNorm2d(3, affine=True, track_running_stats=True).train(training)
    torch.manual_seed(1)
    x = torch.randn(2, 3, 5, 7)
    found = []
    for layer in (own, other):
        given = x.clone().requires_grad_()
        layer(given).mul(x.sin()).sum().backward()
        found.append([given.grad, layer.weight.grad, layer.bias.grad, layer.running_var])
    for one, same in zip(*found, strict=True):
        torch.testing.assert_close(one, same, atol=1e-5, rtol=1e-4)


@needs_torch
def test_outputs_that_are_inputs_share_their_memory() -> None:
    import torch  # pyright: ignore[reportMissingImports]

    with DirectDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        y = fd.ops.relu(x)
        for alias in (None, x, None):
            fd.add_output(y, alias)
        fd.add_output(x)
    given = torch.randn(3, 4)
    results = fd.execute([given])
    assert [r.data_ptr() for r in results] == [given.data_ptr()] * 3
    assert given.min() == 0


@pytest.mark.parametrize("norm_type", [None, 1.0])
@pytest.mark.parametrize("shape", [(5,), (2, 3)])
def test_an_embedding_shortens_the_rows_that_it_reads(shape, norm_type) -> None:
    with DirectDefinition() as fd:
        index = fd.define_tensor(shape=[-1] * len(shape), contiguity=True, dtype=DataType.Int)
        weight = fd.define_tensor(shape=[-1, -1], contiguity=True)
        fd.add_output(fd.ops.embedding_fwd(index, weight, None, 0.7, norm_type))
    rng = np.random.default_rng(1)
    table = rng.standard_normal((10, 4)).astype(np.float32)
    where = rng.integers(0, 10, shape)
    norms = np.linalg.norm(table, norm_type or 2, axis=1, keepdims=True)
    short = table * np.minimum(1, 0.7 / norms)
    read = np.isin(np.arange(10), where)[:, None]
    wanted = np.where(read, short, table)
    (found,) = fd.execute([where, table])
    np.testing.assert_allclose(found, wanted[where], rtol=1e-5)
    np.testing.assert_allclose(table, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda ops, x: ops.slice(x, [-1, 0], [2, 2]), "start_indices"),
        (lambda ops, x: ops.slice(x, [2, 0], [1, 2]), "end_indices"),
        (lambda ops, x: ops.slice(x, [0, 0], [2, 2], [2, 1]), "strides"),
        (lambda ops, x: ops.pad(x, [1, 1], 1j), "same dtype"),
        (lambda ops, x: ops.iota(4, 0, 0), "must not equal zero"),
        (lambda ops, x: ops.iota(4, 0.5, 1), "start dtype"),
        (lambda ops, x: ops.iota(4, 0.0, float("inf"), DataType.Float), "finite"),
        (lambda ops, x: ops.cumsum(ops.sum(x), 0), "without dims"),
    ],
)
def test_what_nvfuser_refuses_is_refused(call, said) -> None:
    with DirectDefinition() as fd:
        x = fd.define_tensor(shape=[3, 4], contiguity=True)
        with pytest.raises(RuntimeError, match=said):
            call(fd.ops, x)


def test_arguments_of_wrong_types_are_type_errors() -> None:
    with DirectDefinition() as fd:
        with pytest.raises(TypeError):
            fd.define_tensor(shape=[10.0], contiguity=[True])
        with pytest.raises(TypeError):
            fd.define_tensor(shape=[2**63], contiguity=[True])
        with pytest.raises(TypeError):
            fd.ops.permute(fd.define_tensor(shape=[3, 4]), [0.0, 1.0])


def test_an_index_of_floats_is_taken_as_integers() -> None:
    with DirectDefinition() as fd:
        x = fd.define_tensor(shape=[3, 4], contiguity=True)
        index = fd.define_tensor(shape=[3, 1], contiguity=True)
        fd.add_output(fd.ops.take_along_axis(x, index, 1))
    given = inputs()[0]
    (found,) = fd.execute([given, np.array([[1], [0], [3]], np.float32)])
    np.testing.assert_array_equal(found, [[1], [4], [11]])


def test_a_top_k_of_a_negative_count_is_refused() -> None:
    with DirectDefinition() as fd:
        x = fd.define_tensor(shape=[3, 4], contiguity=True)
        for result in fd.ops.topk(x, fd.define_scalar(DataType.Int), 1):
            fd.add_output(result)
    with pytest.raises(RuntimeError, match="-5"):
        fd.execute([inputs()[0], -5])


class OnCpu:
    """A 0-dim tensor that says where it lies, as those of PyTorch do."""

    device = SimpleNamespace(type="cpu")
    shape = ()

    def fusec_actual(self) -> Actual:
        return adopt([np.array(2.0, np.float32)])[0]


def test_tensors_in_host_memory_are_declared_so_beside_a_gpu(monkeypatch) -> None:
    number = OnCpu()
    for gpu in (False, True):
        monkeypatch.setattr("fusec.nvfuser.definition.has_gpu", lambda gpu=gpu: gpu)
        with DirectDefinition() as fd:
            fd.add_output(fd.ops.add(fd.from_pytorch(number), 1.0))
        assert fd.graph().inputs[0].on_cpu == gpu
        assert f"is_cpu={gpu}" in repr(fd)


@pytest.mark.parametrize("strides", [(0, 1), (1, 1), (4, 1)])
def test_strides_of_nothing_are_free(strides: tuple[int, int]) -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.relu(fd.define_tensor(shape=[0, 0], contiguity=[True, True])))
    given = StridedArray(np.empty(0, np.float32), (0, 0), strides)
    name = fd.graph().inputs[0].value.name
    assert bind_sizes(fd.graph(), {name: given}) == {}


def test_names_of_refused_enumerations_are_refused(modules: dict[str, Any]) -> None:
    kinds = modules["nvfuser_direct"].SchedulerType
    with pytest.raises(Unsupported, match="scheduling"):
        getattr(kinds, "__entries").values()
    assert not hasattr(kinds, "__len__")


def test_an_output_of_the_host_beside_one_of_the_gpu_is_refused() -> None:
    for both in (True, False):
        with DirectDefinition() as fd:
            scalar = fd.define_tensor(shape=[], dtype=DataType.Float, is_cpu=True)
            x = fd.define_tensor(shape=[-1], dtype=DataType.Float)
            shifted = fd.ops.add(scalar, fd.define_scalar(3.0))
            fd.add_output(fd.ops.mul(x, shifted))
            if both:
                fd.add_output(shifted)
        given = [np.array(2.0, np.float32), np.ones(3, np.float32)]
        if both:
            with pytest.raises(RuntimeError, match="KernelExecutor does not support"):
                fd.execute(given)
        else:
            np.testing.assert_array_equal(fd.execute(given)[0], np.full(3, 5.0))


HALF_FORMATS = """
from nvfuser_direct import FusionDefinition, DataType
with FusionDefinition() as fd:
    x = fd.define_tensor([-1, -1], [True, True], DataType.{dtype})
    i = fd.define_tensor([-1, -1], [True, True], DataType.Int)
    a = fd.ops.add(x, x)
    b = x * 2.0
    c = fd.ops.relu(x)
    d = fd.ops.maximum(x, i)
    e = fd.ops.exp(x)
    f = fd.ops.where(fd.ops.gt(x, 0.0), x, x)
    g = fd.ops.abs(x)
    for t in (a, b, c, d, e, f, g):
        fd.add_output(t)
"""


@pytest.mark.parametrize("dtype", ["Half", "BFloat16", "Float"])
def test_arithmetic_on_halves_gives_floats(dtype: str, tmp_path: Path) -> None:
    """As nvFuser's `computeTypes` has it; operations that only select or round keep the type."""
    path = tmp_path / "halves.py"
    path.write_text(HALF_FORMATS.format(dtype=dtype))
    (fusion,) = load_script(path)
    own = {"Half": "f16", "BFloat16": "bf16", "Float": "f32"}[dtype]
    found = {o.value.name: str(o.value.dtype) for o in fusion.outputs}
    kept = dict.fromkeys("cfg", own)
    assert found == {**dict.fromkeys("abde", "f32"), **kept}
