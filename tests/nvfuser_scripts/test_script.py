"""Scripts: nvFuser's names, the PyTorch stand-in, recording, and errors of the user's own code."""

from __future__ import annotations

import builtins
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from paths import ROOT, TESTS

from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.graph import Fusion
from fusec.nvfuser.script import load_script, run_script
from fusec.parse import read_file
from fusec.reference.evaluate import evaluate

EXAMPLES = ROOT / "examples"
SEED = TESTS / "seeds" / "2146.script"
needs_no_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is not None, reason="PyTorch is installed"
)

HEADER = """\
import torch
from nvfuser import FusionDefinition, DataType

with FusionDefinition() as fd:
    x = fd.define_tensor([-1, -1], [True, True], DataType.Float)
    fd.add_output(fd.ops.exp(x))
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "script.py"
    path.write_text(text)
    return path


def by_reference(fusion: Fusion, actuals):
    """Execute with the reference."""
    assert actuals is not None
    names = [i.value.name for i in fusion.inputs]
    arrays = {n: a.array() for n, a in zip(names, actuals, strict=True)}
    values = evaluate(fusion, arrays, fusion.hints)
    return [values[o.value.name].astype(o.value.dtype.numpy) for o in fusion.outputs]


def error_of(folder: Path, text: str) -> FusecError:
    with pytest.raises(FusecError) as caught:
        run_script(write(folder, text), by_reference)
    return caught.value


@needs_no_torch
def test_a_script_runs_with_the_standin(tmp_path: Path, capsys) -> None:
    text = HEADER + (
        "torch.manual_seed(1)\n"
        "a = torch.randn(3, 5, device='cuda')\n"
        "(y,) = fd.execute([a])\n"
        "torch.testing.assert_close(y, torch.tensor(__import__('numpy').exp(a.cpu().numpy())))\n"
        "assert y.shape == torch.Size([3, 5]) and y.dtype is torch.float32\n"
        "print(tuple(y.shape), y.is_cuda)\n"
    )
    run_script(write(tmp_path, text), by_reference)
    assert capsys.readouterr().out == "(3, 5) True\n"
    assert not {"nvfuser", "nvfuser_direct", "torch"} & sys.modules.keys()


@needs_no_torch
def test_the_standin_says_so_once(tmp_path: Path) -> None:
    text = HEADER + "fd.execute([torch.ones(2, 2)])\n"
    code = (
        "from fusec.nvfuser.script import load_script\n"
        f"path = {str(write(tmp_path, text))!r}\n"
        "load_script(path)\nload_script(path)\n"
    )
    root = ROOT
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "torch is not installed: inputs come from fusec's replacement\n"


@needs_no_torch
def test_the_standin_is_visible_to_the_script_only(tmp_path: Path) -> None:
    text = (
        HEADER + "import sys\nassert 'torch' not in sys.modules\nfd.execute([torch.ones(2, 2)])\n"
    )

    def executor(fusion, actuals):
        with pytest.raises(ImportError):
            import torch  # noqa: F401 # pyright: ignore[reportMissingImports]
        return by_reference(fusion, actuals)

    run_script(write(tmp_path, text), executor)


def test_both_module_names_and_old_ones(tmp_path: Path) -> None:
    text = """
from nvfuser_direct import FusionDefinition as Direct, DataType
import nvfuser
from nvfuser import Fusion
from nvfuser.pytorch_utils import torch_dtype_to_nvfuser_dtype
import numpy as np

assert torch_dtype_to_nvfuser_dtype(np.float32) is DataType.Float
fusion = Fusion()
with nvfuser.FusionDefinition(fusion) as fd:
    t0 = fd.define_tensor(1)
    c = fd.define_constant(3.0)
    fd.add_output(fd.ops.add(t0, c))
(out,) = fusion.execute([np.ones(4, np.float32)])
assert out.tolist() == [4.0] * 4
with Direct() as fd2:
    fd2.add_output(fd2.ops.neg(fd2.define_tensor(shape=[2])))
