"""Exchanges beside kernels, timed on several GPUs: called programs, and what PyTorch has.

torchrun --nproc-per-node N -m benchmarks.programs_ranks [--out FILE]      needs N GPUs and PyTorch

Times are of the GPU, between events around CALLS calls, in microseconds: medians over rounds in
turn of what is compared, of the slowest rank. Results are compared with PyTorch's by NCCL.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import fusec
from benchmarks.segmentation import ROOT, read, tree, write
from fusec.call.memory import Arena
from fusec.call.record import Record
from fusec.hostir.instructions import Allocate, Collective, Wait
from fusec.hostir.program import Buffer, HostProgram, dense_strides
from fusec.ir.dim import dim
from fusec.ir.dtype import BF16
from fusec.ir.sharding import Mesh
from fusec.run.device import open_device
from fusec.run.execute import Executable
from fusec.run.process import member_of

OUT = ROOT / "benchmarks" / "results" / "h200-programs.json"
CALLS, WARM, ROUNDS = 10, 3, 25
ROWS, DEPTH, COLUMNS = (8192, 16384), 8192, (1024, 2048, 4096)
NORM_ROWS, HIDDEN = (1, 8, 64, 512), 8192
TOKENS, WIDE = 8192, 28672
LEAST, MOST = 1 << 10, 1 << 28
"""Bytes of an all-reduce."""

Way = Callable[[], Any]


# Fusions, of whole shapes; 0 ranks: on one GPU.


def gather_matmul(ranks: int, rows: int, depth: int, columns: int, *, looped: bool) -> str:
    """Return the product of gathered rows and a rank's own columns, by blocks of a ring or not."""
    stream = f", stream: {{0: {ranks}}}" if looped else ""
    return (
        f"fusion: gather_matmul\nmesh: [{ranks}]\n"
        f"dims: {{M: {rows}, K: {depth}, N: {ranks * columns}}}\ninputs:\n"
        '  x: {type: "bf16[M, K]", shard: {0: mesh}}\n'
        '  w: {type: "bf16[K, N]", shard: {1: mesh}}\n'
        f"ops:\n  - y = matmul(x, w)\noutputs:\n  - y: {{shard: {{1: mesh}}{stream}}}\n"
    )


def matmul_scatter(ranks: int, rows: int, depth: int, columns: int, *, looped: bool) -> str:
    """Return a product whose sum over the ranks is scattered by rows; `depth` is a rank's own."""
    stream = f", stream: {{0: {ranks}}}" if looped else ""
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


