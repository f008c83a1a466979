"""The helper of calls in C: built here, with a driver and a framework in host memory."""

from __future__ import annotations

import ctypes
import gc
import shutil
import struct
import subprocess
import sys
import weakref
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from called import CallDevice, Framework, GpuArray, aligned, framework, on_gpu
from cuda_on_cpu import tensor_map
from emitted_fusions import FUSIONS
from paths import TESTS
from test_calls import NORM, norm, rows

import fusec
from fusec import FusecError
from fusec.call import fast, helper, issue
from fusec.call import program as program_module
from fusec.call.fast import _code
from fusec.call.frameworks import Torch
from fusec.call.program import Program
from fusec.call.record import Record
from fusec.generator import DRAWS_PER_CALL
from fusec.ir.dtype import BF16
from fusec.reference.evaluate import evaluate

TWO = """
fusion: two
dims:
  B: 300
  H: 96
inputs:
  x: f32[B, H]
ops:
  - y = sum(x, dims=[0])
  - z = mul(x, y)
outputs: [z, y]
"""
ROWS = """
fusion: rows
dims: {B: 64, H: 96}
inputs:
  x: f32[B, H]
ops:
  - s = segment_set(sum(x, dims=[1], keepdim=true))
  - y = segment_set(mul(x, s))
  - z = sum(mul(y, y), dims=[1])
outputs: [z]
"""
STRIDED = """
fusion: strided
dims: {B: 32}
inputs:
  x: {type: 'f32[B]', strides: [2]}
ops:
  - y = add(x, 1.0)
outputs: [y]
"""
IN_PLACE = """
fusion: update
dims:
  B: 32
inputs:
  x: f32[B]
  d: f32[B]
  a: f32 = 2.0
ops:
  - y = add(x, mul(d, a))
outputs:
  - y: {alias: x}
"""
NOISE = """
fusion: noise
dims: {B: 64}
inputs:
  x: f32[B]
  a: f32 = 1.0
ops:
  - y = add(x, mul(rand_like(x), a))
  - z = rand_like(x)
outputs: [y, z]
"""


class Drawn:
    """A generator of PyTorch for a GPU."""

    def __init__(self, seed: int, offset: int) -> None:
        """Begin somewhere."""
        self.seed, self.offset = seed, offset

    def initial_seed(self) -> int:
        """Return the seed."""
        return self.seed

    def get_offset(self) -> int:
        """Return the offset."""
        return self.offset

    def set_offset(self, offset: int) -> None:
        """Move on."""
        self.offset = offset


class TensorView(ctypes.Structure):
    """DLPack's DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device", ctypes.c_int32),
        ("rank", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class Exchange(ctypes.Structure):
    """DLPack's DLPackExchangeAPI."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("older", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p), ("own", ctypes.c_void_p), ("give", ctypes.c_void_p),
        ("view", ctypes.c_void_p), ("stream", ctypes.c_void_p),
    )  # fmt: skip


class Config(ctypes.Structure):
    """The driver's CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared", ctypes.c_uint32),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint32),
    )  # fmt: skip


class Attribute(ctypes.Structure):
    """The driver's CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_uint32), ("pad", ctypes.c_uint32), ("value", ctypes.c_uint32 * 16))


class Quick(Framework, Torch):
    """The framework with DLPack's exchange functions."""

    def __init__(self) -> None:
        """Make the functions."""
        Framework.__init__(self)
        self.types = GpuArray, GpuArray
        self.viewed = 0
        self.drawn = Drawn(99, 12)
        self._view = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(TensorView))(
            self.write_view
        )
        self._stream = ctypes.PYFUNCTYPE(
            ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
        )(self.write_stream)
        pointers = [ctypes.cast(f, ctypes.c_void_p) for f in (self._view, self._stream)]
        self._table = Exchange(1, 1, None, None, None, None, *pointers)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        self.exchange = new(ctypes.addressof(self._table), b"dlpack_exchange_api", None)

    def generator(self, device: int) -> Any:
        """Return the generator of the GPU."""
        assert device == 0
        return self.drawn

    def write_view(self, array: Any, into: Any) -> int:
        """Describe an array."""
        self.viewed += 1
        seen = self.view(array)
        array.kept = [(ctypes.c_int64 * 8)(*v) for v in (seen.shape, seen.strides)]
        shape, strides = (ctypes.addressof(k) for k in array.kept)
        into[0] = TensorView(
            seen.address, 2, seen.device, len(seen.shape), _code(seen.dtype), seen.dtype.bits, 1,
            shape, strides, 0,
        )  # fmt: skip
        return 0

    def write_stream(self, device_type: int, device: int, into: Any) -> int:
        """Return the current stream."""
        into[0] = self.current
        return 0

    def allocation(self, shape: Any, strides: Any, dtype: Any, device: int) -> Any:
        """Return what makes an output."""
        return self.empty, (shape, strides, dtype, device, 0), {}


