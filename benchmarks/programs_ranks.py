"""Fusions of several ranks that benchmarks measure, and arrays of the ranks of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

DEPTH, HIDDEN = 8192, 8192
TOKENS, WIDE = 8192, 28672

Way = Callable[[], Any]


# Fusions, of whole shapes; 0 ranks: on one GPU.


def gather_matmul(ranks: int, rows: int, depth: int, columns: int, *, slices: int = 0) -> str:
    """Return the matmul of gathered rows and a rank's own columns, in a loop over slices if any."""
    stream = f", stream: {{0: {slices}}}" if slices else ""
    return (
        f"fusion: gather_matmul\nmesh: [{ranks}]\n"
        f"dims: {{M: {rows}, K: {depth}, N: {ranks * columns}}}\ninputs:\n"
        '  x: {type: "bf16[M, K]", shard: {0: mesh}}\n'
        '  w: {type: "bf16[K, N]", shard: {1: mesh}}\n'
        f"ops:\n  - y = matmul(x, w)\noutputs:\n  - y: {{shard: {{1: mesh}}{stream}}}\n"
    )


def matmul_scatter(ranks: int, rows: int, depth: int, columns: int, *, slices: int = 0) -> str:
    """Return a matmul whose sum over the ranks is scattered by rows; `depth` is a rank's own."""
    stream = f", stream: {{0: {slices}}}" if slices else ""
    return (
        f"fusion: matmul_scatter\nmesh: [{ranks}]\n"
        f"dims: {{M: {rows}, K: {ranks * depth}, N: {columns}}}\ninputs:\n"
        f'  x: {{type: "bf16[M, K]", shard: {{1: mesh}}{stream}}}\n'
        '  w: {type: "bf16[K, N]", shard: {0: mesh}}\n'
        "ops:\n  - y = matmul(x, w)\noutputs:\n  - y: {shard: {0: mesh}}\n"
    )


def product(rows: int, depth: int, columns: int) -> str:
    """Return a product on one GPU."""
    return (
        f"fusion: product\ndims: {{M: {rows}, K: {depth}, N: {columns}}}\n"
        "inputs:\n  x: bf16[M, K]\n  w: bf16[K, N]\nops:\n  - y = matmul(x, w)\noutputs: [y]\n"
    )


def gathered(ranks: int, rows: int, depth: int) -> str:
    """Return the rows of all ranks."""
    return (
        f"fusion: gathered\nmesh: [{ranks}]\ndims: {{M: {rows}, K: {depth}}}\ninputs:\n"
        '  x: {type: "bf16[M, K]", shard: {0: mesh}}\n'
        "ops:\n  - y = set(x)\noutputs:\n  - y: {shard: {}}\n"
    )


def total(ranks: int, elements: int) -> str:
    """Return the sum of what all ranks have."""
    return (
        f"fusion: total\nmesh: [{ranks}]\ndims: {{N: {elements}}}\ninputs:\n"
        f'  x: {{type: "bf16[{ranks}, N]", shard: {{0: mesh}}}}\n'
        "ops:\n  - y = sum(x, dims=[0])\noutputs: [y]\n"
    )


def norm(ranks: int, rows: int) -> str:
    """Return the RMS norm of a residual and a sum, of all ranks where there are several."""
    mesh = f"mesh: [{ranks}]\n" if ranks else ""
    dims = f"R: {ranks}, " if ranks else ""
    given = '{type: "bf16[R, B, H]", shard: {0: mesh}}' if ranks else "bf16[B, H]"
    total = "sum(x, dims=[0])" if ranks else "x"
    return (
        f"fusion: norm\n{mesh}dims: {{{dims}B: {rows}, H: {HIDDEN}}}\n"
        f"inputs:\n  x: {given}\n  residual: bf16[B, H]\n  weight: bf16[H]\nops:\n"
        f"  - r = add({total}, residual)\n  - f = cast(r, f32)\n"
        "  - v = mean(mul(f, f), dims=[1], keepdim=true)\n"
        "  - y = cast(mul(mul(f, rsqrt(add(v, 1e-5))), weight), bf16)\n"
        "  - s = cast(r, bf16)\noutputs: [y, s]\n"
    )


