"""Small archives in the form of `torch.export`, made by hand: PyTorch is not needed."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fusec.ir.dtype import DTYPES, of_numpy
from fusec.models.exported import SCALAR_TYPES

NUMBERS = {name: number for number, name in SCALAR_TYPES.items()}
Shape = Sequence["int | str"]


@dataclass(frozen=True)
class Tensor:
    """A tensor of an archive's graph."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class Word:
    """An argument of a kind that no Python value has, as `as_scalar_type`."""

    kind: str
    value: Any


def dtype(name: str) -> Word:
    """Return a type as an argument."""
    return Word("as_scalar_type", NUMBERS[name])


@dataclass
class Export:
    """One program: inputs, weights and nodes are added in order, then it is saved."""

    symbols: Mapping[str, int] = field(default_factory=dict[str, int])
    version: tuple[int, int] = (8, 20)
    weights: dict[str, Any] = field(default_factory=dict[str, Any])
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    inputs: list[Any] = field(default_factory=list[Any])
    specs: list[Any] = field(default_factory=list[Any])
    nodes: list[Any] = field(default_factory=list[Any])
    outputs: list[Any] = field(default_factory=list[Any])
    graphs: int = 0

    def size(self, extent: int | str) -> Any:
        if isinstance(extent, int):
            return {"as_int": extent}
        hint = {"as_int": self.symbols[extent]} if extent in self.symbols else None
        return {"as_expr": {"expr_str": extent, "hint": hint}}

    def meta(self, kind: str, shape: Shape) -> Any:
        strides, step = [1] * len(shape), 1
        for axis in reversed(range(len(shape))):
            strides[axis] = step
            extent = shape[axis]
            step *= extent if isinstance(extent, int) else self.symbols.get(extent, 1)
        return {
            "dtype": NUMBERS[kind], "sizes": [self.size(e) for e in shape],
            "requires_grad": False, "device": {"type": "cpu", "index": None},
            "strides": [{"as_int": s} for s in strides], "storage_offset": {"as_int": 0},
            "layout": 7,
        }  # fmt: skip

    def _value(self, name: str, kind: str, shape: Shape) -> Tensor:
        assert kind in DTYPES
        self.values[name] = self.meta(kind, shape)
        return Tensor(name, kind, tuple(shape))

    def input(self, name: str, kind: str, shape: Shape) -> Tensor:
        """Add an input of the user."""
        self.inputs.append({"as_tensor": {"name": name}})
        self.specs.append({"user_input": {"arg": {"as_tensor": {"name": name}}}})
        return self._value(name, kind, shape)

    def constant(self, name: str, kind: str, value: Any) -> None:
        """Add an input of the user whose value the graph holds: `as_none`, `as_int`, ..."""
        self.inputs.append({kind: value})
        self.specs.append({"constant_input": {"name": name, "value": {kind: value}}})

    def weight(self, key: str, array: Any, *, buffer: bool = False) -> Tensor:
        """Add a parameter, or a buffer, of a name in the module."""
        name = f"{'b' if buffer else 'p'}_{key.replace('.', '_')}"
        kind = "buffer" if buffer else "parameter"
        self.weights[key] = array
        self.inputs.append({"as_tensor": {"name": name}})
        more = {"persistent": True} if buffer else {}
        self.specs.append({kind: {"arg": {"name": name}, f"{kind}_name": key, **more}})
        return self._value(name, of_numpy(array.dtype).name, array.shape)

    def node(
        self,
        target: str,
        results: Sequence[tuple[str, Shape]],
        /,
        module: str = "",
        line: str = "",
        **arguments: Any,
    ) -> Any:
        """Add a call; return its result, or a list of several."""
        name = f"{target.split('.')[1]}_{len(self.nodes)}"
        names = [name] if len(results) == 1 else [f"{name}_{k}" for k in range(len(results))]
        tensors = [self._value(n, *r) for n, r in zip(names, results, strict=True)]
        self.nodes.append(
            {
                "target": target if target.startswith("_") else f"torch.ops.{target}",
                "inputs": [
                    {"name": k, "arg": self.argument(v), "kind": 1} for k, v in arguments.items()
                ],
                "outputs": [{"as_tensor": {"name": n}} for n in names],
                "metadata": {
                    "stack_trace": f'  File "/home/me/model.py", line {line}, in forward\n    x',
                    "nn_module_stack": f"L__self__,,Model;L__self__{module},{module},Layer",
                }
                if module
                else {},
                "name": name,
            }
        )
        return tensors[0] if len(tensors) == 1 else tensors

    def argument(self, value: Any) -> Any:
        """Return an argument in the archive's form."""
        match value:
            case None:
                return {"as_none": True}
            case Word():
                return {value.kind: value.value}
            case Tensor():
                return {"as_tensor": {"name": value.name}}
            case bool():
                return {"as_bool": value}
            case int():
                return {"as_int": value}
            case float():
                return {"as_float": value}
            case str():
                return {"as_string": value}
            case list() if value and all(isinstance(v, Tensor) for v in value):  # pyright: ignore
                return {"as_tensors": [{"name": v.name} for v in value]}  # pyright: ignore
            case list() if any(isinstance(v, Tensor) for v in value):  # pyright: ignore
                return {"as_optional_tensors": [self.argument(v) for v in value]}  # pyright: ignore
            case list() if any(isinstance(v, bool) for v in value):  # pyright: ignore
                return {"as_bools": value}
            case list() if any(isinstance(v, float) for v in value):  # pyright: ignore
                return {"as_floats": value}
            case list():
                return {"as_ints": value}
            case _:
                raise AssertionError(value)

    def output(self, *tensors: Tensor) -> None:
        """Return tensors to the user."""
        for tensor in tensors:
            self.outputs.append({"user_output": {"arg": {"as_tensor": {"name": tensor.name}}}})

    def updates(self, key: str, tensor: Tensor) -> None:
        """Write a tensor into a buffer, as archives after `run_decompositions` say."""
        spec = {"arg": {"name": tensor.name}, "buffer_name": key}
        self.outputs.append({"buffer_mutation": spec})

    def model(self) -> Any:
        """Return what `models/model.json` holds."""
        ranges = {s: {"min_val": 2, "max_val": 512} for s in self.symbols}
        graph = {
            "inputs": self.inputs,
            "outputs": [o[next(iter(o))].get("arg") for o in self.outputs],
            "nodes": self.nodes, "tensor_values": self.values, "sym_int_values": {},
            "sym_bool_values": {}, "sym_float_values": {}, "is_single_tensor_return": False,
            "custom_obj_values": {},
        }  # fmt: skip
        signature = {"input_specs": self.specs, "output_specs": self.outputs}
        return {
            "graph_module": {
                "graph": graph, "signature": signature, "module_call_graph": [], "metadata": {},
            },
            "opset_version": {"aten": 10}, "range_constraints": ranges,
            "schema_version": {"major": self.version[0], "minor": self.version[1]},
            "verifiers": ["TRAINING"], "torch_version": "2.14.1", "guards_code": [],
        }  # fmt: skip

    def members(self) -> dict[str, bytes]:
        """Return the members of the archive."""
        config: dict[str, Any] = {}
        found = {"archive_format": b"pt2", "archive_version": b"0", "byteorder": b"little"}
        for number, (key, array) in enumerate(self.weights.items()):
            path = f"weight_{number}"
            found[f"data/weights/{path}"] = np.ascontiguousarray(array).tobytes()
            kind = of_numpy(array.dtype).name
            config[key] = {
                "path_name": path, "is_param": True, "use_pickle": False,
                "tensor_meta": self.meta(kind, array.shape),
            }  # fmt: skip
        text = json.dumps({"config": config})
        found["data/weights/model_weights_config.json"] = text.encode()
        found["models/model.json"] = json.dumps(self.model()).encode()
        return found

    def save(self, path: Path, **changed: bytes) -> Path:
        """Write the archive, with some members changed (`/` in names is `__`, `.` is `___`)."""
        members = self.members() | {
            n.replace("___", ".").replace("__", "/"): d for n, d in changed.items()
        }
        return write_archive(path, members)


