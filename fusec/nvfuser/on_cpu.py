"""Outputs computed only from inputs on the CPU, which nvFuser leaves on the CPU."""

from __future__ import annotations

import sys

from fusec.diagnostics import Unsupported
from fusec.ir.graph import Fusion


def check_outputs(fusion: Fusion) -> None:
    """Raise Unsupported if some computed outputs would be on the CPU, and others not.

    fusec writes all results to the GPU; nvFuser rejects such a fusion too.
    """
    on_host = {i.value for i in fusion.inputs if i.on_cpu}
    if not on_host:
        return
    for node in fusion.nodes:
        tensors = [v for v in node.inputs if not v.is_scalar]
        if tensors and all(v in on_host for v in tensors):
            on_host.update(node.outputs)
    outputs = [o.value for o in fusion.outputs]
    computed = [v for v in outputs if v in on_host and v in fusion.producer]
    if computed and not all(v in on_host for v in outputs):
        raise Unsupported(
            "KernelExecutor does not support the Fusion provided. "
            f"Output `{computed[0].name}` is computed from tensors in host memory alone",
            help="compute it outside the fusion, or pass that input on the GPU",
        )


def has_gpu() -> bool:
    """Return whether PyTorch is loaded and sees a GPU."""
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "cuda") and torch.cuda.is_available()