class HelpedDevice(CallDevice):
    """Kernels are numbers, and the context has a handle."""

    context = 1

    def __init__(self) -> None:
        """Start without launches."""
        super().__init__()
        self.given: list[list[tuple[int, int]]] = []
        self.counts: list[int] = []

    def load(self, cubin: bytes, entry: str) -> int:
        """Return the number of a kernel."""
        return [*self.kernels].index(super().load(cubin, entry)) + 1

    def call(self, function: str, *arguments: Any, what: str = "") -> Any:
        """Launch by number."""
        if function == "cuLaunchKernelEx":
            config, number, *rest = arguments
            self.counts.append(getattr(config, "numAttrs", 0))
            arguments = config, [*self.kernels][number - 1], *rest
        return super().call(function, *arguments, what=what)


Helped = tuple[Callable[..., Program], CallDevice, Quick, Any]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the stand-in for the driver."""
    made = tmp_path_factory.mktemp("driver") / "libfake.so"
    source = TESTS / "device" / "fake_driver.c"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-Wall", "-Werror", str(source), "-o", str(made)], check=True
    )
    return made


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the helper."""
    return helper.built(tmp_path_factory.mktemp("helper"))


@pytest.fixture
def helped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, library: Path, compiled: Path
) -> Helped:
    """Return compile, the device, the framework and the driver, with the helper in use."""
    known = Quick()
    device, _ = framework(monkeypatch, tmp_path, HelpedDevice(), known)
    # From another file it is another library, with variables of its own.
    module = helper.load(Path(shutil.copy(compiled, tmp_path)))
    module.open_driver(str(library))
    driver = ctypes.CDLL(str(library))

    @ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(Config), ctypes.c_void_p, ctypes.c_void_p)
    def launch(config: Any, function: int, parameters: int) -> int:
        shape = (*config[0].grid, *config[0].block)
        held = ctypes.cast(parameters, ctypes.POINTER(ctypes.c_void_p))
        entry = [*device.kernels][function - 1]
        device.asked.append("helper")
        many = ctypes.cast(config[0].attributes, ctypes.POINTER(Attribute))
        device.given.append([(many[k].id, many[k].value[0]) for k in range(config[0].count)])
        device.kernels[entry](held, shape, config[0].shared)
        return 0

    driver.set_launch(launch)
    driver.set_capturing(0)
    driver.set_refused(0)
    driver.set_refused_calls(0)
    device.kept = launch
    monkeypatch.setattr(fast, "helper", lambda: module)
    return lambda text, **o: fusec.compile(text, target="sm_90a", **o), device, known, driver


def test_calls_go_through_the_helper(helped: Helped) -> None:
    """From the second call on; other sizes, and then these again, give what they should."""
    compile, device, _, _ = helped
    program = compile(NORM)
    for number, (b, eps) in enumerate(
        [(4, 1e-5), (4, 1e-5), (4, 3), (4, 0.5), (9, 1.0), (9, 2.0), (4, 1e-5)]
    ):
        x, w = rows(b, 64, number)
        y = program(on_gpu(x), on_gpu(w), eps)
        np.testing.assert_allclose(y.array, norm(x, w, eps), rtol=1e-5)
    assert device.asked.count("helper") == 4
    x, w = rows(4, 64, 7)
    np.testing.assert_allclose(program(on_gpu(x), on_gpu(w)).array, norm(x, w), rtol=1e-5)
    assert device.asked.count("helper") == 5


