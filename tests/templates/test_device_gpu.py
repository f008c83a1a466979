"""The device headers on a GPU, against NumPy. Without one, only that the kernels build."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from paths import TESTS

from fusec.run.binary.headers import headers_for
from fusec.run.binary.nvrtc import compile_cuda

FOLDER = TESTS / "device" / "gpu"
NUMPY_TYPES = {
    "double": np.float64,
    "float": np.float32,
    "fusec::f16": np.float16,
    "fusec::bf16": ml_dtypes.bfloat16,
    "fusec::f8e4m3": ml_dtypes.float8_e4m3fn,
    "fusec::f8e5m2": ml_dtypes.float8_e5m2,
    "fusec::i64": np.int64,
    "fusec::i32": np.int32,
    "fusec::i16": np.int16,
    "fusec::i8": np.int8,
    "fusec::u64": np.uint64,
    "fusec::u32": np.uint32,
    "fusec::u16": np.uint16,
    "fusec::u8": np.uint8,
    "bool": np.bool_,
}
SMALL = ["fusec::f16", "fusec::bf16", "fusec::f8e4m3", "fusec::f8e5m2"]
LARGEST = {"fusec::f8e4m3": 448.0}
Grid = tuple[int, int]


def build(name: str, arch: str, **defines: object) -> bytes:
    text = (FOLDER / f"{name}.cu").read_text()
    options = tuple(f"-D{key}={value}" for key, value in defines.items())
    built = compile_cuda(text, name=name, arch=arch, headers=headers_for(text), options=options)
    assert built.warnings == ()
    return built.cubin


class Gpu:
    """Just enough of the driver to run one kernel on NumPy arrays."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        device = self.check(driver.cuDeviceGet(0))
        attribute = driver.CUdevice_attribute
        major = attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        minor = attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
        self.capability = 10 * self.check(driver.cuDeviceGetAttribute(major, device)) + self.check(
            driver.cuDeviceGetAttribute(minor, device)
        )
        self.arch = f"sm_{self.capability}" + ("a" if self.capability == 90 else "")
        self.check(driver.cuCtxSetCurrent(self.check(driver.cuDevicePrimaryCtxRetain(device))))

    @staticmethod
    def check(result: tuple[Any, ...]) -> Any:
        assert int(result[0]) == 0, result[0]
        return result[1] if len(result) > 1 else None

    def run(
        self, cubin: bytes, entry: str, blocks: int, threads: Grid, *arguments: Any, times: int = 1
    ) -> None:
        """Launch, and copy every array argument back."""
        driver = self.driver
        module = self.check(driver.cuModuleLoadData(cubin))
        kernel = self.check(driver.cuModuleGetFunction(module, entry.encode()))
        values: list[Any] = []
        types: list[Any] = []
        arrays: list[tuple[np.ndarray, Any]] = []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                memory = self.check(driver.cuMemAlloc(argument.nbytes))
                self.check(driver.cuMemcpyHtoD(memory, argument.ctypes.data, argument.nbytes))
                arrays.append((argument, memory))
                values.append(int(memory))
                types.append(ctypes.c_void_p)
            else:
                values.append(argument)
                types.append(ctypes.c_int)
        for _ in range(times):
            self.check(
                driver.cuLaunchKernel(
                    kernel, blocks, 1, 1, *threads, 1, 0, 0, (tuple(values), tuple(types)), 0
                )
            )
        self.check(driver.cuCtxSynchronize())
        for array, memory in arrays:
            self.check(driver.cuMemcpyDtoH(array.ctypes.data, memory, array.nbytes))
            self.check(driver.cuMemFree(memory))
        self.check(driver.cuModuleUnload(module))


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    driver = pytest.importorskip("cuda.bindings.driver")
    try:
        absent = int(driver.cuInit(0)[0]) != 0 or driver.cuDeviceGetCount()[1] == 0
    except RuntimeError:
        absent = True
    if absent:
        pytest.skip("no CUDA GPU")
    return Gpu(driver)


@pytest.fixture
def hopper(gpu: Gpu) -> Gpu:
    if gpu.capability != 90:
        pytest.skip("needs sm_90")
    return gpu


WGMMA = [(n, a, b) for n in (64, 128, 192, 256) for a in (0, 1) for b in (0, 1)]


