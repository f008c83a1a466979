"""Weights: copied from a torch.export archive to a safetensors file, and mapped from there.

Bytes are copied from one mapped file to the other; a tensor is copied in memory only if the archive
has it with non-dense strides.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any
from zlib import crc32

import numpy as np

from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError, Unsupported
from fusec.foreign import Name, decoding, map_safetensors, not_a
from fusec.ir.dim import dim
from fusec.ir.dtype import DTYPES, DType
from fusec.ir.evaluate import Array
from fusec.models.archive import WHAT, Archive
from fusec.models.exported import SCALAR_TYPES
from fusec.models.graph import ModelInput, WeightRecord, type_of
from fusec.run.arrays import SAFETENSORS

_NAMES = {name: word for word, name in SAFETENSORS.items()}
_FOLDERS = (
    ("data/weights/", "model_weights_config.json"),
    ("data/constants/", "model_constants_config.json"),
)


@dataclass(frozen=True)
class Weight:
    """A dense tensor: its bytes in the order of its elements."""

    dtype: DType
    shape: tuple[int, ...]
    data: memoryview


class Weights:
    """The tensors of an archive by their names in the module; errors are raised on access."""

    def __init__(self, archive: Archive) -> None:
        """Read the lists of tensors."""
        self._archive = archive
        self._entries: dict[str, tuple[str, Mapping[str, Any]]] = {}
        if archive.has("byteorder") and archive.text_of("byteorder") != "little":
            raise Unsupported(f"`{archive.path}` has weights in big-endian order")
        for folder, config in _FOLDERS:
            if not archive.has(folder + config):
                continue
            data = archive.json_of(folder + config)
            with decoding(not_a(archive.path, WHAT)):
                self._entries |= {str(k): (folder, v) for k, v in data["config"].items()}

    def of(self, entry: ModelInput) -> Weight:
        """Return the tensor of an input; FusecError where it is missing or differs."""
        path = self._archive.path
        if entry.key not in self._entries:
            raise FusecError(f"`{path}` has no weight `{entry.key}`")
        folder, data = self._entries[entry.key]
        with decoding(not_a(path, WHAT)):
            if data["use_pickle"]:
                raise Unsupported(
                    f"`{path}`: weight `{entry.key}` is pickled, which is never read",
                    help="save the model with plain tensors as its weights",
                )
            meta = data["tensor_meta"]
            dtype = DTYPES[SCALAR_TYPES[int(meta["dtype"])]]
            shape = tuple(_integer(s) for s in meta["sizes"])
            if type_of(dtype, list(map(dim, shape))) != entry.type:
                raise ValueError(
                    f"weight `{entry.key}` is {dtype}{list(shape)}, and {entry.type} in the graph"
                )
            stored = self._archive.bytes_of(folder + str(data["path_name"]))
            return self._weight(stored, dtype, shape, meta)

    @staticmethod
    def _weight(
        data: memoryview, dtype: DType, shape: tuple[int, ...], meta: Mapping[str, Any]
    ) -> Weight:
        strides = tuple(_integer(s) for s in meta["strides"])
        if len(strides) != len(shape):
            raise ValueError("strides and sizes differ in number")
        offset, count = _integer(meta["storage_offset"]), math.prod(shape)
        span = count and 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        if (offset + span) * dtype.size > len(data):
            raise ValueError("a weight exceeds its bytes")
        part = data[offset * dtype.size : (offset + span) * dtype.size]
        if _is_dense(shape, strides):
            return Weight(dtype, shape, part)
        raw: Any = np.ndarray(span, f"V{dtype.size}", part)
        steps = [s * dtype.size for s in strides]
        view: Any = np.ndarray(shape, raw.dtype, raw, 0, steps)
        return Weight(dtype, shape, memoryview(view.tobytes()))


def _integer(data: Mapping[str, Any]) -> int:
    value = data["as_int"]
    if type(value) is not int or not 0 <= value < 2**48:
        raise ValueError("a size of a weight is not an integer")
    return value


def _is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def safetensors_of(weights: Mapping[str, Weight]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a safetensors file; the library would need all of it in memory."""
    for name, weight in weights.items():
        if weight.dtype.name not in _NAMES:
            raise Unsupported(f"weight `{name}`: safetensors has no type {weight.dtype.long}")
    ends = list(accumulate(len(w.data) for w in weights.values()))
    header = {
        name: {
            "dtype": _NAMES[w.dtype.name],
            "shape": list(w.shape),
            "data_offsets": [end - len(w.data), end],
        }
        for (name, w), end in zip(weights.items(), ends, strict=True)
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for weight in weights.values():
        yield weight.data


def mapped_weights(path: Name, records: Mapping[str, WeightRecord]) -> dict[str, Array]:
    """Return memory-mapped, read-only arrays of a safetensors file.

    FusecError for a weight that is missing, of another type, or damaged: each is read once.
    """
    entries = map_safetensors(path)
    found: dict[str, Array] = {}
    for name, record in records.items():
        if name not in entries:
            raise FusecError(f"`{path}` has no weight `{name}`", help=_AGAIN)
        kind, shape, data = entries[name]
        if kind not in SAFETENSORS:
            raise FusecError(f"`{path}`: tensor `{name}` has unknown dtype {kind}")
        dtype = DTYPES[SAFETENSORS[kind]]
        own = str(type_of(dtype, list(map(dim, shape))))
        if own != record.type:
            reason = f"weight `{name}` is {own}, expected {record.type}"
            raise FusecError(f"`{path}`: {reason}", help=_AGAIN)
        if math.prod(shape) * dtype.size != len(data):
            raise FusecError(f"`{path}`: tensor `{name}` is not of its shape")
        if crc32(data) != record.crc32:
            raise FusecError(
                f"`{path}` is damaged: weight `{name}` has another checksum", help=_AGAIN
            )
        found[name] = np.ndarray(shape, dtype.numpy, data)
    return found


_AGAIN = "import the model again"
