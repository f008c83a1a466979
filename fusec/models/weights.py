"""Weights: from a torch.export archive into a safetensors file, and mapped from there.

Bytes go from one mapped file to the other; a tensor is copied in memory only where the archive
keeps it with other strides than dense ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from fusec.diagnostics import FusecError, Unsupported
from fusec.foreign import Name, decoding, map_safetensors, not_a
from fusec.ir.dtype import DTYPES, DType
from fusec.ir.evaluate import Array
from fusec.models.archive import WHAT, Archive
from fusec.models.exported import SCALAR_TYPES
from fusec.models.graph import ModelInput
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
    """The tensors of an archive by their names in the module; errors come where one is read."""

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
        """Return the tensor of an input; FusecError where it is missing or another one."""
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
            found = self._weight(self._archive.bytes_of(folder + str(data["path_name"])), meta)
            shape = tuple(e.value for e in entry.type.shape or ())
            if (found.dtype, found.shape) != (entry.type.dtype, shape):
                raise ValueError(
                    f"weight `{entry.key}` is {found.dtype}{list(found.shape)}, and {entry.type} "
                    "in the graph"
                )
            return found

    def _weight(self, data: memoryview, meta: Mapping[str, Any]) -> Weight:
        dtype = DTYPES[SCALAR_TYPES[int(meta["dtype"])]]
        shape, strides = (tuple(_integer(s) for s in meta[k]) for k in ("sizes", "strides"))
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
    """Yield the bytes of a safetensors file; the library would need them all in memory."""
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


def mapped_weights(path: Name, names: Iterable[str]) -> dict[str, Array]:
    """Return arrays of a safetensors file where the system has mapped it; they are read-only."""
    entries = map_safetensors(path)
    found: dict[str, Array] = {}
    for name in names:
        if name not in entries:
            raise FusecError(f"`{path}` has no weight `{name}`", help="import the model again")
        kind, shape, data = entries[name]
        if kind not in SAFETENSORS:
            raise FusecError(f"`{path}`: tensor `{name}` has unknown dtype {kind}")
        dtype = DTYPES[SAFETENSORS[kind]]
        if math.prod(shape) * dtype.size != len(data):
            raise FusecError(f"`{path}`: tensor `{name}` is not of its shape")
        found[name] = np.ndarray(shape, dtype.numpy, data)
    return found