@pytest.mark.parametrize(
    ("name", "defines"),
    [
        ("convert", {"FROM": "float", "TO": "fusec::f16"}),
        ("reduce", {"ELEMENT": "float", "OPERATOR": "Sum", "THREADS_X": 64, "THREADS_Y": 4}),
        ("moments", {}),
        ("grid", {}),
        ("bulk", {"ELEMENT": "float"}),
        ("mma", {}),
        ("wgmma", {"WIDTH": 256, "TRANSPOSE_A": 1, "TRANSPOSE_B": 1}),
        ("wgmma", {"WIDTH": 64, "TRANSPOSE_A": 0, "TRANSPOSE_B": 0}),
    ],
)
def test_the_kernels_build(name: str, defines: dict[str, object]) -> None:
    assert build(name, "sm_90a", **defines).startswith(b"\x7fELF")


def convert(gpu: Gpu, values: np.ndarray, source: str, target: str) -> np.ndarray:
    out = np.zeros(values.size, NUMPY_TYPES[target])
    values = np.ascontiguousarray(values.astype(NUMPY_TYPES[source]))
    cubin = build("convert", gpu.arch, FROM=source, TO=target)
    gpu.run(cubin, "convert", 512, (256, 1), values, out, values.size)
    return out


@pytest.mark.gpu
@pytest.mark.parametrize("target", SMALL)
@pytest.mark.parametrize("source", ["float", "double"])
def test_rounding_to_small_floats(gpu: Gpu, source: str, target: str) -> None:
    upper = np.arange(1 << 20, dtype=np.uint32) << 12
    values = np.concatenate([upper, upper | 1, upper | 0x800]).view(np.float32)
    out = convert(gpu, values, source, target)
    with np.errstate(all="ignore"):
        clipped = (
            np.clip(values, -LARGEST[target], LARGEST[target]) if target in LARGEST else values
        )
        want = clipped.astype(NUMPY_TYPES[target])
    number = ~np.isnan(values)
    bits = np.dtype(f"u{want.itemsize}")
    np.testing.assert_array_equal(out.view(bits)[number], want.view(bits)[number])
    assert np.isnan(out.astype(np.float32)[~number]).all()


@pytest.mark.gpu
def test_doubles_round_once(gpu: Gpu) -> None:
    """A double just above a tie of the small type, by less than float resolves, rounds up."""
    above_tie = np.array([1 + 2**-8 + 2**-40, -(1 + 2**-8 + 2**-40), 1 + 2**-8, 1 + 3 * 2**-8])
    out = convert(gpu, above_tie, "double", "fusec::bf16").astype(np.float64)
    np.testing.assert_array_equal(out, [1 + 2**-7, -(1 + 2**-7), 1.0, 1 + 2**-6])
    above_tie = np.array([1 + 2**-11 + 2**-40, 1 + 2**-11])
    out = convert(gpu, above_tie, "double", "fusec::f16").astype(np.float64)
    np.testing.assert_array_equal(out, [1 + 2**-10, 1.0])


