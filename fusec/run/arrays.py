"""Arrays with explicit strides, and files of named arrays."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError
from fusec.foreign import load_npz, load_safetensors
from fusec.hostir.program import Buffer, span
from fusec.ir.dtype import ALL, DType

if TYPE_CHECKING:
    from fusec.ir.evaluate import Array, Sizes


@dataclass(frozen=True, eq=False)
class StridedArray:
    """A tensor in one block of memory; strides and offset in elements.

    An expanded dim has stride 0. The block is copied to the GPU unchanged.
    """

    storage: Array
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def array(self) -> Array:
        """Return the tensor as a NumPy view of the block."""
        start = self.storage[self.offset :] if self.storage.size else self.storage
        view = _strided(start, self.shape, self.strides)
        view.flags.writeable = False
        return view

    @property
    def dtype(self) -> Any:
        """Return the NumPy dtype."""
        return self.storage.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return the tensor as a NumPy array (NumPy's array protocol)."""
        array = self.array
        if dtype is not None and dtype != array.dtype:
            return array.astype(dtype)
        return array.copy() if copy else array


def layout_of(buffer: Buffer, sizes: Sizes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return a buffer's shape and strides at `sizes`."""
    shape = tuple(d.evaluate(sizes) for d in buffer.shape)
    return shape, tuple(d.evaluate(sizes) for d in buffer.strides)


def over_bytes(memory: Array, buffer: Buffer, sizes: Sizes) -> Array:
    """Return a buffer that starts at some bytes as an array."""
    shape, strides = layout_of(buffer, sizes)
    size = buffer.bytes(sizes)
    if not size:
        return np.empty(shape, buffer.dtype.numpy)
    # As raw bytes: NumPy's stride tricks do not support all types of ml_dtypes.
    raw: Any = memory[:size].view(f"V{buffer.dtype.size}")
    steps = tuple(s * buffer.dtype.size for s in strides)
    return np.lib.stride_tricks.as_strided(raw, shape, steps).view(buffer.dtype.numpy)


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a dense row-major tensor."""
    strides, step = list[int](), 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def strides_of(array: Any) -> tuple[int, ...]:
    """Return the strides of an array in elements (only NumPy's own arrays use bytes)."""
    if _is_numpy(array) or not hasattr(array, "strides"):
        plain: Any = np.asarray(array)
        return tuple(s // plain.dtype.itemsize for s in plain.strides)
    return tuple(array.strides)


def _is_numpy(array: Any) -> bool:
    return isinstance(array, np.ndarray)


def lay_out(array: Any, strides: Sequence[int]) -> StridedArray:
    """Return the tensor with the given strides, copied unless it has them already.

    Strides of dims with one element do not count. Elements of an expanded dim must be equal.
    """
    shape = tuple(np.shape(array))
    wanted = tuple(strides)
    if isinstance(array, StridedArray) and _same_layout(shape, array.strides, wanted):
        return array
    plain = np.asarray(array)
    if _same_layout(shape, strides_of(plain), wanted) and plain.flags.c_contiguous:
        return StridedArray(plain.reshape(-1), shape, wanted)
    target = np.zeros(max(span(shape, wanted), 0), plain.dtype)
    if plain.size:
        _strided(target, shape, wanted)[...] = plain
    return StridedArray(target, shape, wanted)


def _strided(flat: Array, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """Return a view of memory with strides in elements; FusecError if it is out of bounds."""
    if min(strides, default=0) < 0 or span(shape, strides) > flat.size:
        raise FusecError(
            f"strides {list(strides)} of shape {list(shape)} exceed a buffer of {flat.size} "
            "elements"
        )
    # As raw bytes: NumPy's stride tricks do not support all types of ml_dtypes.
    size = flat.dtype.itemsize
    steps = tuple(s * size for s in strides)
    raw = np.lib.stride_tricks.as_strided(flat.view(f"V{size}"), tuple(shape), steps)
    return raw.view(flat.dtype)


def _same_layout(shape: Sequence[int], a: Sequence[int], b: Sequence[int]) -> bool:
    return all(s == t or extent <= 1 for extent, s, t in zip(shape, a, b, strict=True))


SAFETENSORS = {
    "F64": "f64", "F32": "f32", "F16": "f16", "BF16": "bf16", "F8_E4M3": "f8e4m3",
    "F8_E5M2": "f8e5m2", "F8_E8M0": "f8e8m0",
    "I64": "i64", "I32": "i32", "I16": "i16", "I8": "i8", "U64": "u64",
    "U32": "u32", "U16": "u16", "U8": "u8", "BOOL": "bool", "C64": "c64",
}  # fmt: skip


def load_arrays(path: str | Path) -> dict[str, Array]:
    """Return the arrays of a .safetensors or .npz file by name."""
    file = Path(path)
    return load_npz(file) if file.suffix == ".npz" else _load_safetensors(file)


def _load_safetensors(file: Path) -> dict[str, Array]:
    by_name = {d.name: d for d in ALL}
    arrays: dict[str, Array] = {}
    for name, entry in load_safetensors(file):
        kind = SAFETENSORS.get(entry["dtype"])
        if kind is None:
            raise FusecError(f"`{file}`: tensor `{name}` has unknown dtype {entry['dtype']}")
        flat = np.frombuffer(bytes(entry["data"]), dtype=by_name[kind].numpy)
        count = int(np.prod(entry["shape"], dtype=np.int64))
        arrays[name] = flat[:count].reshape(entry["shape"])
    return arrays


def as_declared(name: str, array: Array, dtype: DType) -> Array:
    """Return an array from a file in its declared type: npz stores 16-bit floats as raw bits."""
    declared = dtype.numpy
    if array.dtype == declared:
        return array
    raw = array.dtype.kind == "V" or (array.dtype.kind == "u" and dtype.is_half)
    if raw and array.dtype.itemsize == declared.itemsize:
        return np.ascontiguousarray(array).view(declared).reshape(array.shape)
    raise FusecError(
        f"`{name}` has dtype {array.dtype}, declared {dtype} ({dtype.long})",
        help=f"store it as {dtype.long}"
        + (f", in an npz file as its bits in uint{dtype.bits}" if dtype.is_half else ""),
    )


def save_arrays(path: str | Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to a .safetensors or .npz file atomically (temporary file, then rename)."""
    import tempfile

    file = Path(path)
    if file.suffix not in (".npz", ".safetensors"):
        raise FusecError(f"`{file}`: write to a .safetensors or .npz file")
    plain = {name: np.ascontiguousarray(a) for name, a in arrays.items()}
    if file.suffix == ".safetensors" and any(a.dtype == np.complex128 for a in plain.values()):
        raise FusecError(f"`{file}`: the format has no complex128", help="write to an .npz file")
    plain = {name: a.reshape(np.shape(arrays[name])) for name, a in plain.items()}
    try:
        handle, aside = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    except OSError as error:
        raise FusecError(f"cannot write `{file}`: {error.strerror or error}") from None
    try:
        with os.fdopen(handle, "wb") as out:
            _write(out, file.suffix, plain)
        os.chmod(aside, 0o666 & ~_umask())
        os.replace(aside, file)
    except OSError as error:
        Path(aside).unlink(missing_ok=True)
        raise FusecError(f"cannot write `{file}`: {error.strerror or error}") from None
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def _write(out: Any, suffix: str, arrays: Mapping[str, Array]) -> None:
    if suffix == ".npz":
        plain: dict[str, Any] = {name: _plain_bits(a) for name, a in arrays.items()}
        np.savez(out, **plain)
        return
    from safetensors.numpy import save

    plain = dict(arrays)
    out.write(save(plain))


def _plain_bits(array: Array) -> Array:
    """Return the bits of an array whose type NumPy lacks."""
    if array.dtype.isbuiltin == 1:
        return array
    return array.view(np.uint8 if array.dtype.itemsize == 1 else np.uint16)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