def test_launches_that_a_profiler_sees_are_not_the_helpers(
    helped: Helped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is prepared while nvtx is loaded is issued by Python, with ranges."""
    compile, device, _, _ = helped
    ranges: list[str] = []
    nvtx: Any = ModuleType("nvtx")
    nvtx.__spec__ = ModuleSpec("nvtx", None)
    nvtx.push_range, nvtx.pop_range = ranges.append, lambda: None
    monkeypatch.setitem(sys.modules, "nvtx", nvtx)
    monkeypatch.setattr(fast, "_InPython", lambda *_: None)  # arrays here are no tensors
    program, (x, w) = compile(NORM), rows(4, 64)
    for _ in range(3):
        np.testing.assert_allclose(program(on_gpu(x), on_gpu(w)).array, norm(x, w), rtol=1e-5)
    assert (device.asked.count("helper"), ranges) == (0, ["s0"] * 3)


def test_a_kernel_may_start_before_the_last_one_has_ended(helped: Helped) -> None:
    """Launched by the helper, not where it becomes a part of a graph."""
    compile, device, _, driver = helped
    program = compile(FUSIONS["overlapped"])
    x = np.random.default_rng(0).standard_normal((40, 96), np.float32)
    centred = x - x.mean(1, keepdims=True)
    for capturing in (0, 0, 1):
        driver.set_capturing(capturing)
        device.capturing = bool(capturing)
        y, c = program(on_gpu(x))
        np.testing.assert_allclose(y.array, centred, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(c.array, (x * centred).sum(0), rtol=1e-3, atol=1e-3)
    assert device.given == [[], [(6, 1)]]
    assert device.counts == [0, 1, 0, 0]  # before the helper knows, and captured


def test_tensor_maps_are_encoded_as_in_python(
    helped: Helped, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile, device, _, _ = helped
    bindings = pytest.importorskip("cuda.bindings.driver")
    monkeypatch.setattr(issue, "encode_tensor_map", lambda _, *map_: tensor_map(*map_))
    monkeypatch.setattr(device, "driver", bindings, raising=False)
    seen: list[tuple[int, ...]] = []

    def kernel(parameters: Any, shape: object, shared: object) -> None:
        seen.append(struct.unpack("Q5i", ctypes.string_at(parameters[0], 28)))

    program = compile(FUSIONS["maps"])
    a, b = (on_gpu(np.zeros(shape, BF16.numpy)) for shape in ((200, 64), (64, 64)))
    program(a, b)
    monkeypatch.setattr(device, "kernels", dict.fromkeys(device.kernels, kernel))
    program(a, b)
    assert seen == [(a.array.ctypes.data, 9, 0, 3, 2, 0)]  # of cuda.h


def test_kernels_share_memory_of_the_stream(helped: Helped) -> None:
    """Two kernels, counters and a temporary; on another stream with memory of its own."""
    compile, _, known, _ = helped
    program = compile(TWO)
    for number in range(6):
        known.current = 7 + number // 3
        x = np.random.default_rng(number).standard_normal((300, 96), np.float32)
        z, y = program(on_gpu(x))
        total = x.astype(np.float64).sum(0)
        np.testing.assert_allclose(y.array, total, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(z.array, x * total, rtol=1e-4, atol=1e-3)


def test_captures_have_memory_of_their_own(helped: Helped) -> None:
    """What kernels share is allocated and freed by a call under capture, past the helper."""
    compile, device, _, driver = helped
    program = compile(ROWS)
    x = np.random.default_rng(0).standard_normal((64, 96), np.float32)
    wanted = ((x * x.astype(np.float64).sum(1, keepdims=True)) ** 2).sum(1)
    for _ in range(2):
        np.testing.assert_allclose(program(on_gpu(x)).array, wanted, rtol=1e-3)
    launched = device.asked.count("helper")
    assert launched == 3
    before = list(device.asked)
    driver.set_capturing(1)
    device.capturing = True
    np.testing.assert_allclose(program(on_gpu(x)).array, wanted, rtol=1e-3)
    asked = device.asked[len(before) :]
    assert "helper" not in asked
    assert asked.count("cuMemAllocAsync") == asked.count("cuMemFreeAsync") > 0


def test_in_place_outputs_are_the_inputs(helped: Helped) -> None:
    """The result is the argument itself; arguments that share its memory are refused."""
    compile, device, _, _ = helped
    program = compile(IN_PLACE)
    for _ in range(3):
        x, d = (np.random.default_rng(k).standard_normal(32, np.float32) for k in (1, 2))
        given = on_gpu(x)
        assert program(given, on_gpu(d)) is given
        np.testing.assert_allclose(given.array, x + 2 * d, rtol=1e-6)
    launches = device.asked.count("helper"), device.asked.count("cuLaunchKernelEx")
    with pytest.raises(FusecError, match="argument `x` is written in place and shares memory"):
        program(given, given)
    assert launches == (device.asked.count("helper"), device.asked.count("cuLaunchKernelEx"))


def test_calls_into_given_arrays_go_through_the_helper(helped: Helped) -> None:
    """The arrays that they bring are the results, also where calls without any stand between."""
    compile, device, _, _ = helped
    program = compile(TWO)
    launched = []
    for number in range(4):
        x = np.random.default_rng(number).standard_normal((300, 96), np.float32)
        total = x.astype(np.float64).sum(0)
        out = on_gpu(np.zeros((300, 96), np.float32)), on_gpu(np.zeros(96, np.float32))
        z, y = program(on_gpu(x), out=out)
        assert (z, y) == out
        np.testing.assert_allclose(y.array, total, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(z.array, x * total, rtol=1e-4, atol=1e-3)
        launched.append(device.asked.count("helper"))
        assert program(on_gpu(x))[0] is not z
    assert launched[0] == 0
    # Of each round one call without arrays goes through the helper from the second one on.
    steps = launched[1] - launched[0]
    assert steps > 0
    assert all(b - a > steps for a, b in pairwise(launched[1:]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: GpuArray(y.array.astype(np.float64)), "out: `y` is f64"),
        (lambda x, y: GpuArray(y.array[:2]), r"out: `y` is f32\[2, 64\]"),
        (lambda x, y: GpuArray(aligned(257, np.float32)[1:].reshape(4, 64)), "multiple of 16"),
        (lambda x, y: x, "`y` shares memory with argument `x`"),
        (lambda x, y: (y, y), "got 2 arrays"),
        (lambda x, y: (), "got 0 arrays"),
        (lambda x, y: "y", "out: `y` is a str"),
    ],
)
def test_wrong_arrays_for_outputs_are_named(helped: Helped, change: Any, message: str) -> None:
    """By calls that went through the helper before; no kernel is launched."""
    compile, device, _, _ = helped
    program = compile(NORM)
    x, w = map(on_gpu, rows(4, 64, 0))
    y = on_gpu(np.zeros((4, 64), np.float32))
    for _ in range(3):
        assert program(x, w, 1e-5, out=y) is y
    launches = device.asked.count("helper"), device.asked.count("cuLaunchKernelEx")
    assert launches[0] == 2
    with pytest.raises(FusecError, match=message):
        program(x, w, 1e-5, out=change(x, y))
    assert launches == (device.asked.count("helper"), device.asked.count("cuLaunchKernelEx"))
    assert program(x, w, out=y) is y  # a scalar is left out: Python does it
    np.testing.assert_allclose(y.array, norm(x.array, w.array), rtol=1e-5)


def test_each_call_draws_other_numbers(helped: Helped) -> None:
    """Those of the generator's seed and offset, as calls without the helper do."""
    compile, device, known, _ = helped
    program = compile(NOISE)
    x = np.random.default_rng(0).standard_normal(64, np.float32)
    for number in range(4):
        offset = known.drawn.offset
        assert offset == 12 + number * DRAWS_PER_CALL
        given = {"x": x, "a": 2.0, "rng_seed": np.uint64(99), "rng_offset": np.uint64(offset)}
        wanted = evaluate(program.fusion, given, {"B": 64})
        y, z = program(on_gpu(x), 2.0)
        np.testing.assert_allclose(y.array, wanted["y"], rtol=1e-5)
        np.testing.assert_array_equal(z.array, wanted["z"].astype(np.float32))
    assert device.asked.count("helper") == 3
    out = on_gpu(np.zeros(64, np.float32)), on_gpu(np.zeros(64, np.float32))
    before = known.drawn.offset
    for _ in range(3):
        assert program(on_gpu(x), 2.0, out=out) == out
    assert device.asked.count("helper") == 5
    assert known.drawn.offset == before + 3 * DRAWS_PER_CALL


def test_a_generator_that_fails_is_an_error(helped: Helped) -> None:
    compile, device, known, driver = helped
    program = compile(NOISE)
    x = on_gpu(np.zeros(64, np.float32))
    program(x)
    known.drawn.seed = property()  # no number
    with pytest.raises(TypeError):
        program(x)
    known.drawn.seed = 7
    driver.set_refused_calls(700)
    device.driver.CUresult = lambda status: status
    with pytest.raises(FusecError, match=r"the GPU reports 700 .*a copy"):
        program(x)
    driver.set_refused_calls(0)
    program(x)
    assert device.asked.count("helper") == 1


def test_draws_under_capture_are_refused(helped: Helped) -> None:
    compile, device, _, driver = helped
    program = compile(NOISE)
    x = on_gpu(np.zeros(64, np.float32))
    for _ in range(2):
        program(x)
    driver.set_capturing(1)
    device.capturing = True
    with pytest.raises(FusecError, match="generates random numbers, and a graph would replay"):
        program(x)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, w: (x, GpuArray(w.array.astype(np.float64))), "`w` is f64"),
        (lambda x, w: (x, GpuArray(w.array, 1)), "`w` is on GPU 1"),
        (lambda x, w: (x, GpuArray(w.array.reshape(1, -1))), r"`w` is f32\[1, 64\]"),
        (lambda x, w: (GpuArray(x.array.T.copy().T), w), "stride"),
        (lambda x, w: (GpuArray(aligned(257, np.float32)[1:].reshape(4, 64)), w), "multiple of 16"),
        (lambda x, w: (x, w, "a"), "`eps` is a scalar"),
        (lambda x, w: (x, w, 1.0, 2.0), "got 4 arguments"),
        (lambda x, w: (x,), "`w` is missing"),
        (lambda x, w: (x, None), "`w` is a NoneType"),
    ],
)
def test_wrong_arguments_are_named(helped: Helped, change: Any, message: str) -> None:
    """Also where the helper looks first: no kernel is launched, and right ones work again."""
    compile, device, _, _ = helped
    program = compile(NORM)
    x, w = rows(4, 64)
    for _ in range(2):
        program(on_gpu(x), on_gpu(w))
    before = list(device.asked)
    with pytest.raises(FusecError, match=message):
        program(*change(on_gpu(x), on_gpu(w)))
    assert [a for a in device.asked[len(before) :] if "aunch" in a or a == "helper"] == []
    np.testing.assert_allclose(program(on_gpu(x), on_gpu(w)).array, norm(x, w), rtol=1e-5)