"""
    seen: list[tuple[str, bool]] = []

    def executor(fusion, actuals):
        seen.append((fusion.nodes[0].op.name, actuals is None))
        return None if actuals is None else by_reference(fusion, actuals)

    run_script(write(tmp_path, text), executor)
    assert seen == [("add", False), ("neg", True)]


@needs_no_torch
def test_recording_ends_where_results_are_used(tmp_path: Path) -> None:
    text = HEADER + (
        "(y,) = fd.execute([torch.ones(4, 7)])\n"
        "print('executed')\n"
        "torch.testing.assert_close(y, torch.ones(4, 7))\n"
        "print('never')\n"
    )
    (fusion,) = load_script(write(tmp_path, text))
    assert sorted(fusion.hints.values()) == [4, 7]
    assert fusion.name == "script"


@needs_no_torch
def test_recording_makes_no_data(tmp_path: Path) -> None:
    text = HEADER + "fd.execute([torch.randn(1 << 20, 1 << 20)])\n"
    (fusion,) = load_script(write(tmp_path, text))
    assert set(fusion.hints.values()) == {1 << 20}


@needs_no_torch
def test_a_fusion_is_loaded_once_with_its_first_sizes(tmp_path: Path) -> None:
    text = HEADER + "fd.execute([torch.ones(4, 7)])\nfd.execute([torch.ones(5, 9)])\n"
    (fusion,) = load_script(write(tmp_path, text))
    assert sorted(fusion.hints.values()) == [4, 7]


def test_sizes_of_an_execution_where_symbols_do_not_suffice(tmp_path: Path) -> None:
    text = """
import numpy as np
from nvfuser import FusionDefinition, DataType
with FusionDefinition() as fd:
    x = fd.define_tensor([-1, -1], [True, True], DataType.Float)
    y = fd.ops.reshape(x, [4, 3, 2])
    z = fd.ops.slice(y, [0, 0, 0], [2, 3, 100])
    assert y.ndim == z.ndim == 3
    fd.add_output(fd.ops.sum(z * 2.0, [2]))
"""
    with pytest.raises(FusecError, match="changes the number of elements") as caught:
        load_script(write(tmp_path, text))
    assert caught.value.diagnostic.help == "pass sizes instead of -1, or inputs: fd.execute(inputs)"
    seen: list[Fusion] = []

    def executor(fusion, actuals):
        seen.append(fusion)
        return by_reference(fusion, actuals)

    execution = (
        "a = np.arange(24, dtype=np.float32)\n"
        "for shape in ((4, 6), (8, 3)):\n"
        "    (r,) = fd.execute([a.reshape(shape)])\n"
        "    assert (r == a.reshape(4, 3, 2)[:2].sum(2) * 2).all()\n"
    )
    run_script(write(tmp_path, text + execution), executor)
    assert [[str(d) for d in f.inputs[0].value.shape] for f in seen] == [["4", "6"], ["8", "3"]]
    wrong = "fd.execute([np.zeros((5, 5), np.float32)])\n"
    error = error_of(tmp_path, text + wrong)
    assert "changes the number of elements" in error.render()
    assert error.diagnostic.span is not None
    assert error.diagnostic.span.line == 6


def test_errors_in_the_script_show_its_own_lines(tmp_path: Path) -> None:
    text = "import json\n\ndef load(text):\n    return json.loads(text)\n\nx = 1\nload('{')\n"
    error = error_of(tmp_path, text)
    assert error.exit_code == 2
    rendered = error.render()
    assert "the script raises JSONDecodeError: Expecting property name" in rendered
    assert "    return json.loads(text)" in rendered
    assert re.search(r"called from .*script\.py:7$", rendered, re.M)
    assert "decoder.py" not in rendered
    assert "Traceback" not in rendered


def test_a_syntax_error_has_its_place(tmp_path: Path) -> None:
    error = error_of(tmp_path, "x = 1\ny = (2,\nz = ]\n")
    span = error.diagnostic.span
    assert span is not None
    assert (span.line, span.column, span.text) == (3, 5, "z = ]")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import sys\nsys.exit(3)\n", "exits with 3"),
        ("raise KeyError('a')\n", "raises KeyError: 'a'"),
        ("", "is empty"),
        ("x\0", "binary"),
    ],
)
def test_scripts_that_do_not_run(tmp_path: Path, text: str, message: str) -> None:
    assert message in str(error_of(tmp_path, text))


def test_a_script_may_exit_quietly(tmp_path: Path) -> None:
    run_script(write(tmp_path, "import sys\nsys.exit()\n"), by_reference)


def test_a_missing_script_and_one_without_a_fusion(tmp_path: Path) -> None:
    with pytest.raises(FusecError, match="no such file"):
        load_script(tmp_path / "none.py")
    with pytest.raises(FusecError, match="defines no fusion"):
        load_script(write(tmp_path, "print()\n"))


@needs_no_torch
def test_what_the_standin_lacks_is_refused(tmp_path: Path) -> None:
    for line, name in (
        ("torch.nn.functional.softmax(1)", "torch.nn.functional.softmax"),
        ("torch.ones(2).softmax(0)", "Tensor.softmax"),
        ("import torch._dynamo", "torch._dynamo"),
        ("torch.cuda.graph()", "torch.cuda.graph"),
    ):
        error = error_of(tmp_path, f"import torch\n{line}\n")
        assert isinstance(error, Unsupported)
        assert f"has no `{name}`" in str(error)
        assert error.diagnostic.span is not None
        assert error.diagnostic.span.line == 2


def test_unsupported_modules_of_nvfuser_are_refused(tmp_path: Path) -> None:
    error = error_of(tmp_path, "from nvfuser_direct import KernelExecutor\nKernelExecutor()\n")
    assert isinstance(error, Unsupported)
    assert error.diagnostic.span is not None
    assert error.diagnostic.span.line == 2
    error = error_of(tmp_path, "from nvfuser import FusionDefinitio\n")
    assert error.diagnostic.help == "did you mean `FusionDefinition`?"


@needs_no_torch
def test_the_standin_makes_views_of_one_memory(tmp_path: Path) -> None:
    text = """