def mlp(ranks: int) -> str:
    """Return a gated MLP, whose weights are divided where there are ranks."""
    mesh = f"mesh: [{ranks}]\n" if ranks else ""

    def shard(at: int) -> str:
        return f", shard: {{{at}: mesh}}" if ranks else ""

    return (
        f"fusion: mlp\n{mesh}dims: {{T: {TOKENS}, D: {DEPTH}, F: {WIDE}}}\ninputs:\n"
        "  x: bf16[T, D]\n"
        f'  gate: {{type: "bf16[F, D]"{shard(0)}}}\n  up: {{type: "bf16[F, D]"{shard(0)}}}\n'
        f'  down: {{type: "bf16[D, F]"{shard(1)}}}\n'
        "ops:\n  - g = linear(x, gate)\n  - u = linear(x, up)\n  - h = mul(silu(g), u)\n"
        "  - y = linear(h, down)\noutputs: [y]\n"
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


def compared(ranks: Ranks, ways: Mapping[str, Way]) -> dict[str, float]:
    """Return the microseconds of a call of each, in turn, on the slowest rank."""
    cuda = ranks.torch.cuda
    start, end = (cuda.Event(enable_timing=True) for _ in range(2))
    times: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        for _ in range(WARM):
            way()
    for _ in range(ROUNDS):
        for name, way in ways.items():
            cuda.synchronize()
            ranks.distributed.barrier()
            way()
            start.record()
            for _ in range(CALLS):
                way()
            end.record()
            cuda.synchronize()
            times[name].append(start.elapsed_time(end) * 1e3 / CALLS)
    own = {name: median(found) for name, found in times.items()}
    every: list[Any] = [None] * ranks.size
    ranks.distributed.all_gather_object(every, own)
    return {name: round(max(each[name] for each in every), 2) for name in ways}


def errors(ranks: Ranks, ways: Mapping[str, Way], right: Any) -> dict[str, float]:
    """Return the error of each, as a part of the norm of what is right, on the worst rank."""
    found: dict[str, float] = {}
    for name, way in ways.items():
        result = way()
        own = (result.double() - right.double()).norm() / right.double().norm()
        ranks.distributed.all_reduce(own, ranks.distributed.ReduceOp.MAX)
        found[name] = float(own)
    return found


def contend(
    ranks: Ranks, ways: Mapping[str, Way], right: Any, parts: Mapping[str, Way] | None = None
) -> dict[str, Any]:
    """Return the errors of ways to do the same, and their times beside those of parts alone."""
    wrong = errors(ranks, ways, right)
    return {"us": compared(ranks, {**ways, **(parts or {})}), "errors": wrong}


def exchange(ranks: Ranks, kind: str, x: Any, y: Any) -> Way:
    """Return what exchanges rows of x with all ranks, into y, and runs no kernel."""
    device = open_device(ranks.torch.cuda.current_device())
    mesh = Mesh((("mesh", ranks.size),), tuple(range(ranks.size)))
    dims = {name: tuple(dim(e) for e in t.shape) for name, t in (("x", x), ("y", y))}
    buffers = tuple(
        Buffer(name, role, BF16, dims[name], dense_strides(dims[name]))
        for name, role in (("x", "input"), ("y", "output"))
    )
    reduction = "" if kind == "all_gather" else "sum"
    begun = Collective(kind, "y", "x", "mesh", ranks.size, reduction)
    program = HostProgram(kind, buffers, (), (Allocate("y"), begun, Wait("y")), ("y",))
    member = member_of(f"{kind} of {list(x.shape)}", mesh, device)
    arena = Arena(device, ranks.torch.cuda.current_stream().cuda_stream)
    record = Record(Executable(device, program, {}).among(member), {}, arena)

    def issue() -> Any:
        record.issue([x.data_ptr(), y.data_ptr()], {})
        return y

    return issue


def gathering(ranks: Ranks, rows: int, columns: int) -> dict[str, Any]:
    """Return the times of rows gathered for a product."""
    torch, size = ranks.torch, ranks.size
    x, w = ranks.random(rows // size, DEPTH), ranks.random(DEPTH, columns)
    shape = size, rows, DEPTH, columns
    loop = fusec.compile(gather_matmul(*shape, looped=True))
    sequence = fusec.compile(gather_matmul(*shape, looped=False))
    alone = fusec.compile(product(*shape[1:]))
    whole, fused = ranks.gathered(x), torch.ops.symm_mem.fused_all_gather_matmul
    ways: dict[str, Way] = {
        "loop": lambda: loop(x, w),
        "sequence": lambda: sequence(x, w),
        "symmetric memory": lambda: fused(x, [w], gather_dim=0, group_name=ranks.group)[1][0],
        "NCCL": lambda: torch.matmul(ranks.gathered(x), w),
    }
    parts: dict[str, Way] = {
        "exchange": exchange(ranks, "all_gather", x, torch.empty_like(whole)),
        "product": lambda: alone(whole, w),
    }
    return contend(ranks, ways, torch.matmul(whole, w), parts)


def scattering(ranks: Ranks, rows: int, depth: int) -> dict[str, Any]:
    """Return the times of a product whose sum is scattered."""
    torch, size = ranks.torch, ranks.size
    x, w = ranks.random(rows, depth), ranks.random(depth, DEPTH)
    shape = size, rows, depth, DEPTH
    loop = fusec.compile(matmul_scatter(*shape, looped=True))
    sequence = fusec.compile(matmul_scatter(*shape, looped=False))
    alone = fusec.compile(product(*shape[1:]))
    sums, fused = torch.matmul(x, w), torch.ops.symm_mem.fused_matmul_reduce_scatter
    ways: dict[str, Way] = {
        "loop": lambda: loop(x, w),
        "sequence": lambda: sequence(x, w),
        "symmetric memory": lambda: fused(x, w, "sum", scatter_dim=0, group_name=ranks.group),
        "NCCL": lambda: ranks.scattered(torch.matmul(x, w)),
    }
    parts: dict[str, Way] = {
        "exchange": exchange(ranks, "reduce_scatter", sums, torch.empty_like(sums[: rows // size])),
        "product": lambda: alone(x, w),
    }
    wide = torch.matmul(x.float(), w.float())
    return contend(ranks, ways, ranks.scattered(wide), parts)


def all_reduce(ranks: Ranks, size: int) -> dict[str, Any]:
    """Return times and rates of an all-reduce of so many bytes."""
    x = ranks.random(1, size // 2)
    right, buffer = x.double(), x.clone()
    ranks.distributed.all_reduce(right)
    own = {"fusec": exchange(ranks, "all_reduce", x, ranks.torch.empty_like(x))}
    found = contend(ranks, own, right, {"NCCL": lambda: ranks.mean(buffer)})
    moves = 2 * (ranks.size - 1) / ranks.size * size
    rates = {name: round(moves / us / 1e3, 2) for name, us in found["us"].items()}
    return {**found, "GB/s": rates}


def norms(ranks: Ranks, rows: int) -> dict[str, Any]:
    """Return the times of a sum over ranks, its residual and norm."""
    x, residual, weight = (
        ranks.random(rows, HIDDEN),
        ranks.shared(rows, HIDDEN),
        ranks.shared(HIDDEN),
    )
    program, kernel = fusec.compile(norm(ranks.size, rows)), fusec.compile(norm(0, rows))
    total, buffer = x.float(), x.clone()
    ranks.distributed.all_reduce(total)
    wide = total + residual
    right = wide * (wide.pow(2).mean(1, keepdim=True) + 1e-5).rsqrt() * weight
    ways: dict[str, Way] = {"fusec": lambda: program(x[None], residual, weight)[0]}
    beside = {"NCCL and a kernel": lambda: kernel(ranks.mean(buffer), residual, weight)}
    return contend(ranks, ways, right, beside)


def mlps(ranks: Ranks) -> dict[str, Any]:
    """Return the times of an MLP over all ranks and on one GPU, whose result is what is right."""
    size, rank, wide = ranks.size, ranks.rank, WIDE // ranks.size
    x, gate, up = ranks.shared(TOKENS, DEPTH), ranks.shared(WIDE, DEPTH), ranks.shared(WIDE, DEPTH)
    down = ranks.shared(DEPTH, WIDE)
    own = slice(rank * wide, (rank + 1) * wide)
    parts = gate[own].clone(), up[own].clone(), down[:, own].contiguous()
    divided, single = fusec.compile(mlp(size)), fusec.compile(mlp(0))
    ways: dict[str, Way] = {
        f"{size} ranks": lambda: divided(x, *parts),
        "one GPU": lambda: single(x, gate, up, down),
    }
    return contend(ranks, ways, single(x, gate, up, down))


def measure(ranks: Ranks) -> dict[str, Any]:
    """Return what each part measures."""
    found: dict[str, Any] = {}
    for rows in ROWS:
        for columns in COLUMNS:
            shape = f"{rows}x{DEPTH}x{columns}"
            found[f"gather_matmul_{shape}"] = gathering(ranks, rows, columns)
            shape = f"{rows}x{columns}x{DEPTH}"
            found[f"matmul_scatter_{shape}"] = scattering(ranks, rows, columns)
    size = LEAST
    while size <= MOST:
        found[f"all_reduce_{size}"] = all_reduce(ranks, size)
        size *= 4
    for rows in NORM_ROWS:
        found[f"norm_{rows}x{HIDDEN}"] = norms(ranks, rows)
    found[f"mlp_{TOKENS}x{DEPTH}x{WIDE}"] = mlps(ranks)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and let rank 0 put the results into the record."""
    parser = argparse.ArgumentParser(prog="benchmarks.programs_ranks", description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args(arguments)
    import torch
    import torch.distributed._symmetric_memory as symmetric

    cuda: Any = torch.cuda
    cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed: Any = torch.distributed
    distributed.init_process_group("nccl")
    size, rank = distributed.get_world_size(), distributed.get_rank()
    draw = torch.Generator("cuda").manual_seed(rank)
    ranks = Ranks(size, rank, torch, draw)
    symmetric.enable_symm_mem_for_group(ranks.group)
    found = measure(ranks)
    if rank == 0:
        record = {"tree": tree(), "device": cuda.get_device_name(), **found}
        write(given.out, {**read(given.out), f"ranks_{size}": record})
        for name, each in found.items():
            print(name, each)
    distributed.barrier()
    distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