def test_what_is_only_noted_on_a_tensor_is_asked(helped: Helped) -> None:
    """Strided tensors may be views of imaginary parts, to be negated when they are read."""
    compile, device, _, _ = helped
    program = compile(STRIDED)
    x = aligned(64, np.float32)
    x[...] = np.arange(64)
    for lazy in (False, False, True):
        array = GpuArray(x[::2])
        array.lazy = lazy
        before = device.asked.count("helper")
        np.testing.assert_allclose(program(array).array, x[::2] + 1)
    assert device.asked.count("helper") == before == 1


def test_a_refused_launch_is_an_error(helped: Helped) -> None:
    """The driver's status becomes an error that names the kernel."""
    compile, device, _, driver = helped
    program = compile(NORM)
    x, w = rows(4, 64)
    program(on_gpu(x), on_gpu(w))
    driver.set_refused(700)
    device.driver.CUresult = lambda status: status
    with pytest.raises(FusecError, match=r"the GPU reports 700 .*norm"):
        program(on_gpu(x), on_gpu(w))


@pytest.mark.parametrize("cell", ["generation", "busy"])
def test_what_others_do_meanwhile_is_noticed(helped: Helped, cell: str) -> None:
    """Another thread may have the memory grow, or issue a call, while outputs are allocated."""
    compile, device, known, _ = helped
    program = compile(TWO)
    x = np.random.default_rng(0).standard_normal((300, 96), np.float32)
    for _ in range(2):
        program(on_gpu(x))
    launches = device.asked.count("helper")
    (lane,) = program._lanes.values()

    def meanwhile() -> None:
        getattr(lane.arena, cell).value += 1
        known.meanwhile = lambda: None

    known.meanwhile = meanwhile
    _, y = program(on_gpu(x))
    assert device.asked.count("helper") == launches
    np.testing.assert_allclose(y.array, x.astype(np.float64).sum(0), rtol=1e-4, atol=1e-4)
    program(on_gpu(x))
    assert device.asked.count("helper") > launches


@pytest.mark.usefixtures("quick_collection")
def test_records_that_leave_are_freed(helped: Helped, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many sizes a few are kept; what was made for the others is given back."""
    compile, _, _, _ = helped
    monkeypatch.setattr(program_module, "MOST_SIGNATURES", 2)
    program = compile(NORM)
    seen: list[weakref.ref[Record]] = []
    for b in range(1, 7):
        x, w = rows(b, 64)
        for _ in range(2):
            program(on_gpu(x), on_gpu(w))
        (lane,) = program._lanes.values()
        seen.append(weakref.ref([*lane.records.values()][-1]))
    gc.collect()
    assert [r() is not None for r in seen] == [False] * 4 + [True] * 2


def test_nothing_is_kept_of_calls(helped: Helped) -> None:
    """References to arguments and results are given back."""
    compile, _, _, _ = helped
    program = compile(NORM)
    x, w = (on_gpu(a) for a in rows(4, 64))
    program(x, w)
    counted = sys.getrefcount(x), sys.getrefcount(w)
    results = [program(x, w) for _ in range(50)]
    assert (sys.getrefcount(x), sys.getrefcount(w)) == counted
    known = [weakref.ref(r) for r in results]
    del results
    assert [k() for k in known] == [None] * 50
