"""Launch arguments and the executor, on a device in host memory."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import replace

import numpy as np
import pytest
from fake_device import FakeDevice, argument, array_at

from fusec.diagnostics import EnvironmentProblem, FusecError, InternalError
from fusec.hostir.instructions import Alias, Allocate, Copy, Free, Launch, Memset
from fusec.hostir.program import Buffer, HostProgram, Scalar, dense_strides
from fusec.ir.dim import ceildiv, dim, symbol
from fusec.ir.dtype import BF16, BOOL, F16, F32, F64, I32, I64, U8
from fusec.run.arrays import StridedArray
from fusec.run.device import Device, device_available
from fusec.run.execute import Executable, execute
from fusec.run.launch import (
    Geometry,
    aligned_block,
    geometry,
    launch_config,
    map_codes,
    pack_arguments,
    pack_scalar,
    pack_size,
    tensor_map_operands,
)
from fusec.schedule.plan import (
    Guard,
    ScalarArgument,
    SizeArgument,
    TensorArgument,
    TensorMapArgument,
    WorkspaceArgument,
)

N = symbol("N")
ONE = dim(1)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (1.5, F32, struct.pack("<f", 1.5)),
        (1.5, F64, struct.pack("<d", 1.5)),
        (1.5, F16, np.float16(1.5).tobytes()),
        (1.5, BF16, b"\xc0\x3f"),
        (-2, I64, struct.pack("<q", -2)),
        (-2, I32, struct.pack("<i", -2)),
        (200, U8, b"\xc8"),
        (True, BOOL, b"\x01"),
    ],
)
def test_scalars_are_passed_in_their_own_type(value, dtype, expected: bytes):
    packed = pack_scalar(value, dtype)
    assert ctypes.sizeof(packed) == len(expected)
    assert bytes(packed) == expected


def test_sizes_must_fit():
    assert ctypes.sizeof(pack_size("n", 5, wide=False)) == 4
    assert ctypes.sizeof(pack_size("n", 5, wide=True)) == 8
    with pytest.raises(FusecError, match="`n` is 2147483648, which does not fit 32 bits"):
        pack_size("n", 2**31, wide=False)


def test_arguments_are_packed_in_order():
    arguments = (
        TensorArgument("x", F32),
        WorkspaceArgument("s0.w", F32),
        ScalarArgument("eps", F32),
        SizeArgument("rows", N * 2, wide=True),
    )
    packed = pack_arguments(arguments, {"N": 21}, {"x": 4096, "s0.w": 8192}, {"eps": 0.5}, {})
    assert argument(packed.address, 0, ctypes.c_void_p) == 4096
    assert argument(packed.address, 1, ctypes.c_void_p) == 8192
    assert argument(packed.address, 2, ctypes.c_float) == 0.5
    assert argument(packed.address, 3, ctypes.c_longlong) == 42


def launch(**fields) -> Launch:
    grid = (ceildiv(N, 256), ONE, ONE)
    return replace(Launch("k", "s0", grid, (256, 1, 1), ()), **fields)


def test_geometry_at_sizes():
    assert geometry(launch(), {"N": 257}) == Geometry((2, 1, 1), (256, 1, 1), (1, 1, 1), 0)
    assert geometry(launch(), {"N": 0}).empty
    with pytest.raises(FusecError, match="needs 70000 blocks in y, the limit is 65535"):
        geometry(launch(grid=(ONE, N, ONE)), {"N": 70000})
    with pytest.raises(InternalError, match="3 blocks do not split into clusters of 2"):
        geometry(launch(cluster=(2, 1, 1), grid=(N, ONE, ONE)), {"N": 3})


def test_launch_configurations_of_the_driver():
    driver = pytest.importorskip("cuda.bindings.driver")
    plain = launch_config(driver, Geometry((3, 2, 1), (32, 4, 1), (1, 1, 1), 99), 0)
    assert (plain.gridDimX, plain.gridDimY, plain.blockDimY, plain.sharedMemBytes) == (3, 2, 4, 99)
    assert plain.numAttrs == 0
    cluster = launch_config(driver, Geometry((4, 1, 1), (32, 1, 1), (2, 1, 1), 0), 0)
    assert cluster.numAttrs == 1
    assert cluster.attrs[0].value.clusterDim.x == 2
    both = launch_config(driver, Geometry((4, 1, 1), (32, 1, 1), (2, 1, 1), 0, True), 0)
    assert [int(a.id) for a in both.attrs] == [4, 6]  # as call/helper.c has them
    assert both.attrs[1].value.programmaticStreamSerializationAllowed == 1


def test_tensor_maps_are_checked():
    box = TensorMapArgument("m", "x", BF16, (N, dim(8)), (N * 2,), (64, 8), "128B")
    given = tensor_map_operands(box, 256, {"N": 64})
    assert given == {
        "extents": [64, 8],
        "strides": [128],
        "box": [64, 8],
    }
    driver = pytest.importorskip("cuda.bindings.driver")
    assert map_codes(driver, box) == (9, 0, 3, 2, 0)  # of cuda.h
    other = replace(box, interleave="16B", swizzle="64B", l2_promotion="L2_256B")
    other = replace(other, dtype=I64, oob_fill="NAN_REQUEST_ZERO_FMA")
    assert map_codes(driver, other) == (5, 1, 2, 3, 1)
    rounds = replace(box, dtype=F32, data_type="TFLOAT32")
    assert map_codes(driver, rounds) == (11, 0, 3, 2, 0)
    with pytest.raises(FusecError, match="multiples of 16 bytes"):
        tensor_map_operands(box, 256, {"N": 63})
    with pytest.raises(FusecError, match="multiples of 16 bytes"):
        tensor_map_operands(box, 258, {"N": 64})
    with pytest.raises(InternalError, match="box"):
        tensor_map_operands(replace(box, box=(64, 512)), 256, {"N": 64})


def buffer(name: str, role: str, dtype=F32, shape=(N,), strides=None) -> Buffer:
    return Buffer(name, role, dtype, shape, dense_strides(shape) if strides is None else strides)


def double(pointers: int) -> None:
    """Y = scale * x, as a kernel (x, y, scale, N)."""
    count = argument(pointers, 3, ctypes.c_int)
    x = array_at(argument(pointers, 0, ctypes.c_void_p), count, np.float32)
    y = array_at(argument(pointers, 1, ctypes.c_void_p), count, np.float32)
    y[:] = x * argument(pointers, 2, ctypes.c_float)


def doubling(x: str, y: str) -> Launch:
    arguments = (
        TensorArgument(x, F32),
        TensorArgument(y, F32, True),
        ScalarArgument("scale", F32),
        SizeArgument("N", N),
    )
    return launch(kernel="double", arguments=arguments)


def twice() -> HostProgram:
    return HostProgram(
        "twice",
        (
            buffer("x", "input"),
            buffer("y", "output"),
            buffer("t", "temporary"),
            buffer("u", "temporary"),
        ),
        (Scalar("scale", F32, 2.0),),
        (
            Allocate("y"),
            Allocate("t"),
            doubling("x", "t"),
            Allocate("u"),
            doubling("t", "u"),
            Free("t"),
            doubling("u", "y"),
            Free("u"),
        ),
        ("y",),
        (Guard(N, "<=", 100),),
    )


CUBINS = {"double": b""}


def test_a_program_runs():
    device = FakeDevice({"double": double})
    x = np.arange(5, dtype=np.float32)
    assert execute(device, twice(), CUBINS, {"x": x}, {"N": 5})["y"].tolist() == (8 * x).tolist()
    assert [entry for entry, _ in device.launched] == ["double"] * 3
    assert not device.blocks  # everything was freed
    scaled = execute(device, twice(), CUBINS, {"x": x, "scale": 1.0}, {"N": 5})
    assert scaled["y"].tolist() == x.tolist()


def test_empty_grids_are_not_launched():
    device = FakeDevice({"double": double})
    result = execute(device, twice(), CUBINS, {"x": np.zeros(0, np.float32)}, {"N": 0})
    assert result["y"].shape == (0,)
    assert device.launched == []


def test_guards_and_inputs_are_checked():
    device = FakeDevice({"double": double})
    program = twice()
    with pytest.raises(FusecError, match="`N <= 100` does not hold"):
        execute(device, program, CUBINS, {"x": np.zeros(101, np.float32)}, {"N": 101})
    with pytest.raises(FusecError, match="input `x` is missing"):
        execute(device, program, CUBINS, {}, {"N": 1})
    with pytest.raises(FusecError, match=r"input `x` has shape \[3\], expected \[4\]"):
        execute(device, program, CUBINS, {"x": np.zeros(3, np.float32)}, {"N": 4})
    with pytest.raises(FusecError, match="has dtype float64, declared f32"):
        execute(device, program, CUBINS, {"x": np.zeros(4)}, {"N": 4})
    with pytest.raises(FusecError, match="no machine code is given for kernel `double`"):
        Executable(device, program, {})
    assert not device.blocks


def test_what_no_kernel_writes_is_poison():
    device = FakeDevice({"double": lambda pointers: None})
    y = execute(device, twice(), CUBINS, {"x": np.zeros(4, np.float32)}, {"N": 4})["y"]
    assert y.view(np.uint32).tolist() == [0xFFFFFFFF] * 4


def test_writes_beside_an_output_are_found():
    def beyond(pointers: int) -> None:
        count = argument(pointers, 3, ctypes.c_int)
        array_at(argument(pointers, 1, ctypes.c_void_p), count + 1, np.float32)[:] = 1

    device = FakeDevice({"double": beyond})
    with pytest.raises(InternalError, match="wrote past the end of `y`"):
        execute(device, twice(), CUBINS, {"x": np.zeros(4, np.float32)}, {"N": 4})


def test_strided_inputs_are_uploaded_with_their_layout():
    strides = (symbol("x.stride0"), ONE)
    program = HostProgram(
        "strided",
        (
            buffer("x", "input", shape=(dim(2), N), strides=strides),
            buffer("y", "output", shape=(N * 4,)),
        ),
        (Scalar("scale", F32),),
        (
            Allocate("y"),
            replace(
                doubling("x", "y"),
                arguments=(
                    TensorArgument("x", F32),
                    TensorArgument("y", F32, True),
                    ScalarArgument("scale", F32),
                    SizeArgument("N", N * 4),
                ),
            ),
        ),
        ("y",),
    )
    storage = np.arange(20, dtype=np.float32)
    x = StridedArray(storage, (2, 5), (13, 1), offset=2)
    device = FakeDevice({"double": double})
    y = execute(device, program, CUBINS, {"x": x, "scale": 1.0}, {"N": 5, "x.stride0": 13})["y"]
    assert y[:18].tolist() == storage[2:].tolist()
    with pytest.raises(FusecError, match="scalar input `scale` is missing"):
        execute(device, program, CUBINS, {"x": x}, {"N": 5, "x.stride0": 13})


def test_in_place_outputs_and_reset():
    program = HostProgram(
        "inplace",
        (buffer("x", "input"), buffer("y", "output")),
        (Scalar("scale", F32, 2.0),),
        (Alias("y", "x", dim(0)), doubling("x", "y")),
        ("y",),
        aliases=(("y", "x"),),
    )
    device = FakeDevice({"double": double})
    with Executable(device, program, CUBINS).bind({"x": np.ones(3, np.float32)}, {"N": 3}) as bound:
        bound.run()
        bound.run()
        assert bound.outputs()["y"].tolist() == [4, 4, 4]
        bound.reset()
        bound.run()
        assert bound.outputs()["y"].tolist() == [2, 2, 2]


def test_views_copies_and_memsets():
    def add(pointers: int) -> None:
        """W += 1; y = w."""
        w = array_at(argument(pointers, 0, ctypes.c_void_p), 4, np.float32)
        w += 1
        array_at(argument(pointers, 1, ctypes.c_void_p), 4, np.float32)[:] = w

    def program(once: bool) -> HostProgram:
        arguments = (WorkspaceArgument("w", F32), TensorArgument("y", F32, True))
        four = (dim(4),)
        return HostProgram(
            "workspace",
            (
                buffer("w", "workspace", shape=four),
                buffer("y", "output", shape=four),
                buffer("z", "output", shape=four),
                buffer("v", "output", shape=(dim(2),), strides=(dim(2),)),
            ),
            (),
            (
                Allocate("w"),
                Allocate("y"),
                Allocate("z"),
                Memset("w", once=once),
                launch(kernel="add", grid=(ONE, ONE, ONE), arguments=arguments),
                Copy("z", "y"),
                Alias("v", "y", ONE),
            ),
            ("y", "z", "v"),
        )

    for once, expected in ((True, 2.0), (False, 1.0)):
        device = FakeDevice({"add": add})
        with Executable(device, program(once), {"add": b""}).bind({}, {}) as bound:
            bound.reset()
            bound.run()
            bound.run()
            results = bound.outputs()
        assert results["y"].tolist() == results["z"].tolist() == [expected] * 4
        assert results["v"].tolist() == [expected] * 2


def test_large_shared_memory_and_clusters_are_asked_for():
    device = FakeDevice({})
    big = launch(shared_bytes=100_000, cluster=(16, 1, 1), grid=(dim(16), ONE, ONE))
    Executable(device, HostProgram("p", (), (), (big,), ()), {"k": b""})
    assert device.attributes == [
        {"MAX_DYNAMIC_SHARED_SIZE_BYTES": 100_000, "NON_PORTABLE_CLUSTER_SIZE_ALLOWED": 1}
    ]


def test_without_a_gpu_the_reason_is_given():
    reason = device_available()
    if reason is None:
        pytest.skip("there is a GPU")
    assert "libcuda" in reason or "GPU" in reason or "cuInit" in reason
    with pytest.raises(EnvironmentProblem, match=r"GPU|libcuda|cuInit"):
        Device()


def test_tensor_maps_lie_at_multiples_of_64_bytes():
    blocks = [aligned_block(128, 64) for _ in range(8)]
    assert all(ctypes.addressof(b) % 64 == 0 for b in blocks)
    assert all(ctypes.sizeof(b) == 128 for b in blocks)
