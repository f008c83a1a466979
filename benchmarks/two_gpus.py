"""Matmuls beside collectives, and small sums, on several GPUs of one host, beside PyTorch.

torchrun --nproc-per-node 2 -m benchmarks.two_gpus [--out FILE] [--only PART ...] [--jobs N]

PARTS are written row by row. By call: what a call takes between events, host time where that is
longer; by replay: of a CUDA graph. `saved` is the part of the time that perfect overlap would
save: (sequence - fusec) / (sequence - max(exchange, matmul)), where the exchange takes no longer
than the sequence without its matmul. Times are microseconds, ratios have 95 % intervals; results
are compared with PyTorch's by NCCL. FUSEC_TREE, the hash of `git rev-parse HEAD:fusec`, is
recorded. Needs PyTorch and a GPU for each rank.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, median
from typing import Any

import fusec
from benchmarks import programs_ranks as texts
from benchmarks import stages
from benchmarks.entry import end_with
from benchmarks.paired import medians, ratio, rounds
from benchmarks.programs_ranks import HIDDEN, Ranks, Way, errors
from benchmarks.segmentation import ROOT, read, tree, write
from fusec import target
from fusec.driver import Compilation
from fusec.hostir.overlap import program_time
from fusec.lowering import division
from fusec.options import CompileOptions
from fusec.parse import read_text

OUT = ROOT / "benchmarks" / "results" / "two-gpus.json"
SEED, RANDOM = 20261128, 10
PIECES = (1, 2)
"""Of each rank's part, of which loops are measured that the cost model may select."""
NORM_ROWS = (1, 8, 64, 512)
BYTES = tuple(1 << k for k in (10, 15, 20, 22, 24, 26, 28, 30))
LOOPED = ("loops_by_cost",)
Found = Iterator[Mapping[str, Any]]
"""What a part has measured so far, after each row."""


@dataclass(frozen=True)
class Matmul:
    """A matmul beside a collective: sizes of the whole rows, of the sum and of the columns.

    Of a gather the columns are a rank's own, of a scatter the summed dim is.
    """

    kind: str
    rows: int
    depth: int
    columns: int

    @property
    def name(self) -> str:
        """Return what results are recorded under."""
        return f"{self.kind} {self.rows}x{self.depth}x{self.columns}"

    def text(self, ranks: int, slices: int = 0) -> str:
        """Return the fusion, in a loop over slices where there are any."""
        make = texts.gather_matmul if self.kind == "gather" else texts.matmul_scatter
        return make(ranks, self.rows, self.depth, self.columns, slices=slices)

    @property
    def alone(self) -> str:
        """Return the matmul on one GPU."""
        return texts.product(self.rows, self.depth, self.columns)


KNOWN = (
    *(Matmul("gather", 8192, 8192, n) for n in (1024, 2048, 4096)),
    *(Matmul("gather", 16384, 8192, n) for n in (1024, 4096)),
    *(Matmul("scatter", 8192, k, 8192) for k in (1024, 2048, 4096)),
    *(Matmul("scatter", 16384, k, 8192) for k in (1024, 4096)),
)
"""The shapes of the first measurements on two GPUs."""


def sampled() -> tuple[Matmul, ...]:
    """Return shapes of which each size is log-uniform, in multiples of 256."""
    draw = random.Random(SEED)

    def size(least: int, most: int) -> int:
        return 256 * round(math.exp(draw.uniform(math.log(least), math.log(most))) / 256)

    kinds = ("gather", "scatter")
    return tuple(
        Matmul(kinds[k % 2], 4 * size(512, 4096), size(1024, 8192), size(512, 8192))
        for k in range(RANDOM)
    )


# Compiling ahead.


def programs(ranks: int, parts: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each fusion that parts need, with what is disabled."""
    shapes = (*(KNOWN if "known" in parts else ()), *(sampled() if "sampled" in parts else ()))
    for shape in shapes:
        yield from ((shape.text(ranks, ranks * pieces), LOOPED) for pieces in PIECES)
        yield from ((text, ()) for text in (shape.text(ranks, ranks), shape.text(ranks)))
        yield shape.alone, ()
    if "all_reduce" in parts:
        yield from ((texts.total(ranks, size // 2), ()) for size in BYTES)
    if "pipeline" in parts:
        yield stages.stage_text(), ()
    if "experts" in parts:
        yield stages.expert_text(), ()
    if "mlp" in parts:
        yield from (*stages.divided_mlps(ranks).values(), (texts.mlp(0), ()))
    if "norm" in parts:
        yield from ((texts.norm(n, rows), ()) for rows in NORM_ROWS for n in (0, ranks))


def compile_ahead(given: tuple[str, Sequence[str]]) -> None:
    """Build a fusion's kernels for an H100 or H200 into the cache, without a GPU."""
    fusec.compile(given[0], target="sm_90a", without=given[1])


# Measuring.


def captured(ranks: Ranks, way: Way) -> Way:
    """Return what replays a graph that PyTorch captures."""
    cuda = ranks.torch.cuda
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        way()
    cuda.current_stream().wait_stream(side)
    cuda.synchronize()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph, stream=side):
        graph.kept = way()
    return graph.replay


