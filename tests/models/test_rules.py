"""Each rule of an operation of ATen computes what PyTorch's documentation says, here in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exported import Export, Tensor, dtype

from fusec.ir.dtype import of_numpy
from fusec.models.read import imported
from fusec.reference.evaluate import evaluate

RNG = np.random.default_rng(1)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def whole(low: int, high: int, *shape: int) -> Any:
    return RNG.integers(low, high, shape)


@dataclass(frozen=True)
class Case:
    """A call: its tensors and other arguments by parameter, and the values that it returns."""

    target: str
    tensors: Mapping[str, Any]
    expected: Callable[..., Any]
    others: Mapping[str, Any] = field(default_factory=dict[str, Any])
    types: tuple[str, ...] = ()
    tolerance: float = 2e-6


def windows(x: Any, k: int) -> Any:
    """Return the non-overlapping windows of [N, C, H, W]: [N, H', W', C, k, k]."""
    n, c, h, w = x.shape
    x = x[:, :, : h // k * k, : w // k * k].reshape(n, c, h // k, k, w // k, k)
    return x.transpose(0, 2, 4, 1, 3, 5)


def patches(x: Any, w: Any, b: Any) -> Any:
    return np.einsum("nhwckl,ockl->nohw", windows(x, w.shape[2]), w) + b[:, None, None]


def depthwise(x: Any, w: Any, b: Any, padding: int) -> Any:
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding)))
    taps, length = w.shape[2], x.shape[2] - w.shape[2] + 1
    return sum(x[:, :, k : k + length] * w[:, 0, k, None] for k in range(taps)) + b[:, None]


def depthwise_backward(grad: Any, x: Any, w: Any, padding: int) -> list[Any]:
    taps, wide = w.shape[2], np.pad(x, ((0, 0), (0, 0), (padding, padding)))
    of_x, of_w = np.zeros_like(wide), np.zeros_like(w)
    for k in range(taps):
        of_x[:, :, k : k + grad.shape[2]] += grad * w[:, 0, k, None]
        of_w[:, 0, k] = (grad * wide[:, :, k : k + grad.shape[2]]).sum((0, 2))
    return [of_x[:, :, padding : padding + x.shape[2]], of_w, grad.sum((0, 2))]


def patches_backward(grad: Any, x: Any, w: Any) -> list[Any]:
    k, of_x = w.shape[2], np.zeros_like(x)
    parts = np.einsum("nohw,ockl->nhwckl", grad, w).transpose(0, 3, 1, 4, 2, 5)
    n, c, hh, _, ww, _ = parts.shape
    of_x[:, :, : hh * k, : ww * k] = parts.reshape(n, c, hh * k, ww * k)
    return [of_x, np.einsum("nohw,nhwckl->ockl", grad, windows(x, k)), grad.sum((0, 2, 3))]


def standard(x: Any, axes: Any) -> Any:
    """Return x with mean 0 and variance 1 over axes."""
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


def bags(rows: Any, counts: list[int], offsets: Any) -> Any:
    """Return the sums of rows from each offset on."""
    assert counts[0] == offsets[1]
    return np.stack([rows[o : o + n].sum(0) for o, n in zip(offsets, counts, strict=True)])


SMALL = (floats(3, 8) * 1e-3).astype("f2")
BAG = {"weight": floats(6, 4), "indices": np.array([1, 2, 2, 5, 0, 2, 3]),
       "offsets": np.array([0, 4, 4])}  # fmt: skip
RATES = floats(7)


def stepped(x: Any, src: Any) -> Any:
    x = x.copy()
    x[:, 1:8:3] = src
    return x


def put(x: Any, i: Any, v: Any, *, add: bool = False) -> Any:
    x = x.copy()
    if add:
        np.add.at(x, i, v)
    else:
        x[i] = v
    return x


def attention(q: Any, k: Any, v: Any, mask: Any = 0.0) -> tuple[Any, Any, Any]:
    """Return (output, log of the sums, probabilities) in fp64."""
    q, k, v = (t.astype("f8") for t in (q, k, v))
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + mask
    lse = np.log(np.exp(s).sum(-1))
    p = np.exp(s - lse[..., None])
    return p @ v, lse, p


Q, K, V, G = (floats(2, 2, 8, 16) for _ in range(4))
MASK = np.where(np.tril(np.ones((8, 8))) > 0, 0, -1e9).astype("f4")
OUT, LSE = (t.astype("f4") for t in attention(Q, K, V, MASK)[:2])


def attention_backward(g: Any, q: Any, k: Any, v: Any, out: Any, **_: Any) -> list[Any]:
    p, scale = attention(q, k, v, MASK)[2], q.shape[-1] ** -0.5
    ds = p * (g @ v.swapaxes(-1, -2) - (g * out).sum(-1, keepdims=True)) * scale
    return [ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g]


MASKED = np.where([[True], [False]], floats(2, 5), np.float32(-np.inf))
WAVES = floats(3, 4) + np.complex64(1j) * floats(3, 4)


def safe_softmax(x: Any) -> Any:
    with np.errstate(invalid="ignore"):
        shares = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    return np.where(np.isneginf(x).all(1, keepdims=True), np.float32(0), shares)


CONV = {"stride": [1], "padding": [3], "dilation": [1], "groups": 4}
BACK = {"transposed": False, "output_padding": [0], "output_mask": [True, True, True]}
PATCH = {"stride": [4, 4], "padding": [0, 0], "dilation": [1, 1], "groups": 1}
X, SEQ = floats(2, 3, 9, 8), floats(2, 4, 10)
PW, DW = floats(5, 3, 4, 4), floats(4, 1, 4)

CASES = [
    Case("aten.slice.Tensor", {"self": floats(4, 9)}, lambda self: self[:, 2:9:3],
         {"dim": 1, "start": 2, "end": 2**63 - 1, "step": 3}),
    Case("aten.slice.Tensor", {"self": floats(4, 9)}, lambda self: self[:, -3:],
         {"dim": -1, "start": -3, "end": 2**63 - 1}),
    Case("aten.slice.Tensor", {"self": floats(4, 9)}, lambda self: self[1:3],
         {"start": 1, "end": 3}),
    Case("aten.slice_scatter.default", {"self": floats(3, 9), "src": floats(3, 3)},
         lambda self, src: stepped(self, src), {"dim": 1, "start": 1, "end": 8, "step": 3}),
    Case("aten.slice_scatter.default", {"self": floats(3, 9), "src": floats(3, 2)},
         lambda self, src: np.concatenate([self[:, :4], src, self[:, 6:]], 1),
         {"dim": 1, "start": 4, "end": 6}),
    Case("aten.select_scatter.default", {"self": floats(3, 4), "src": floats(4)},
         lambda self, src: np.stack([self[0], self[1], src]), {"dim": 0, "index": -1}),
    Case("aten.squeeze.dims", {"self": floats(1, 3, 1)}, lambda self: self[0],
         {"dim": [0, 1]}),
    Case("aten.diff.default", {"self": floats(3, 6), "prepend": floats(3, 1)},
         lambda self, prepend: np.diff(self, prepend=prepend), {"n": 1, "dim": -1}),
    Case("aten.copy.default", {"self": floats(3, 4), "src": floats(4)},
         lambda self, src: np.broadcast_to(src, self.shape)),
    Case("aten.index.Tensor", {"self": floats(5, 6, 2), "i": whole(-5, 5, 3, 1),
                               "j": whole(-6, 6, 1, 4)},
         lambda self, i, j: self[i, j], {"indices": ["i", "j"]}),
    Case("aten.index.Tensor", {"self": floats(5, 6, 2), "i": whole(-6, 6, 7)},
         lambda self, i: self[:, i], {"indices": [None, "i"]}),
    Case("aten.index_put.default", {"self": floats(5, 6), "i": np.array([4, -5, 2]),
                                    "values": floats(3, 6)},
         lambda self, i, values: put(self, i, values), {"indices": ["i"]}),
    Case("aten.index_put.default", {"self": floats(5, 6), "i": whole(0, 5, 8),
                                    "j": whole(0, 6, 8), "values": floats(8)},
         lambda self, i, j, values: put(self, (i, j), values, add=True),
         {"indices": ["i", "j"], "accumulate": True}),
    Case("aten.arange.start_step", {}, lambda: np.arange(3, 12, 2),
         {"start": 3, "end": 12, "step": 2}),
    Case("aten.new_full.default", {"self": floats(2)}, lambda self: np.full((3, 2), 7.0, "f4"),
         {"size": [3, 2], "fill_value": 7.0}),
    Case("aten.cumsum.default", {"self": whole(0, 2, 4, 5) > 0},
         lambda self: np.cumsum(self, 1), {"dim": 1}),
    Case("aten.cumsum.default", {"self": whole(0, 9, 6).astype("i4")},
         lambda self: np.cumsum(self, 0).astype("i4"), {"dim": 0, "dtype": dtype("i32")}),
    Case("aten._softmax.default", {"self": floats(3, 5)},
         lambda self: np.exp(self) / np.exp(self).sum(1, keepdims=True),
         {"dim": -1, "half_to_float": False}),
    Case("aten.sum.dim_IntList", {"self": whole(0, 2, 4, 5) > 0}, lambda self: self.sum(1),
         {"dim": [1], "keepdim": False}),
    Case("aten.mean.dim", {"self": floats(4, 5)}, lambda self: self.mean(0, keepdims=True),
         {"dim": [0], "keepdim": True}),
    Case("aten.pow.Tensor_Scalar", {"self": floats(6)}, lambda self: self * self, {"exponent": 2}),
    Case("aten.div.Tensor_mode", {"self": whole(-9, 9, 8), "other": whole(1, 5, 8)},
         lambda self, other: np.trunc(self / other).astype("i8"), {"rounding_mode": "trunc"}),
    Case("aten.div.Tensor_mode", {"self": whole(-9, 9, 8), "other": whole(1, 5, 8)},
         lambda self, other: self // other, {"rounding_mode": "floor"}),
    Case("aten.scatter.value", {"self": floats(3, 4), "index": whole(0, 4, 3, 1)},
         lambda self, index: put(self, (np.arange(3)[:, None], index), 2.5),
         {"dim": 1, "value": 2.5}),
    Case("aten.histc.default", {"self": whole(-1, 9, 50)},
         lambda self: np.histogram(self, 4, (0, 8))[0], {"bins": 4, "min": 0, "max": 8}),
    Case("aten.native_layer_norm.default", {"input": floats(3, 8), "weight": floats(8)},
         lambda input, weight: [
             (input - input.mean(1, keepdims=True))
             / np.sqrt(input.var(1, keepdims=True) + 1e-5) * weight,
             input.mean(1, keepdims=True), 1 / np.sqrt(input.var(1, keepdims=True) + 1e-5)],
         {"normalized_shape": [8], "bias": None, "eps": 1e-5}),
    Case("aten.native_group_norm.default", {"input": floats(2, 6, 5)},
         lambda input: [
             ((g := input.reshape(2, 3, 2, 5)) - (m := g.mean((2, 3), keepdims=True)))
             .__truediv__(np.sqrt(g.var((2, 3), keepdims=True) + 1e-5)).reshape(2, 6, 5),
             m.reshape(2, 3), 1 / np.sqrt(g.var((2, 3)) + 1e-5)],
         {"weight": None, "bias": None, "N": 2, "C": 6, "HxW": 5, "group": 3, "eps": 1e-5}),
    Case("aten._native_batch_norm_legit_functional.default",
         {"input": floats(4, 3, 5), "weight": floats(3), "bias": floats(3),
          "running_mean": floats(3), "running_var": floats(3)},
         lambda input, weight, bias, running_mean, running_var: [
             (input - input.mean((0, 2))[:, None])
             / np.sqrt(input.var((0, 2)) + 1e-5)[:, None] * weight[:, None] + bias[:, None],
             input.mean((0, 2)), 1 / np.sqrt(input.var((0, 2)) + 1e-5),
             0.9 * running_mean + 0.1 * input.mean((0, 2)),
             0.9 * running_var + 0.1 * input.var((0, 2), ddof=1)],
         {"training": True, "momentum": 0.1, "eps": 1e-5}),
    Case("aten.conv2d.default", {"input": X, "weight": PW, "bias": floats(5)},
         lambda input, weight, bias: patches(input, weight, bias), {"stride": [4, 4]},
         tolerance=2e-5),
    Case("aten.conv1d.default", {"input": SEQ, "weight": DW, "bias": floats(4)},
         lambda input, weight, bias: depthwise(input, weight, bias, 3), CONV),
    Case("aten.conv2d.padding", {"input": floats(2, 4, 5, 6), "weight": floats(4, 1, 3, 3)},
         lambda input, weight: sum(
             np.pad(input, ((0, 0), (0, 0), (1, 1), (1, 1)))[:, :, i : i + 5, j : j + 6]
             * weight[:, 0, i, j, None, None] for i in range(3) for j in range(3)),
         {"bias": None, "stride": [1, 1], "padding": "same", "groups": 4}),
    Case("aten.embedding.default", {"weight": floats(9, 4), "indices": whole(0, 9, 2, 3)},
         lambda weight, indices: weight[indices], {"padding_idx": 0, "sparse": True}),
    Case("aten.scaled_dot_product_attention.default",
         {"query": Q, "key": K[:1, :1], "value": V[:1, :1]},
         lambda query, key, value: attention(query, key, value)[0], tolerance=1e-5),
    Case("aten.convolution.default", {"input": floats(2, 3, 4, 4), "weight": floats(5, 3, 1, 1),
                                      "bias": floats(5)},
         lambda input, weight, bias: patches(input, weight, bias),
         {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "transposed": False,
          "output_padding": [0, 0], "groups": 1}),
    Case("aten.convolution_backward.default",
         {"grad_output": floats(2, 4, 13), "input": SEQ, "weight": DW},
         lambda grad_output, input, weight: depthwise_backward(grad_output, input, weight, 3),
         {"bias_sizes": [4], **CONV, **BACK}, tolerance=2e-5),
    Case("aten.convolution_backward.default",
         {"grad_output": floats(2, 5, 2, 2), "input": X, "weight": PW},
         lambda grad_output, input, weight: patches_backward(grad_output, input, weight),
         {"bias_sizes": [5], **PATCH, **BACK}, tolerance=2e-5),
    Case("aten._scaled_dot_product_flash_attention_for_cpu.default",
         {"query": Q, "key": K, "value": V, "attn_mask": MASK[None, None]},
         lambda query, key, value, attn_mask: [*attention(query, key, value, attn_mask)[:2]],
         tolerance=1e-5),
    Case("aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
         {"grad_out": G, "query": Q, "key": K, "value": V, "out": OUT, "logsumexp": LSE,
          "attn_mask": MASK},
         lambda grad_out, query, key, value, out, **_: attention_backward(
             grad_out, query, key, value, out),
         {"dropout_p": 0.0, "is_causal": False}, tolerance=2e-5),
    Case("aten.scaled_dot_product_attention.default",
         {"query": Q[0], "key": K[0], "value": V[0]},
         lambda query, key, value: attention(query, key, value)[0], tolerance=1e-5),
    Case("aten.max.dim", {"self": floats(3, 5)}, lambda self: [self.max(1), self.argmax(1)],
         {"dim": 1, "keepdim": False}),
    Case("aten.outer.default", {"self": floats(3), "vec2": floats(4)},
         lambda self, vec2: np.outer(self, vec2)),
    Case("aten.where.Scalar", {"condition": whole(0, 2, 5) > 0},
         lambda condition: np.where(condition, np.float32(1.5), np.float32(-2)),
         {"self": 1.5, "other": -2.0}),
    Case("aten.pixel_shuffle.default", {"self": floats(2, 8, 3, 2)},
         lambda self: (
             self.reshape(2, 2, 2, 2, 3, 2).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 6, 4)),
         {"upscale_factor": 2}),
    Case("aten.meshgrid.indexing", {"one": floats(3), "two": floats(4)},
         lambda one, two: [*np.meshgrid(one, two, indexing="xy")],
         {"tensors": ["one", "two"], "indexing": "xy"}),
    *(
        Case("aten.einsum.default", {"one": floats(*shapes[0]), "two": floats(*shapes[1])},
             lambda one, two, e=equation: np.einsum(e, one, two),
             {"tensors": ["one", "two"], "equation": equation}, tolerance=1e-5)
        for equation, shapes in {
            "bqhd,bkhd->bhqk": ((2, 3, 4, 5), (2, 6, 4, 5)),
            "abc,cde->abde": ((2, 3, 4), (4, 5, 6)),
            "abc,abc->b": ((2, 3, 4), (2, 3, 4)),
            "i,j->ij": ((3,), (4,)),
            "bij,kj->kbi": ((2, 3, 4), (5, 4)),
        }.items()
    ),
    Case("aten.max_pool2d.default", {"self": floats(2, 3, 5, 6)},
         lambda self: windows(self, 2).max((4, 5)).transpose(0, 3, 1, 2), {"kernel_size": [2, 2]}),
    Case("aten.avg_pool2d.default", {"self": floats(2, 3, 5, 6)},
         lambda self: windows(self, 2).mean((4, 5)).transpose(0, 3, 1, 2),
         {"kernel_size": [2], "stride": [2, 2]}),
    Case("aten.adaptive_avg_pool2d.default", {"self": floats(2, 3, 4, 6)},
         lambda self: self.reshape(2, 3, 2, 2, 1, 6).mean((3, 5)), {"output_size": [2, 1]}),
    Case("aten.upsample_nearest2d.vec", {"input": floats(1, 2, 3, 2)},
         lambda input: input.repeat(2, 2).repeat(3, 3), {"output_size": [6, 6]}),
    Case("aten.rms_norm.default", {"input": SMALL},
         lambda input: (
             input / np.sqrt((input.astype("f8") ** 2).mean(1, keepdims=True) + 2.0**-23)
         ).astype("f2"),
         {"normalized_shape": [8]}, ("f16",), 1e-3),
    Case("aten.prelu.default", {"self": floats(2, 3, 4), "weight": floats(3)},
         lambda self, weight: np.where(self > 0, self, self * weight[:, None])),
    Case("aten.instance_norm.default", {"input": floats(2, 3, 8), "weight": floats(3)},
         lambda input, weight: standard(input, 2) * weight[:, None],
         {"bias": None, "running_mean": None, "running_var": None, "use_input_stats": True,
          "momentum": 0.1, "eps": 1e-5, "cudnn_enabled": True}, tolerance=1e-5),
    Case("aten._native_batch_norm_legit.no_stats", {"input": floats(4, 3, 5), "bias": floats(3)},
         lambda input, bias: [standard(input, (0, 2)) + bias[:, None], input.mean((0, 2)),
                              1 / np.sqrt(input.var((0, 2)) + 1e-5)],
         {"weight": None, "training": True, "momentum": 0.1, "eps": 1e-5}, tolerance=1e-5),
    Case("aten._weight_norm.default", {"v": floats(3, 2, 4), "g": floats(3, 1, 1)},
         lambda v, g: v * (g / np.sqrt((v * v).sum((1, 2), keepdims=True))), {"dim": 0}),
    Case("aten.embedding_bag.padding_idx", BAG,
         lambda weight, indices, offsets: [bags(weight[indices], [4, 0, 3], offsets)],
         {"mode": 0}),
    Case("aten._embedding_bag.default", BAG,
         lambda weight, indices, offsets: [
             bags(weight[indices], [4, 0, 3], offsets) / np.array([[4], [1], [3]], "f4")],
         {"mode": 1}),
    Case("aten.embedding_bag.padding_idx", {**BAG, "per_sample_weights": RATES},
         lambda weight, indices, offsets, per_sample_weights: [
             bags(weight[indices] * (per_sample_weights * (indices != 2))[:, None], [4, 0, 3],
                  offsets)],
         {"mode": 0, "padding_idx": 2, "include_last_offset": False}),
    Case("aten.batch_norm.default",
         {"input": floats(4, 3, 5), "weight": floats(3), "bias": floats(3),
          "running_mean": floats(3), "running_var": floats(3) ** 2},
         lambda input, weight, bias, running_mean, running_var: (
             (input - running_mean[:, None]) / np.sqrt(running_var + 1e-5)[:, None]
             * weight[:, None] + bias[:, None]),
         {"training": False, "momentum": 0.1, "eps": 1e-5, "cudnn_enabled": True},
         tolerance=1e-5),
    Case("aten.linalg_vector_norm.default", {"self": floats(3, 4)},
         lambda self: np.sqrt((self * self).sum(1, keepdims=True)),
         {"ord": 2, "dim": [1], "keepdim": True}),
    Case("aten.index_copy.default", {"self": floats(3, 5), "index": np.array([4, 0]),
                                     "source": floats(3, 2)},
         lambda self, index, source: put(self, np.s_[:, index], source), {"dim": 1}),
    Case("aten.cross_entropy_loss.default", {"self": floats(4, 6), "target": whole(0, 6, 4)},
         lambda self, target: np.array(
             (np.log(np.exp(self).sum(1)) - self[np.arange(4), target]).mean()),
         {"weight": None, "reduction": 1, "ignore_index": -100}),
    Case("aten.nll_loss_forward.default", {"self": floats(4, 6), "target": whole(0, 6, 4)},
         lambda self, target: [
             np.array(-self[np.arange(4), target].sum()), np.array(np.float32(4.0))],
         {"weight": None, "reduction": 2, "ignore_index": -100}),
    Case("aten._safe_softmax.default", {"self": MASKED}, lambda self: safe_softmax(self),
         {"dim": -1}),
    Case("aten._conj.default", {"self": WAVES}, lambda self: self.conj()),
    Case("aten.linalg_vector_norm.default", {"self": WAVES},
         lambda self: np.sqrt((abs(self) ** 2).sum(1)), {"ord": 2, "dim": [1]}),
    Case("aten.max_pool3d.default", {"self": floats(1, 2, 4, 4, 4)},
         lambda self: self.reshape(1, 2, 2, 2, 2, 2, 2, 2).max((3, 5, 7)), {"kernel_size": [2]}),
    Case("aten.einsum.default", {"operand1": floats(3, 4), "operand0": floats(3)},
         lambda operand1, operand0: np.einsum("ij,i->i", operand1, operand0),
         {"tensors": ["operand1", "operand0"], "equation": "ij,i->i"}),
]  # fmt: skip


def input_name(name: str) -> str:
    """Return what an input is called: its own name where a rule has the same for operands."""
    return name if name.startswith("operand") else f"in_{name}"


def exported(case: Case) -> tuple[Export, Any]:
    """Return a program of one call, and the values that it gives."""
    export = Export()
    tensors: dict[str, Tensor] = {
        name: export.input(input_name(name), of_numpy(np.asarray(a).dtype).name, np.shape(a))
        for name, a in case.tensors.items()
    }
    expected = case.expected(**case.tensors)
    listed = expected if isinstance(expected, list) else [expected]
    types = case.types or tuple(
        "f32" if np.asarray(e).dtype.kind == "f" or "histc" in case.target
        else of_numpy(np.asarray(e).dtype).name
        for e in listed
    )  # fmt: skip
    items = {str(o) for other in case.others.values() if isinstance(other, list) for o in other}
    named: dict[str, Any] = {n: t for n, t in tensors.items() if n not in items}
    for name, other in case.others.items():
        is_list = isinstance(other, list) and any(isinstance(o, str) for o in other)
        named[name] = [tensors.get(str(o)) for o in other] if is_list else other
    results = [(t, np.shape(e)) for t, e in zip(types, listed, strict=True)]
    made = export.node(case.target, results, **named)
    export.output(*(made if isinstance(made, list) else [made]))
    return export, listed


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.target.removeprefix("aten."))
def test_a_rule_computes_what_aten_does(case: Case, tmp_path: Path) -> None:
    export, expected = exported(case)
    (found,) = imported(str(export.save(tmp_path / "one.pt2")))
    inputs = {n: np.asarray(case.tensors[e.key.removeprefix("in_")]) for n, e in found.model.inputs}
    results = evaluate(found.fusion, inputs, dict(found.fusion.hints))
    for name, value in zip(found.model.returned, expected, strict=True):
        assert isinstance(name, str)
        result = np.asarray(results[name])
        assert result.shape == np.shape(value)
        if np.asarray(value).dtype.kind == "f":
            limit = case.tolerance * np.abs(value).max()
            assert not np.isnan(result).any()
            assert np.abs(result - value).max() <= limit
        else:
            assert np.array_equal(result, value)
