"""Kernel arguments in the driver's form, launch configurations and tensor maps."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError, InternalError, Unsupported
from fusec.schedule.plan import (
    Argument,
    ScalarArgument,
    SizeArgument,
    TensorMapArgument,
)

if TYPE_CHECKING:
    from fusec.hostir.instructions import Launch
    from fusec.ir.dtype import DType

TENSOR_MAP_BYTES = 128
GRID_LIMITS = (2**31 - 1, 65535, 65535)

_PLAIN: Mapping[str, Any] = {
    "f64": ctypes.c_double, "f32": ctypes.c_float, "i64": ctypes.c_int64, "i32": ctypes.c_int32,
    "i16": ctypes.c_int16, "i8": ctypes.c_int8, "u64": ctypes.c_uint64, "u32": ctypes.c_uint32,
    "u16": ctypes.c_uint16, "u8": ctypes.c_uint8, "bool": ctypes.c_bool,
}  # fmt: skip


def pack_scalar(value: Any, dtype: DType) -> Any:
    """Return a number as a ctypes object of the kernel's parameter type."""
    plain = _PLAIN.get(dtype.name)
    if plain is not None:
        converted = (
            np.asarray(value).astype(dtype.numpy).item() if dtype.kind != "bool" else bool(value)
        )
        return plain(converted)
    if not dtype.is_half:
        raise FusecError(f"a scalar of type {dtype} cannot be passed to a kernel")
    bits = np.asarray(value, dtype=np.float64).astype(dtype.numpy).tobytes()
    return (ctypes.c_uint8 if len(bits) == 1 else ctypes.c_uint16).from_buffer_copy(bits)


def pack_size(name: str, value: int, *, wide: bool) -> Any:
    """Return a size as `long long` or `int`; FusecError where it does not fit."""
    bits = 63 if wide else 31
    if not -(2**bits) <= value < 2**bits:
        raise FusecError(
            f"kernel argument `{name}` is {value}, which does not fit {bits + 1} bits",
            help="compile for these sizes",
        )
    return (ctypes.c_longlong if wide else ctypes.c_int)(value)


class PackedArguments:
    """Argument values at fixed addresses, and the array of pointers to them."""

    def __init__(self, values: Sequence[Any]) -> None:
        """Keep the values alive and store pointers to them."""
        self.values = tuple(values)
        self.pointers = (ctypes.c_void_p * max(len(values), 1))(
            *(ctypes.addressof(v) for v in self.values)
        )

    @property
    def address(self) -> int:
        """Return the address of the pointer array, kernelParams of a launch."""
        return ctypes.addressof(self.pointers)


def pack_arguments(
    arguments: Sequence[Argument],
    sizes: Mapping[str, int],
    addresses: Mapping[str, int],
    scalars: Mapping[str, Any],
    maps: Mapping[str, Any],
) -> PackedArguments:
    """Return a launch's arguments for buffers at `addresses`."""
    values: list[Any] = []
    for argument in arguments:
        if isinstance(argument, SizeArgument):
            size = argument.value.evaluate(sizes)
            values.append(pack_size(argument.name, size, wide=argument.wide))
        elif isinstance(argument, ScalarArgument):
            values.append(pack_scalar(scalars[argument.name], argument.dtype))
        elif isinstance(argument, TensorMapArgument):
            values.append(maps[argument.name])
        else:
            values.append(ctypes.c_void_p(addresses[argument.name]))
    return PackedArguments(values)


@dataclass(frozen=True)
class Geometry:
    """A launch's blocks and threads at given sizes."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared_bytes: int
    overlapped: bool = False

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to launch."""
        return 0 in self.grid


def geometry(launch: Launch, sizes: Mapping[str, int]) -> Geometry:
    """Return the geometry at `sizes`; Unsupported where it exceeds the limits of CUDA."""
    x, y, z = (d.evaluate(sizes) for d in launch.grid)
    for axis, blocks, limit in zip("xyz", (x, y, z), GRID_LIMITS, strict=True):
        if not 0 <= blocks <= limit:
            raise Unsupported(
                f"kernel `{launch.kernel}` needs {blocks} blocks in {axis}, the limit is {limit}",
                help="smaller sizes",
            )
    for blocks, cluster in zip((x, y, z), launch.cluster, strict=True):
        if blocks % cluster:
            raise InternalError(
                f"kernel `{launch.kernel}`: {blocks} blocks do not split into clusters of {cluster}"
            )
    return Geometry((x, y, z), launch.block, launch.cluster, launch.shared_bytes, launch.overlapped)