def host_time(ranks: Ranks, way: Way) -> float:
    """Return the microseconds for which a call keeps the host, of the slowest rank."""
    found = list[float]()
    for _ in range(5):
        ranks.torch.cuda.synchronize()
        ranks.distributed.barrier()
        for _ in range(8):
            begun = time.perf_counter_ns()
            way()
            found.append((time.perf_counter_ns() - begun) / 1e3)
    ranks.torch.cuda.synchronize()
    every: list[Any] = [None] * ranks.size
    ranks.distributed.all_gather_object(every, median(found))
    return round(max(every), 1)


def predicted(shape: Matmul, ranks: int) -> dict[str, Any]:
    """Return what the cost model selects, and the microseconds that it predicts."""
    gpu, fusion = target.find("sm_90a"), read_text(shape.text(ranks, ranks))
    options = CompileOptions()
    segmented = Compilation(fusion, options).segmented
    loops = [d.because for d in division(fusion, options).decisions if d.action == "loop"]
    return {
        "selected": loops[0].partition(":")[0] if loops else "",
        "predicted": round(1e6 * program_time(segmented, gpu, options.streams).seconds, 1),
    }


def saved(took: Mapping[str, float], alone: Mapping[str, float]) -> float:
    """Return which part fusec saves of what perfect overlap would; `alone`: times of both parts."""
    sequence = took["sequence"]
    exchange = min(alone["exchange"], sequence - alone["matmul"])
    return round((sequence - took["fusec"]) / (sequence - max(exchange, alone["matmul"])), 3)


