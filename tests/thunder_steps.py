"""Trains a GPT through Thunder, whose nvFuser is fusec, and says how far it is from fp64.

    python tests/thunder_steps.py --dtype float32 --gemms inside --steps 20 --regions

For each parameter: the error of the first step's gradient, Thunder's and eager PyTorch's, over the
norm of the gradient in fp64. With --regions, for each call of a region: its outputs against fusec's
fp64 reference of the same inputs. tests/gpu/test_gpu_thunder.py holds both to bounds.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import fusec.nvfuser

fusec.nvfuser.install()  # before Thunder looks for nvFuser

import numpy as np  # noqa: E402
import thunder  # noqa: E402
import torch  # noqa: E402
from thunder.executors import nvfuserex  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from fusec.nvfuser.definition import DirectDefinition  # noqa: E402

OVERRIDES = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
"""Variables that give eager PyTorch TF32 products, whatever a program sets."""
VOCABULARY = 65


class Block(nn.Module):
    """Attention and a multilayer perceptron, each behind a layer norm."""

    def __init__(self, width: int, heads: int, sdpa: bool) -> None:
        """Have `heads` heads of width / heads features; sdpa: call PyTorch's attention."""
        super().__init__()
        self.heads, self.sdpa = heads, sdpa
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        """Return [batch, length, width] of the same."""
        b, t, d = x.shape
        split = self.qkv(self.norm1(x)).split(d, dim=2)
        q, k, v = (h.view(b, t, self.heads, d // self.heads).transpose(1, 2) for h in split)
        if self.sdpa:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * (d // self.heads) ** -0.5
            seen = torch.ones(t, t, dtype=torch.bool, device=x.device).tril()
            y = functional.softmax(scores.masked_fill(~seen, float("-inf")), dim=-1) @ v
        x = x + self.out(y.transpose(1, 2).contiguous().view(b, t, d))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """A small GPT that returns its loss."""

    def __init__(self, length: int, width: int, heads: int, layers: int, sdpa: bool) -> None:
        """Take sequences of `length` tokens."""
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, sdpa) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: Any, targets: Any) -> Any:
        """Return the loss, of logits in f32 or more.

        Thunder's own cross entropy declares results in the logits' type, but computes them in f32.
        """
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if logits.dtype != torch.float64:
            logits = logits.float()
        return functional.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


@dataclass
class Trained:
    """The losses of all steps, and the gradients of the first one."""

    losses: list[float]
    gradients: dict[str, Any]


def train(call: Callable[..., Any], model: Any, batches: list[Any], lr: float) -> Trained:
    """Train a model, whose loss `call` returns, by AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    trained = Trained([], {})
    for tokens, targets in batches:
        optimizer.zero_grad()
        loss = call(tokens, targets)
        loss.backward()
        if not trained.losses:
            known = ((n, p.grad.double().clone()) for n, p in model.named_parameters())
            trained.gradients = dict(known)
        optimizer.step()
        trained.losses.append(loss.item())
    return trained


def note_regions(found: list[dict[str, Any]]) -> None:
    """Have each call of a region compared with fusec's reference of the same inputs."""
    from fusec.driver import reference
    from fusec.parse.dsl.inputs import adopt
    from fusec.run.inputs import bind_sizes

    plain = DirectDefinition.execute

    def execute(self: Any, inputs: Any, **options: Any) -> Any:
        given = list(inputs)
        fusion = self.graph_for(given)
        arrays = {i.value.name: a.array() for i, a in zip(fusion.inputs, adopt(given), strict=True)}
        arrays = {name: np.array(a) for name, a in arrays.items()}
        results = plain(self, given, **options)
        expected = reference(fusion, arrays, bind_sizes(fusion, arrays))
        for output, result in zip(fusion.outputs, results, strict=True):
            wanted = torch.from_numpy(np.asarray(expected[output.value.name], np.float64))
            error = torch.linalg.norm(result.detach().double().cpu() - wanted)
            share = float(error / torch.linalg.norm(wanted).clamp_min(1e-30))
            found.append({"output": f"{output.value.name}: {output.value.type}", "error": share})
        return results

    DirectDefinition.execute = execute


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Return the errors of a training, as the report names them."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(0)
    dtype = getattr(torch, args.dtype)
    model = Gpt(args.length, args.width, args.heads, args.layers, args.sdpa).to(args.device, dtype)
    eager, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    shape = (args.batch, args.length)
    tokens = [torch.randint(0, VOCABULARY, shape, device=args.device) for _ in range(2)]
    batches = [tuple(tokens)] * args.steps  # one batch, learnt by heart: losses fall fast
    regions: list[dict[str, Any]] = []
    if args.regions:
        note_regions(regions)
    inside = args.gemms == "inside"
    options = dict.fromkeys(("nv_enable_linear", "nv_enable_matmul", "nv_enable_sdpa"), inside)
    compiled = thunder.jit(model, executors=[nvfuserex.nvfuserex], **options)
    ours = train(compiled, model, batches, args.lr)
    theirs, wanted = (train(m, m, batches, args.lr) for m in (eager, exact))

    def gradient_errors(trained: Trained) -> dict[str, float]:
        pairs = ((n, trained.gradients[n], g) for n, g in wanted.gradients.items())
        return {n: float((own - g).norm() / g.norm()) for n, own, g in pairs}

    def drift(trained: Trained) -> float:
        return max(abs(a - b) for a, b in zip(trained.losses, wanted.losses, strict=True))

    traces = (*thunder.last_traces(compiled)[-1:], *thunder.last_backward_traces(compiled)[-1:])
    count = sum(b.sym.name.startswith("nvFusion") for t in traces for b in t.bound_symbols)
    return {
        "overridden": [name for name in OVERRIDES if name in os.environ], "fusions": count,
        "gradients": {"thunder": gradient_errors(ours), "eager": gradient_errors(theirs)},
        "losses": {"thunder": drift(ours), "eager": drift(theirs)}, "regions": regions,
    }  # fmt: skip


def main() -> None:
    """Print the errors as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--gemms", choices=("inside", "outside"), default="inside")
    parser.add_argument("--sdpa", action="store_true")
    parser.add_argument("--regions", action="store_true")
    for name, default in {"steps": 1, "batch": 4, "length": 128, "width": 256, "heads": 8,
                          "layers": 2}.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lr", type=float, default=1e-3)
    print(json.dumps(run(parser.parse_args()), indent=1))


if __name__ == "__main__":
    main()