def launch_config(driver: Any, shape: Geometry, stream: Any) -> Any:
    """Return the driver's launch configuration."""
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = shape.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = shape.block
    config.sharedMemBytes = shape.shared_bytes
    config.hStream = stream
    attributes: list[Any] = []
    names = driver.CUlaunchAttributeID
    if shape.cluster != (1, 1, 1):
        attribute = driver.CUlaunchAttribute()
        attribute.id = names.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dims = attribute.value.clusterDim
        dims.x, dims.y, dims.z = shape.cluster
        attributes.append(attribute)
    if shape.overlapped:
        attribute = driver.CUlaunchAttribute()
        attribute.id = names.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        attributes.append(attribute)
    if attributes:
        config.attrs, config.numAttrs = attributes, len(attributes)
    return config


MAP_TYPES = {
    "f64": "FLOAT64", "f32": "FLOAT32", "f16": "FLOAT16", "bf16": "BFLOAT16", "i64": "INT64",
    "i32": "INT32", "u64": "UINT64", "u32": "UINT32", "u16": "UINT16", "i16": "UINT16",
}  # fmt: skip


def tensor_map_operands(
    described: TensorMapArgument, address: int, sizes: Mapping[str, int]
) -> dict[str, Any]:
    """Return the operands of encoding a tensor map, checked against TMA's constraints."""
    extents = [d.evaluate(sizes) for d in described.extents]
    strides = [d.evaluate(sizes) for d in described.strides]
    name, item = described.buffer, described.dtype.size
    if len(strides) != len(extents) - 1 or len(described.box) != len(extents):
        raise InternalError(f"the tensor map of `{name}` has inconsistent ranks")
    if address % 16 or any(s % 16 for s in strides):
        raise FusecError(
            f"`{name}` cannot be read by bulk copies: its address and strides must be multiples of "
            f"16 bytes, strides are {strides}",
        )
    if not all(1 <= b <= 256 for b in described.box) or described.box[0] * item % 16:
        raise InternalError(f"the box {described.box} of `{name}` is not allowed")
    return {
        "extents": extents,
        "strides": strides,
        "box": list(described.box),
    }


def aligned_block(size: int, alignment: int) -> Any:
    """Return a ctypes array of bytes at a multiple of `alignment`."""
    raw = (ctypes.c_uint8 * (size + alignment))()
    offset = -ctypes.addressof(raw) % alignment
    return (ctypes.c_uint8 * size).from_buffer(raw, offset)


def map_enumerators(described: TensorMapArgument) -> dict[str, str]:
    """Return the enumerators of a tensor map by enumeration, in the driver's argument order."""
    return {
        "CUtensorMapDataType": "CU_TENSOR_MAP_DATA_TYPE_"
        + (described.data_type or MAP_TYPES.get(described.dtype.name, "UINT8")),
        "CUtensorMapInterleave": f"CU_TENSOR_MAP_INTERLEAVE_{described.interleave}",
        "CUtensorMapSwizzle": f"CU_TENSOR_MAP_SWIZZLE_{described.swizzle}",
        "CUtensorMapL2promotion": f"CU_TENSOR_MAP_L2_PROMOTION_{described.l2_promotion}",
        "CUtensorMapFloatOOBfill": f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{described.oob_fill}",
    }


def map_codes(driver: Any, described: TensorMapArgument) -> tuple[int, ...]:
    """Return the driver's numbers of `map_enumerators`."""
    named = map_enumerators(described).items()
    return tuple(int(getattr(getattr(driver, kind), name)) for kind, name in named)


def encode_tensor_map(
    device: Any, described: TensorMapArgument, address: int, sizes: Mapping[str, int]
) -> Any:
    """Return an encoded tensor map as 128 bytes that a launch can point at.

    Called through ctypes: the driver requires the map to be 64-byte aligned, which the Python
    binding's own object may not be.
    """
    driver, given = device.driver, tensor_map_operands(described, address, sizes)
    rank = len(given["extents"])
    block = aligned_block(TENSOR_MAP_BYTES, 64)
    kind, *modes = map_codes(driver, described)
    status = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled(
        ctypes.c_void_p(ctypes.addressof(block)),
        kind,
        ctypes.c_uint32(rank),
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*given["extents"]),
        (ctypes.c_uint64 * rank)(*given["strides"]),
        (ctypes.c_uint32 * rank)(*given["box"]),
        (ctypes.c_uint32 * rank)(*(1 for _ in range(rank))),
        *modes,
    )
    if status:
        raise InternalError(
            f"the tensor map of `{described.buffer}` cannot be encoded: CUDA error {status}",
            notes=(str(given),),
        )
    return block