def write_archive(path: Path, members: Mapping[str, bytes], compression: int = 0) -> Path:
    """Write the members of an archive under a folder of its name."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            entry = zipfile.ZipInfo(f"{path.stem}/{name}")
            archive.writestr(entry, data, compress_type=compression)
    return path


def perceptron() -> tuple[Export, Any]:
    """Return a model of two layers with a norm, and a function that computes it with NumPy."""
    rng = np.random.default_rng(0)
    first, bias, second = (rng.standard_normal(s).astype("f4") for s in ((8, 6), (8,), (4, 8)))
    export = Export()
    w1, b1 = export.weight("net.up.weight", first), export.weight("net.up.bias", bias)
    w2 = export.weight("net.down.weight", second)
    unread = export.weight("net.unread", bias)
    assert unread.shape == (8,)
    x = export.input("x", "f32", (3, 6))
    at = {"module": "net.up", "line": "11"}
    h = export.node("aten.linear.default", [("f32", (3, 8))], input=x, weight=w1, bias=b1, **at)
    at = {"module": "net", "line": "12"}
    h = export.node("aten.relu.default", [("f32", (3, 8))], self=h, **at)
    h = export.node(
        "aten.layer_norm.default", [("f32", (3, 8))], input=h, normalized_shape=[8], eps=1e-5,
        cudnn_enable=False, **at,
    )  # fmt: skip
    h = export.node("aten.dropout.default", [("f32", (3, 8))], input=h, p=0.1, train=False, **at)
    at = {"module": "net.down", "line": "13"}
    y = export.node("aten.linear.default", [("f32", (3, 4))], input=h, weight=w2, **at)
    export.output(y)

    def compute(x: Any) -> Any:
        h = np.maximum(x @ first.T + bias, 0)
        h = (h - h.mean(1, keepdims=True)) / np.sqrt(h.var(1, keepdims=True) + 1e-5)
        return h @ second.T

    return export, compute
