"""Writes pytorch.json: the bytes that PyTorch's min-cut partitioner saves for these graphs.

Needs PyTorch (2.13 was used): `python tests/phases/pytorch.py`. Counted are the tensors that the
forward graph hands to the backward graph, inputs among them, as `Phased.saved_bytes` counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch import Tensor
from torch._functorch.aot_autograd import aot_function
from torch.nn import functional


def norm_dropout_residual(x: Tensor, r: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Layer norm in fp32 of a residual sum after dropout."""
    s = functional.dropout(x.float(), 0.1, True) + r.float()
    return functional.layer_norm(s, (s.shape[1],), w.float(), b.float()).bfloat16()


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """A SiLU gate in fp32."""
    return (functional.silu(gate.float()) * up.float()).bfloat16()


def attention_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Masked softmax in fp32."""
    x = torch.where(mask, scores.float() * 0.125, -1e30)
    return torch.softmax(x, 2).bfloat16()


def saved_bytes(function: Callable[..., Tensor], inputs: Sequence[Tensor]) -> dict[str, Any]:
    """Return the bytes and shapes that are saved between the passes."""
    found: dict[str, Any] = {}

    def partition(joint: Any, joint_inputs: Any, *, num_fwd_outputs: int, **rest: Any) -> Any:
        parts = min_cut_rematerialization_partition(
            joint, joint_inputs, num_fwd_outputs=num_fwd_outputs, **rest
        )
        output = next(n for n in parts[0].graph.nodes if n.op == "output")
        saved = [n.meta["val"] for n in output.args[0][num_fwd_outputs:] if n is not None]
        tensors = [v for v in saved if isinstance(v, Tensor)]
        found["saved"] = [f"{v.dtype} {list(v.shape)}" for v in tensors]
        found["bytes"] = sum(v.numel() * v.element_size() for v in tensors)
        return parts

    compiled = aot_function(
        function,
        fw_compiler=lambda g, _: g,
        bw_compiler=lambda g, _: g,
        partition_fn=partition,
        decompositions=torch._decomp.core_aten_decompositions(),
    )
    compiled(*inputs).sum().backward()
    return found


def main() -> None:
    """Write the figures."""
    half = dict(dtype=torch.bfloat16)

    def grad(*shape: int) -> Tensor:
        return torch.randn(*shape, **half).requires_grad_()

    figures = {
        "norm_dropout_residual": saved_bytes(
            norm_dropout_residual, [grad(256, 1024), grad(256, 1024), grad(1024), grad(1024)]
        ),
        "swiglu": saved_bytes(swiglu, [grad(512, 2048), grad(512, 2048)]),
        "attention_softmax": saved_bytes(
            attention_softmax, [grad(8, 128, 128), torch.ones(128, 128, dtype=torch.bool).tril()]
        ),
    }
    text = json.dumps({"pytorch": torch.__version__, **figures}, indent=2) + "\n"
    Path(__file__).with_name("pytorch.json").write_text(text)


if __name__ == "__main__":
    main()
