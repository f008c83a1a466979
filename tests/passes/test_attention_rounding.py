"""Attention rounds weights, gradients of scores and results, as FlashAttention does."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fusec import FusionDefinition
from fusec.ir.dtype import BF16, F32
from fusec.parse.dsl.datatype import DataType

Array = NDArray[np.float64]
SHAPE = (1, 2, 96, 64)
SCALE = 1 / 8


def rounded(x: Array) -> Array:
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


def turned(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


def gradients(q: Array, k: Array, v: Array, grad: Array, *, halves: bool) -> list[Array]:
    """Return o and its gradients; with `halves` rounded where FlashAttention rounds."""
    keep = rounded if halves else np.asarray
    scores = np.where(np.tri(SHAPE[-2], dtype=bool), q @ turned(k) * SCALE, -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    total = powers.sum(axis=-1, keepdims=True)
    out = keep((keep(powers) @ v) / total)
    shares = powers / total
    share = (grad * out).sum(axis=-1, keepdims=True)
    pulls = keep(shares * (grad @ turned(v) - share))
    results = pulls @ k * SCALE, turned(pulls) @ q * SCALE, turned(keep(shares)) @ grad
    return [out, *map(keep, results)]


def definition() -> FusionDefinition:
    with FusionDefinition("attention") as fd:
        q, k, v, grad = (
            fd.define_tensor(SHAPE, contiguity=True, dtype=DataType.BFloat16) for _ in range(4)
        )
        out, lse, seed, offset = fd.ops.sdpfa_fwd(q, k, v, is_causal=True)
        fd.add_output(out)
        args = (grad, q, k, v, out, lse, 0.0, True, seed, offset)
        for result in fd.ops.sdpfa_bwd(*args):
            fd.add_output(result)
    return fd


def test_errors_are_those_of_flash_attention() -> None:
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(SHAPE).astype(ml_dtypes.bfloat16) for _ in range(4)]
    wide = [x.astype(np.float64) for x in given]
    exact = gradients(*wide, halves=False)
    flash = gradients(*wide, halves=True)
    found = [np.asarray(x, np.float64) for x in definition().execute(given)]
    for own, peer, true in zip(found, flash, exact, strict=True):
        error, expected = (np.sqrt(np.mean((x - true) ** 2)) for x in (own, peer))
        # Weights are rounded once divided here, and before in FlashAttention: 1.2 for the output.
        assert error < 1.25 * expected


def test_products_of_scores_are_not_rounded() -> None:
    kinds = [n.output.dtype for n in definition().graph().nodes if n.op.name == "matmul"]
    assert kinds == [F32, BF16, F32, F32, BF16, BF16, BF16]
