"""A fusion called through TVM-FFI: loaded by its own Python package, run on the stand-in."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from cli_tools import EXAMPLES, fusec, small
from emitted import (
    FAKE,
    STRICT,
    Called,
    Emitted,
    FakeCuda,
    compile_c,
    compiled,
    compiled_for,
    stand_in,
)
from emitted_fusions import SIZED, SIZES
from emitted_ranks import Late
from emitted_streams import STREAMED
from emulated import emulated
from nightly import mostly_nightly

from fusec import driver
from fusec.emit import emitted as emitted_files
from fusec.parse import read_text
from fusec.run.execute import execute
from fusec.run.inputs import choose_sizes, random_inputs

tvm_ffi = pytest.importorskip("tvm_ffi")
Capture = pytest.CaptureFixture[str]

CALLED = """\
fusion: called
dims: {B: 6, H: 40}
inputs:
  p: f32[B, H]
  g:
    type: bf16[B, H]
    contiguity: [false, true]
  k: i32 = 3
  a: f32 = 0.5
  c: f16 = 0.1
  d: bf16 = 0.1
  e: f8e4m3 = 0.1
  f: f64 = 0.1
  o: bool = true
ops:
  - q = sub(p, mul(g, a))
  - s = sum(q, dims=[1])
  - n = where(o, add(add(cast(c, f32), cast(d, f32)), add(cast(e, f32), cast(f, f32))), 1.0)
  - r = mul(mul(s, cast(k, f32)), n)
outputs:
  - q: {alias: p}
  - r
"""
CODES = {"float32": (2, 32), "bfloat16": (4, 16), "int64": (0, 64), "bool": (6, 8)}


class DLTensor(ctypes.Structure):
    """DLTensor of DLPack."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class OnDevice:
    """A tensor in the stand-in's memory, as frameworks show theirs."""

    kept: ClassVar[list[OnDevice]] = []

    def __init__(
        self,
        address: int,
        kind: str,
        shape: Sequence[int],
        strides: Sequence[int] | None,
        device: int = 2,
    ) -> None:
        """Describe it; device: DLPack's number of CUDA is 2, that of the host 1."""
        many = ctypes.c_int64 * max(1, len(shape))
        self.device, self._shape = device, many(*shape)
        self._strides = None if strides is None else many(*strides)
        code, bits = CODES[kind]
        tensor = DLTensor(address, device, 0, len(shape), code, bits, 1, self._shape)
        if self._strides is not None:
            tensor.strides = self._strides
        self._managed = Managed(tensor)
        OnDevice.kept.append(self)  # what was made of it points at it

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, **_: object) -> Any:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (
            ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
        )  # fmt: skip
        return new(ctypes.addressof(self._managed), b"dltensor", None)


def load(emitted: Emitted, folder: Path) -> Callable[..., None]:
    """Return the function of a library that is built of the emitted files."""
    name = emitted.view.name
    for path, content in emitted_files(emitted.package, ["tvm-ffi"]).items():
        (folder / path).write_bytes(content)
    library = folder / f"lib{name}_tvm_ffi.so"
    found = tvm_ffi.libinfo
    include = ("-isystem", found.find_include_path(), "-isystem", found.find_dlpack_include_path())
    source = folder / f"{name}_tvm_ffi.cc"
    link = (
        emitted.path, f"-L{stand_in().parent}", "-lcuda", f"-Wl,-rpath,{stand_in().parent}",
        f"-Wl,-rpath,{folder}", found.find_libtvm_ffi(),
    )  # fmt: skip
    strict = ("-std=c++17", *STRICT, *include, "-shared")
    compile_c(*strict, source, *link, "-o", library, compiler="g++")
    return getattr(tvm_ffi.load_module(str(library)), name)