@pytest.mark.gpu
@pytest.mark.parametrize("source", SMALL)
def test_widening_small_floats(gpu: Gpu, source: str) -> None:
    dtype = np.dtype(NUMPY_TYPES[source])
    every = np.arange(1 << (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}").view(dtype)
    np.testing.assert_array_equal(
        convert(gpu, every, source, "float"), every.astype(np.float32), strict=True
    )


@pytest.mark.gpu
@pytest.mark.parametrize("source", ["float", "double", "fusec::bf16"])
def test_floats_to_integers(gpu: Gpu, source: str) -> None:
    values = np.array([0.0, -0.0, 0.5, 1.0, 1.99, 2.0, 100.0, 127.0]).astype(NUMPY_TYPES[source])
    signed = np.concatenate([values, -values])
    for target in NUMPY_TYPES:
        dtype = np.dtype(NUMPY_TYPES[target])
        if dtype.kind not in "iub":
            continue
        data = values if dtype.kind == "u" else signed
        wide = data.astype(np.float64)
        want = wide != 0 if dtype.kind == "b" else np.trunc(wide).astype(dtype)
        np.testing.assert_array_equal(convert(gpu, data, source, target), want, err_msg=target)


@pytest.mark.gpu
@pytest.mark.parametrize("source", ["fusec::i64", "fusec::i8", "fusec::u32", "bool"])
def test_integers_to_everything(gpu: Gpu, source: str) -> None:
    info = (0, 1) if source == "bool" else (-5, 100) if source[7] == "i" else (0, 100)
    data = np.arange(*info).astype(NUMPY_TYPES[source])
    for target, dtype in NUMPY_TYPES.items():
        want = data.astype(np.float32).astype(dtype) if target in SMALL else data.astype(dtype)
        np.testing.assert_array_equal(convert(gpu, data, source, target), want, err_msg=target)


SHAPES = [(4, 64), (8, 16), (32, 8), (64, 4), (256, 1), (1024, 1)]
OPERATORS = {"Sum": np.add, "Max": np.maximum, "Min": np.minimum, "Prod": np.multiply}


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("operator", "dtype"),
    [("Sum", "float"), ("Sum", "fusec::i64"), ("Max", "float"), ("Min", "double"), ("Prod", "int")],
)
def test_block_reductions(gpu: Gpu, shape: Grid, operator: str, dtype: str) -> None:
    threads_x, threads_y = shape
    numpy_type = NUMPY_TYPES.get(dtype, np.int32)
    generator = np.random.default_rng(8)
    values = generator.integers(-50, 50, (3, threads_y, threads_x)).astype(numpy_type)
    if operator in ("Max", "Min"):
        values[1, 0, threads_x // 2] = np.nan
    cubin = build(
        "reduce",
        gpu.arch,
        ELEMENT=dtype,
        OPERATOR=operator,
        THREADS_X=threads_x,
        THREADS_Y=threads_y,
    )
    for entry, axis in (("rows", 2), ("columns", 1)):
        out = np.zeros_like(values)
        gpu.run(cubin, entry, 1, shape, values, out)
        want = OPERATORS[operator].reduce(values, axis=axis, keepdims=True).astype(values.dtype)
        np.testing.assert_array_equal(out, np.broadcast_to(want, out.shape))


@pytest.mark.gpu
def test_moments(gpu: Gpu) -> None:
    values = np.random.default_rng(9).normal(1000, 1, (40, 5000)).astype(np.float32)
    out = np.zeros((40, 2), np.float32)
    gpu.run(build("moments", gpu.arch), "moments", 40, (256, 1), values, out, 5000)
    wide = values.astype(np.float64)
    np.testing.assert_allclose(out[:, 0], wide.mean(1), rtol=1e-6)
    np.testing.assert_allclose(out[:, 1], wide.var(1), rtol=1e-4)


@pytest.mark.gpu
def test_turns_come_in_order_and_the_last_block_sees_all(gpu: Gpu) -> None:
    blocks, threads, times = 300, 64, 3
    counters = np.zeros(3, np.uint32)
    trace = np.zeros(1 + blocks * times, np.uint32)
    parts = np.zeros(blocks * threads, np.uint32)
    total = np.zeros(1, np.uint32)
    cubin = build("grid", gpu.arch)
    gpu.run(cubin, "turns", blocks, (threads, 1), counters, trace, parts, total, times=times)
    np.testing.assert_array_equal(counters, 0)
    np.testing.assert_array_equal(trace[1:], np.tile(np.arange(blocks), times))
    count = blocks * threads
    assert total[0] == times * count * (count + 1) // 2 % 2**32


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float", "fusec::i32", "fusec::bf16"])
def test_bulk_copies_and_reductions(hopper: Gpu, dtype: str) -> None:
    numpy_type = NUMPY_TYPES[dtype]
    source = (np.arange(1024) % 3).astype(numpy_type)
    target = np.ones(1024).astype(numpy_type)
    copy = np.zeros(1024).astype(numpy_type)
    hopper.run(
        build("bulk", hopper.arch, ELEMENT=dtype), "bulk", 100, (64, 1), source, target, copy
    )
    tile = source.astype(np.float64)
    tile[:8] = tile[8:16]
    np.testing.assert_array_equal(copy.astype(np.float64), tile)
    np.testing.assert_array_equal(target.astype(np.float64), 1 + 100 * tile)


@pytest.mark.gpu
def test_mma(gpu: Gpu) -> None:
    generator = np.random.default_rng(10)
    a = generator.integers(-8, 8, (16, 16)).astype(ml_dtypes.bfloat16)
    b = generator.integers(-8, 8, (8, 16)).astype(ml_dtypes.bfloat16)
    out = np.zeros((16, 8), np.float32)
    gpu.run(build("mma", gpu.arch), "multiply", 1, (32, 1), a, b, out, 13)
    want = a.astype(np.float32) @ b.astype(np.float32).T
    want[13:] = 0
    np.testing.assert_array_equal(out, want)


@pytest.mark.gpu
@pytest.mark.parametrize(("width", "transpose_a", "transpose_b"), WGMMA)
def test_wgmma(hopper: Gpu, width: int, transpose_a: int, transpose_b: int) -> None:
    generator = np.random.default_rng(11)
    a = generator.integers(-8, 8, (64, 64)).astype(ml_dtypes.bfloat16)
    b = generator.integers(-8, 8, (width, 64)).astype(ml_dtypes.bfloat16)
    out = np.zeros((64, width), np.float32)
    defines = {"WIDTH": width, "TRANSPOSE_A": transpose_a, "TRANSPOSE_B": transpose_b}
    hopper.run(build("wgmma", hopper.arch, **defines), "multiply", 1, (128, 1), a, b, out)
    np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32).T)