def mlp(
    ranks: int, tokens: int = TOKENS, depth: int = DEPTH, wide: int = WIDE, *, slices: int = 0
) -> str:
    """Return a gated MLP, whose weights are divided where there are ranks.

    slices: of its rows, whose sums over ranks are taken while other slices are computed. Of three
    and more ranks the rows are multiples, so that each may add some of them.
    """
    stream = f": {{stream: {{0: {slices}}}}}" if slices else ""
    rows = f"{{default: {tokens}, multiple_of: {ranks}}}" if ranks > 2 else f"{tokens}"
    mesh = f"mesh: [{ranks}]\n" if ranks else ""

    def shard(at: int) -> str:
        return f", shard: {{{at}: mesh}}" if ranks else ""

    return (
        f"fusion: mlp\n{mesh}dims: {{T: {rows}, D: {depth}, F: {wide}}}\ninputs:\n"
        "  x: bf16[T, D]\n"
        f'  gate: {{type: "bf16[F, D]"{shard(0)}}}\n  up: {{type: "bf16[F, D]"{shard(0)}}}\n'
        f'  down: {{type: "bf16[D, F]"{shard(1)}}}\n'
        "ops:\n  - g = linear(x, gate)\n  - u = linear(x, up)\n  - h = mul(silu(g), u)\n"
        f"  - y = linear(h, down)\noutputs:\n  - y{stream}\n"
    )


def two_axes(data: int, tensor: int, tokens: int, depth: int, wide: int) -> str:
    """Return two linear layers, sharded by tokens and by columns: a mesh of two axes."""
    return (
        f"fusion: two_axes\nmesh: {{dp: {data}, tp: {tensor}}}\n"
        f"dims: {{T: {tokens}, D: {depth}, F: {wide}}}\ninputs:\n"
        '  x: {type: "bf16[T, D]", shard: {0: dp}}\n'
        '  up: {type: "bf16[F, D]", shard: {0: tp}}\n'
        '  down: {type: "bf16[D, F]", shard: {1: tp}}\n'
        "ops:\n  - h = relu(linear(x, up))\n  - y = linear(h, down)\n"
        "outputs:\n  - y: {shard: {0: dp}}\n"
    )


def turned(ranks: int, rows: int, columns: int) -> str:
    """Return rows that become columns of the ranks: an all-to-all."""
    return (
        f"fusion: turned\nmesh: [{ranks}]\ndims: {{B: {rows}, H: {columns}}}\ninputs:\n"
        '  x: {type: "bf16[B, H]", shard: {0: mesh}}\n'
        "ops:\n  - d = add(x, 1.0)\n  - y = mul(d, 3.0)\noutputs:\n  - y: {shard: {1: mesh}}\n"
    )


# Measuring.


@dataclass(frozen=True)
class Ranks:
    """The ranks of this run, this one's generator of numbers, and PyTorch."""

    size: int
    rank: int
    torch: Any
    draw: Any

    @property
    def distributed(self) -> Any:
        """Return PyTorch's module."""
        return self.torch.distributed

    @property
    def group(self) -> str:
        """Return the name of the group of all."""
        return self.distributed.group.WORLD.group_name

    def random(self, *shape: int) -> Any:
        """Return normal numbers, others on each rank, of a variance that products keep."""
        torch = self.torch
        drawn = torch.randn(shape, device="cuda", dtype=torch.bfloat16, generator=self.draw)
        return drawn / shape[0] ** 0.5

    def shared(self, *shape: int) -> Any:
        """Return the same numbers on all ranks."""
        drawn = self.random(*shape)
        self.distributed.broadcast(drawn, 0)
        return drawn

    def gathered(self, part: Any) -> Any:
        """Return the rows of all ranks, by NCCL."""
        whole = part.new_empty((self.size * part.shape[0], *part.shape[1:]))
        self.distributed.all_gather_into_tensor(whole, part)
        return whole

    def scattered(self, parts: Any) -> Any:
        """Return this rank's rows of the sum of all, by NCCL."""
        own = parts.new_empty((parts.shape[0] // self.size, *parts.shape[1:]))
        self.distributed.reduce_scatter_tensor(own, parts)
        return own

    def mean(self, buffer: Any) -> Any:
        """Return a buffer with the mean of all ranks, by NCCL: sums in place would grow."""
        self.distributed.all_reduce(buffer, self.distributed.ReduceOp.AVG)
        return buffer


def errors(ranks: Ranks, ways: Mapping[str, Way], right: Any) -> dict[str, float]:
    """Return the error of each, as a part of the norm of what is right, on the worst rank."""
    found: dict[str, float] = {}
    for name, way in ways.items():
        result = way()
        own = (result.double() - right.double()).norm() / right.double().norm()
        ranks.distributed.all_reduce(own, ranks.distributed.ReduceOp.MAX)
        found[name] = float(own)
    return found