import torch
base = torch.arange(24, dtype=torch.float32)
a = base.as_strided((2, 3), (12, 4), 1)
assert a.tolist() == [[1.0, 5.0, 9.0], [13.0, 17.0, 21.0]]
b = base.view(2, 3, 4).permute(2, 0, 1)
assert b.stride() == (1, 12, 4) and not b.is_contiguous() and b.contiguous().is_contiguous()
assert b.transpose(0, 2).shape == (3, 2, 4)
c = torch.ones(4, 1).expand(4, 5)
assert c.stride() == (1, 0) and c.unsqueeze(0).size(0) == 1
assert c.unsqueeze(0).squeeze(0).t().shape == (5, 4)
e = torch.randn(3, 4, dtype=torch.bfloat16, device="cuda:0")
assert e.dtype is torch.bfloat16 and e.float().dtype == torch.float32
assert (e * 2).dtype is torch.bfloat16 and (1 + e.half()).dtype is torch.float16
assert torch.allclose(e.float() * 2 - e.float(), e.float())
f = torch.randint(0, 5, (100,))
assert f.dtype is torch.int64 and 0 <= min(f.tolist()) and max(f.tolist()) < 5
assert torch.rand_like(c).shape == (4, 5) and torch.zeros(3).tolist() == [0.0] * 3
assert torch.full((2,), 7).dtype is torch.int64 and torch.empty(2, 2).numel() == 4
torch.manual_seed(3); g = torch.randn(4); torch.manual_seed(3); h = torch.randn(4)
assert torch.equal(g, h) and not torch.equal(g, torch.randn(4))
for bad in (lambda: base.as_strided((5, 5), (5, 1)), lambda: base.view(5, 5)):
    try:
        bad()
    except Exception as error:
        assert "beyond a storage" in str(error) or "cannot be viewed" in str(error)
    else:
        raise AssertionError("accepted")
try:
    torch.testing.assert_close(g, h + 1)
except AssertionError as error:
    assert "differ by up to 1" in str(error)
"""
    run_script(write(tmp_path, text), by_reference)


@needs_no_torch
def test_outputs_of_a_half_type_and_in_place(tmp_path: Path) -> None:
    text = """
import torch
from nvfuser import FusionDefinition, DataType
with FusionDefinition() as fd:
    x = fd.define_tensor([-1], [True], DataType.BFloat16)
    y = fd.ops.cast(fd.ops.cast(x, DataType.Float) + 1.0, DataType.BFloat16)
    fd.add_output(y, alias_input=x)
    fd.add_output(fd.ops.cast(fd.ops.neg(y), DataType.BFloat16))