class Function:
    """The function and what it is called with."""

    def __init__(self, package: driver.Package, folder: Path, *, number: int = 0) -> None:
        """Build it, and give all tensors memory at the sizes of one of the programs."""
        self.emitted = Emitted(package, folder, number=number)
        fusion = self.emitted.program.original
        self.function = load(self.emitted, folder)
        self.sizes = choose_sizes(fusion)
        self.inputs = random_inputs(fusion, self.sizes)
        self.cuda = FakeCuda(80)
        kind = Late if self.emitted.view.streams else Called
        self.called = kind(self.emitted, self.cuda, self.inputs, folder=folder)
        host = self.emitted.program.host
        names = [i.value.name for i in fusion.inputs]
        names += [n for n in host.outputs if n not in dict(host.aliases)]
        self.arguments = {n: self._argument(n) for n in names}

    def _argument(self, name: str) -> Any:
        buffer = self.emitted.program.host.buffer.get(name)
        return self.inputs[name] if buffer is None else self.tensor(name)

    def tensor(self, name: str, **changed: Any) -> Any:
        """Return a tensor argument, with something about it changed."""
        buffer = self.emitted.program.host.buffer[name]
        shape = [d.evaluate(self.sizes) for d in buffer.shape]
        strides = [d.evaluate(self.sizes) for d in buffer.strides]
        given = {
            "address": self.called.addresses[name], "kind": buffer.dtype.long, "shape": shape,
            "strides": strides, **changed,
        }  # fmt: skip
        return tvm_ffi.from_dlpack(OnDevice(**given))

    def __call__(self, **changed: Any) -> None:
        """Call it on the stand-in's stream."""
        arguments = {**self.arguments, **changed}.values()
        device = tvm_ffi.device("cuda", 0)
        with tvm_ffi.use_raw_stream(device, self.cuda.stream.value):
            self.function(*arguments)
        for failure in self.called.failures:
            raise failure
        assert not self.cuda.complaint, self.cuda.complaint


@pytest.fixture(scope="module")
def function(tmp_path_factory: pytest.TempPathFactory) -> Function:
    package = compiled(read_text(CALLED, "called.yaml"))
    return Function(package, tmp_path_factory.mktemp("called"))


def check_outputs(function: Function, tmp_path: Path) -> None:
    """Compare what a call gives with what fusec's own launcher does."""
    program = function.emitted.program
    device = emulated(program, tmp_path)
    cubins = dict.fromkeys(device.kernels, b"")
    expected = execute(device, program.host, cubins, function.inputs, function.sizes)
    function()
    for output in program.host.outputs:
        assert np.array_equal(function.called.output(output), expected[output]), output


def test_a_function_does_what_fusec_does(function: Function, tmp_path: Path) -> None:
    check_outputs(function, tmp_path)
    assert not np.array_equal(function.called.output("q"), function.inputs["p"].array)