def matmul(ranks: Ranks, shape: Matmul) -> dict[str, Any]:
    """Return the times of a matmul and its collective: in turn, in loops, and by PyTorch."""
    torch, size, gathers = ranks.torch, ranks.size, shape.kind == "gather"
    rows = shape.rows // size if gathers else shape.rows
    x, w = ranks.random(rows, shape.depth), ranks.random(shape.depth, shape.columns)
    whole = ranks.gathered(x) if gathers else x
    sums = torch.empty(shape.rows, shape.columns, device="cuda", dtype=torch.bfloat16)
    own = sums[: shape.rows // size].clone()
    part = x.new_empty(whole.shape)
    loops = {
        f"{size * p} slices": fusec.compile(shape.text(size, size * p), without=LOOPED)
        for p in PIECES
    }
    ways = {
        **loops,
        "fusec": fusec.compile(shape.text(size, size)),
        "sequence": fusec.compile(shape.text(size)),
    }
    alone = fusec.compile(shape.alone)
    symmetric, distributed = torch.ops.symm_mem, ranks.distributed

    def by_nccl() -> Any:
        if gathers:
            distributed.all_gather_into_tensor(part, x)
            return torch.matmul(part, w, out=sums)
        torch.matmul(x, w, out=sums)
        distributed.reduce_scatter_tensor(own, sums)
        return own

    def by_symmetric_memory() -> Any:
        if gathers:
            return symmetric.fused_all_gather_matmul(x, [w], 0, ranks.group)[1][0]
        return symmetric.fused_matmul_reduce_scatter(x, w, "sum", 0, ranks.group)

    calls: dict[str, Way] = {n: (lambda way=way: way(x, w)) for n, way in ways.items()}
    calls |= {"NCCL": by_nccl, "symmetric memory": by_symmetric_memory}
    exchanged = texts.gathered(size, shape.rows, shape.depth)
    if gathers:
        exchange = fusec.compile(exchanged).graph(x)
    else:
        exchange = captured(ranks, lambda: distributed.reduce_scatter_tensor(own, sums))
    replays: dict[str, Way] = {n: way.graph(x, w) for n, way in ways.items()}
    replays |= {
        "NCCL": captured(ranks, by_nccl), "exchange": exchange, "matmul": alone.graph(whole, w),
    }  # fmt: skip
    right = torch.matmul(whole.float(), w.float())
    right = right if gathers else ranks.scattered(right)
    wrong = errors(ranks, calls, right)
    by_call, by_replay = rounds(ranks, calls), rounds(ranks, replays)
    return {
        **predicted(shape, size),
        "errors": wrong,
        "call": medians(by_call),
        "replay": medians(by_replay),
        "host": host_time(ranks, calls["fusec"]),
        "saved": {
            "call": saved(medians(by_call), medians(by_replay)),
            "replay": saved(medians(by_replay), medians(by_replay)),
        },
        "over_sequence": {
            "call": ratio(by_call, "fusec", "sequence"),
            "replay": ratio(by_replay, "fusec", "sequence"),
        },
    }


def matmuls(ranks: Ranks, shapes: Sequence[Matmul]) -> Found:
    """Yield the times of shapes, and the mean of what overlap saves."""
    found: dict[str, Any] = {}
    for shape in shapes:
        found[shape.name] = matmul(ranks, shape)
        yield {**summary(found), **found}


def summary(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mean of what overlap saves, and the shapes that it makes slower."""
    ways = "call", "replay"
    means = {way: round(mean(e["saved"][way] for e in found.values()), 3) for way in ways}
    # Without a loop fusec runs the sequence itself.
    slower = [
        name
        for name, e in found.items()
        if e["selected"] != "no loop" and any(r[1] > 1 for r in e["over_sequence"].values())
    ]
    return {"mean_saved": means, "slower_than_sequence": slower}


def beside_nccl(ranks: Ranks, own: Way, graph: Way, other: Way, right: Any) -> dict[str, Any]:
    """Return the times of a program and of what PyTorch does with NCCL, by call and by replay."""
    wrong = errors(ranks, {"fusec": own, "replay": graph}, right)
    calls = rounds(ranks, {"fusec": own, "NCCL": other}, 20)
    replays = rounds(ranks, {"fusec": graph, "NCCL": captured(ranks, other)}, 20)
    return {
        "errors": wrong,
        "call": medians(calls),
        "replay": medians(replays),
        "host": host_time(ranks, own),
        "over_NCCL": {
            n: ratio(f, "fusec", "NCCL") for n, f in (("call", calls), ("replay", replays))
        },
    }


def all_reduces(ranks: Ranks) -> Found:
    """Yield the times of sums of what ranks have, by bytes of each.

    NCCL's baseline reduces in place, without the copy that keeps its argument as fusec does.
    """
    found: dict[str, Any] = {}
    for size in BYTES:
        x = ranks.random(1, size // 2)
        right, buffer = x.float(), x[0].clone()
        ranks.distributed.all_reduce(right)
        program = fusec.compile(texts.total(ranks.size, size // 2))
        graph = program.graph(x)

        def by_nccl(buffer: Any = buffer) -> Any:
            return ranks.mean(buffer)

        found[str(size)] = beside_nccl(ranks, lambda p=program, x=x: p(x), graph, by_nccl, right[0])
        yield found


def norms(ranks: Ranks) -> Found:
    """Yield the times of a sum over ranks, its residual and RMS norm, by rows."""
    found: dict[str, Any] = {}
    for rows in NORM_ROWS:
        x, residual, weight = (
            ranks.random(rows, HIDDEN), ranks.shared(rows, HIDDEN), ranks.shared(HIDDEN),
        )  # fmt: skip
        program = fusec.compile(texts.norm(ranks.size, rows))
        kernel = fusec.compile(texts.norm(0, rows))
        total, buffer = x.float(), x.clone()
        ranks.distributed.all_reduce(total)
        wide = total + residual
        right = wide * (wide.pow(2).mean(1, keepdim=True) + 1e-5).rsqrt() * weight
        given = x[None], residual, weight
        # As graphs of PyTorch, it has static inputs.
        graph = program.graph(*given, static_inputs=True)
        each = beside_nccl(
            ranks,
            lambda p=program, g=given: p(*g)[0],
            lambda g=graph: g()[0],
            lambda k=kernel, b=buffer, r=residual, w=weight: k(ranks.mean(b), r, w)[0],
            right,
        )
        alone = host_time(ranks, lambda k=kernel, g=given: k(g[0][0], *g[1:]))
        found[f"{rows}x{HIDDEN}"] = {**each, "host_of_one_GPU": alone}
        yield found


PARTS: Mapping[str, Callable[[Ranks], Found]] = {
    "known": lambda ranks: matmuls(ranks, KNOWN),
    "all_reduce": all_reduces,
    "norm": norms,
    "sampled": lambda ranks: matmuls(ranks, sampled()),
    "mlp": lambda ranks: iter((stages.mlps(ranks),)),
    "pipeline": lambda ranks: iter((stages.pipelines(ranks),)),
    "experts": lambda ranks: iter((stages.experts(ranks),)),
}


def keep(rows: Found, out: Path | None, part: str, head: Mapping[str, Any]) -> None:
    """Write what a part has measured after each row, so that a part which is cut keeps it."""
    for found in rows:
        if out is not None:
            write(out, {**read(out), part: {**head, **found}})


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each part, and let rank 0 put it into the record."""
    parser = argparse.ArgumentParser(prog="benchmarks.two_gpus", description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--only", nargs="+", choices=[*PARTS], default=[*PARTS])
    parser.add_argument("--jobs", type=int, default=16)
    given = parser.parse_args(arguments)
    size, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    if rank == 0:
        every = list(dict.fromkeys((t, tuple(w)) for t, w in programs(size, given.only)))
        with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
            list(pool.map(compile_ahead, every))
    import torch
    import torch.distributed._symmetric_memory as symmetric

    cuda: Any = torch.cuda
    cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed: Any = torch.distributed
    distributed.init_process_group("nccl")
    ranks = Ranks(size, rank, torch, torch.Generator("cuda").manual_seed(rank))
    symmetric.enable_symm_mem_for_group(ranks.group)
    for part in given.only:
        begun = time.perf_counter()
        head = {"tree": tree(), "device": cuda.get_device_name(), "ranks": size}
        keep(PARTS[part](ranks), given.out if rank == 0 else None, part, head)
        if rank == 0:
            print(f"{part}: {time.perf_counter() - begun:.1f} s", flush=True)
    distributed.barrier()
    distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    end_with(main)