base = torch.zeros(8, dtype=torch.bfloat16)
(n,) = fd.execute([base.as_strided((4,), (1,), 2)])
assert base.tolist() == [0, 0, 1, 1, 1, 1, 0, 0]
assert n.dtype is torch.bfloat16 and n.tolist() == [-1] * 4
"""
    run_script(write(tmp_path, text), by_reference)


def seed_script() -> str:
    return SEED.read_text()


def test_the_script_of_the_seed_is_recorded_unchanged(tmp_path: Path) -> None:
    (fusion,) = load_script(write(tmp_path, seed_script()))
    assert len(fusion.inputs) == 7
    assert len(fusion.outputs) == 5
    assert not fusion.dims
    shapes = [[str(d) for d in i.value.shape] for i in fusion.inputs]
    assert shapes == [
        ["56", "1024", "1024"], ["56", "1024", "1024"], ["56", "1", "1024"],
        ["56", "1024", "1024"], ["56", "1024"], ["56", "1024", "1"], ["56", "1024", "1024"],
    ]  # fmt: skip
    assert [str(s) for s in fusion.inputs[0].strides] == ["0", "0", "1"]
    assert [o.value.name for o in fusion.outputs] == ["T49", "T61", "T63", "T67", "T131"]
    assert fusion == read_file(EXAMPLES / "seed_2146.yaml")


@needs_no_torch
def test_the_inputs_of_the_seed_are_made_as_the_script_says(tmp_path: Path) -> None:
    text = seed_script().replace("58720256", "1024").replace("(1048576, 1024, 1)", "(0, 0, 1)")
    arrays: list[np.ndarray] = []

    def executor(fusion, actuals):
        arrays.extend(a.array() for a in actuals)

    # The large inputs are no longer contiguous, which the declaration says they are.
    error = None
    try:
        run_script(write(tmp_path, text), executor)
    except FusecError as found:
        error = found
    assert error is not None
    assert "the stride of dim 0 of `T3` is 0, it is declared as 1048576" in str(error)
    text = text.replace("contiguity=[True, True, True]", "contiguity=[None, None, True]")
    run_script(write(tmp_path, text), executor)
    assert [a.shape for a in arrays[:3]] == [(56, 1024, 1024), (56, 1024, 1024), (56, 1, 1024)]
    assert arrays[0].strides == (0, 0, 2)
    assert str(arrays[0].dtype) == "bfloat16"
    assert abs(float(arrays[0][0, 0].astype(np.float32).std()) - 1) < 0.1


REPRO = """
import torch
from nvfuser_direct import FusionDefinition, DataType

def nvfuser_fusion(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, 4], [True, True], DataType.BFloat16, stride_order=[0, 1])
    i = fd.define_tensor([3], [True], DataType.Int)
    b = fd.define_tensor([3], [True], DataType.Bool)
    fd.add_output(fd.ops.exp(x))
    fd.add_output(fd.ops.add(i, 1))
    fd.add_output(fd.ops.logical_not(b))

with FusionDefinition() as fd:
    nvfuser_fusion(fd)

inputs = [
    torch.testing.make_tensor((24,), dtype=torch.bfloat16, device='cuda:0').as_strided((6, 4), (1, 6)),
    torch.testing.make_tensor((3,), dtype=torch.int64, device='cuda:0', exclude_zero=True),
    torch.testing.make_tensor((3,), dtype=torch.bool, device='cuda:0', low=0, high=2),
]
"""  # noqa: E501


@needs_no_torch
def test_a_repro_script_of_nvfuser_runs_without_pytorch(tmp_path: Path) -> None:
    outputs = list[np.ndarray]()

    def keep(fusion: Fusion, actuals):
        results = by_reference(fusion, actuals)
        outputs.extend(results)
        return results

    run_script(write(tmp_path, REPRO + "fd.execute(inputs)\n"), keep)
    y, i, b = outputs
    assert y.shape == (6, 4)
    assert np.ptp(np.log(y.astype(np.float64))) > 4  # numbers from [-9, 9)
    assert np.all(np.abs(i - 1) <= 9)
    assert np.all(i != 1)
    assert b.dtype == np.bool_


def test_a_script_ends_where_it_needs_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with a PyTorch that has no CUDA: what was defined before is taken."""

    def make_tensor(*_: object, **options: object) -> None:
        if "cuda" in str(options.get("device")):
            raise AssertionError("Torch not compiled with CUDA enabled")

    torch, testing = ModuleType("torch"), ModuleType("torch.testing")
    vars(testing)["make_tensor"] = make_tensor
    vars(torch).update(testing=testing, bfloat16="bf16", int64="i64", bool="b")
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr("fusec.nvfuser.script._builtins_with_standin", lambda: dict(vars(builtins)))
    path = write(tmp_path, REPRO + "fd.execute(inputs)\n")
    (fusion,) = load_script(path)
    assert len(fusion.outputs) == 3
    assert "is executed up to line 17, which uses results or a GPU" in capsys.readouterr().err