CHANGES: dict[str, tuple[Callable[[Function], dict[str, Any]], type[Exception], str]] = {
    "number": (lambda f: {"k": 2.5}, TypeError, "argument `k` of `called`: expected an integer"),
    "range": (lambda f: {"k": 2**31}, ValueError, "expected an integer for i32, found 2147483648"),
    "kind": (lambda f: {"p": 1}, TypeError, "expected a CUDA tensor f32[B, H], found no tensor"),
    "dtype": (
        lambda f: {"p": f.tensor("p", kind="int64")}, TypeError, "found another element type"
    ),
    "rank": (lambda f: {"p": f.tensor("p", shape=[6], strides=[1])}, ValueError, "found 1 dims"),
    "shape": (lambda f: {"g": f.tensor("g", shape=[6, 41])}, ValueError, "dim 1 is 41 and not 40"),
    "guard": (lambda f: {"p": f.tensor("p", shape=[6, 41])}, ValueError, "`H == 40` does not hold"),
    "strides": (
        lambda f: {"p": f.tensor("p", strides=[48, 1])}, ValueError,
        "the stride of dim 0 is 48 and not 40",
    ),
    "host": (lambda f: {"p": f.tensor("p", device=1)}, ValueError, "found it on another device"),
    "alignment": (
        lambda f: {"p": f.tensor("p", address=f.called.addresses["p"] + 4)}, ValueError,
        "`p` is NULL, or at no multiple of the bytes that it needs",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_wrong_arguments_are_named(function: Function, name: str) -> None:
    changed, kind, text = CHANGES[name]
    launches = function.cuda.count("launches")
    with pytest.raises(kind) as error:
        function(**changed(function))
    assert text in str(error.value)
    assert function.cuda.count("launches") == launches
    function()


def test_arguments_are_counted(function: Function) -> None:
    with pytest.raises(TypeError, match="`called` takes 10 arguments, found 0"):
        function.function()


def test_errors_of_the_driver_have_its_text(function: Function) -> None:
    function.cuda.library.fake_cuda_fail(b"cuCtxPushCurrent_v2", 2)
    try:
        with pytest.raises(RuntimeError, match="`called`: out of memory"):
            function()
    finally:
        function.cuda.library.fake_cuda_fail(b"", 0)
    function()


def test_scratch_memory_stays(function: Function) -> None:
    function()
    blocks = function.cuda.count("blocks")
    function()
    assert function.cuda.count("blocks") == blocks


@pytest.mark.parametrize("number", mostly_nightly([0, 1], 2))
@pytest.mark.nightly
def test_a_function_takes_the_sizes_of_each_build(number: int, tmp_path: Path) -> None:
    package = compiled_for(read_text(SIZED, "run.yaml"), SIZES)
    function = Function(package, tmp_path, number=number)
    check_outputs(function, tmp_path)
    with pytest.raises(ValueError, match="`B == 4096` does not hold"):
        function(x=function.tensor("x", shape=[100, 8]))


@pytest.mark.nightly
def test_streams_stay_with_the_workspace(tmp_path: Path) -> None:
    function = Function(compiled(read_text(STREAMED["round"], "round.yaml")), tmp_path)
    assert function.emitted.view.streams == 4
    check_outputs(function, tmp_path)
    streams = function.cuda.count("streams")
    function()
    assert function.cuda.count("streams") == streams


def test_ranks_are_refused(tmp_path: Path, capsys: Capture) -> None:
    file = small(tmp_path, STREAMED["turned"])
    done = fusec(capsys, "compile", file, "-o", tmp_path / "out", "--emit", "tvm-ffi")
    assert done.code == 3
    assert "4 ranks run it together, and its function takes no communicators" in done.err
    assert "--emit c" in done.err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("inputs: {x: 'f32[B, H]', z: c64}\nops:\n- y = mul(x, real(z))\n", "complex numbers"),
        ("inputs: {x: 'f32[B, H]'}\nops:\n- y = permute(x, [1, 0])\n", "`y` is a view of other"),
        ("inputs: {x: 'f32[B + 2, H]'}\nops:\n- y = exp(x)\n", "`B` is not an extent"),
    ],
)
def test_what_it_cannot_pass_is_refused(
    text: str, reason: str, tmp_path: Path, capsys: Capture
) -> None:
    file = small(tmp_path, f"fusion: small\ndims: {{B: 4, H: 8}}\n{text}outputs: [y]\n")
    done = fusec(capsys, "compile", file, "-o", tmp_path / "out", "--emit", "tvm-ffi")
    assert done.code == 3
    assert reason in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.nightly
def test_the_documented_commands_build_the_library(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("no cmake")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(EXAMPLES)
    docs = (EXAMPLES.parent / "docs" / "c.md").read_text()
    first, rest = re.findall(r"```sh\n(.*?)```", docs, re.DOTALL)[1].split("\n", 1)
    assert fusec(capsys, *first.split()[1:]).code == 0
    where = f"-B build -DCUDA_INCLUDE={FAKE} -DCUDA_DRIVER={stand_in()}"
    command = rest.replace("-B build", where).replace("\\\n", "").replace("\n", " && ")
    command = command.removesuffix(" && ").replace(
        "tvm-ffi-config", f"{sys.executable} -m tvm_ffi.config"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (python,) = re.findall(r"```python\n(.*?)```", docs, re.DOTALL)
    (library,) = re.findall(r'load_module\("(.*?)"\)', python)
    assert tvm_ffi.load_module(library).layernorm
    assert "layernorm(x, w, b, 1e-5, y)" in python
    assert (
        "// layernorm(x, w, b, eps, y)" in Path("layernorm.fusec/layernorm_tvm_ffi.cc").read_text()
    )
