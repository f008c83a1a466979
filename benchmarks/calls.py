"""What a call costs on the host, beside PyTorch's own and a launch without anything around it.

python -m benchmarks.calls [--out FILE]      needs a GPU and PyTorch

Microseconds of the host that a call takes, without waiting for the GPU but from time to time: the
median and the 99th percentile of single calls. Pointers change from call to call.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

import fusec
from benchmarks.entry import end_with
from benchmarks.segmentation import ROOT, read, tree, write
from fusec.call import fast, helper
from fusec.call.program import Program
from fusec.call.steps import LaunchStep

OUT = ROOT / "benchmarks" / "results" / "h200-calls.json"
CALLS = 2000
LAUNCHES = 96
"""After so many the GPU is waited for: it must not be what a call waits for."""
SETS = 4
"""Sets of arguments that calls take in turn."""

NORM = """
fusion: norm
dims: {B: 128, H: 1024}
inputs:
  x: bf16[B, H]
  w: bf16[H]
  b: bf16[H]
ops:
  - xf = cast(x, f32)
  - var, mean = var_mean(xf, dims=[1], correction=0, keepdim=true)
  - xn = mul(sub(xf, mean), rsqrt(add(var, 1e-5)))
  - y = cast(add(mul(xn, w), b), bf16)
outputs: [y]
"""
PRODUCT = """
fusion: product
dims: {M: 256, N: 256, K: 256}
inputs:
  a: bf16[M, K]
  b: bf16[N, K]
  c: bf16[N]
ops:
  - y = cast(relu(add(matmul(a, permute(b, [1, 0])), c)), bf16)
outputs: [y]
"""


NOISE = """
fusion: noise
dims: {B: 128, H: 1024}
inputs:
  x: bf16[B, H]
ops:
  - y, _ = dropout(x, 0.1)
outputs: [y]
"""


def chain(kernels: int) -> str:
    """Return a fusion of so many kernels: sums that each need the one before."""
    lines = ["  - s0 = mul(x, w)"]
    for number in range(kernels):
        dim = number % 2
        lines += [
            f"  - r{number} = sum(s{number}, dims=[{dim}], keepdim=true)",
            f"  - s{number + 1} = segment_set(mul(s{number}, r{number}))",
        ]
    return (
        "fusion: chain\ndims: {B: 64, H: 256}\ninputs:\n  x: f32[B, H]\n  w: f32[H]\n  b: f32[H]\n"
        "ops:\n" + "\n".join(lines) + f"\n  - y = add(s{kernels}, b)\noutputs: [y]\n"
    )


def sampled(call: Callable[[], Any], launches: int = 1) -> dict[str, float]:
    """Return the median and the 99th percentile of single calls, in microseconds."""
    import torch

    for _ in range(200):
        call()
    torch.cuda.synchronize()
    gc.collect()
    gc.disable()
    taken: list[int] = []
    pause = max(1, LAUNCHES // launches)
    for number in range(CALLS):
        start = perf_counter_ns()
        call()
        taken.append(perf_counter_ns() - start)
        if number % pause == pause - 1:
            torch.cuda.synchronize()
    gc.enable()
    return {
        "median_us": round(float(np.median(taken)) / 1000, 2),
        "p99_us": round(float(np.percentile(taken, 99)) / 1000, 2),
    }


def arguments(program: Program) -> list[tuple[Any, ...]]:
    """Return sets of random arguments on the GPU."""
    import torch

    sizes = program.fusion.hints
    kinds = {"bf16": torch.bfloat16, "f32": torch.float32, "f16": torch.float16}
    return [
        tuple(
            torch.randn([d.evaluate(sizes) for d in i.value.shape], device="cuda").to(
                kinds[i.value.dtype.name]
            )
            for i in program.fusion.given
        )
        for _ in range(SETS)
    ]


def rows_of(name: str, program: Program) -> Iterator[dict[str, Any]]:
    """Yield the times of a program: called, replayed, and replayed with new arguments."""
    sets = arguments(program)
    program(*sets[0])
    kernels = len(program.variants[0].host.launches)
    turn = cycle(sets)
    about: dict[str, Any] = {"fusion": name, "kernels": kernels}
    with_helper = fast.helper
    yield {**about, "way": "call", **sampled(lambda: program(*next(turn)), kernels)}
    out = program(*sets[0])
    into = sampled(lambda: program(*next(turn), out=out), kernels)
    yield {**about, "way": "call with out=", **into}
    graph = program.graph(*sets[0])
    yield {**about, "way": "replay", **sampled(graph)}
    yield {**about, "way": "replay, new arguments", **sampled(lambda: graph(*next(turn)))}
    fast.helper = lambda: None  # type: ignore[assignment]
    try:
        plain = fusec.compile(program.fusion)
        plain(*sets[0])
        yield {
            **about,
            "way": "call without the helper",
            **sampled(lambda: plain(*next(turn)), kernels),
        }
    finally:
        fast.helper = with_helper


def peers() -> Iterator[dict[str, Any]]:
    """Yield what the layer norm costs elsewhere, and a launch of an empty kernel."""
    import torch

    program = fusec.compile(NORM)
    sets = arguments(program)
    turn = cycle(sets)

    def norm(x: Any, w: Any, b: Any) -> Any:
        return torch.nn.functional.layer_norm(x, (x.shape[1],), w, b)

    yield {"fusion": "norm", "way": "PyTorch, eager", **sampled(lambda: norm(*next(turn)))}
    compiled = torch.compile(norm)
    yield {"fusion": "norm", "way": "torch.compile", **sampled(lambda: compiled(*next(turn)))}
    yield {"fusion": "none", "way": "torch.empty", **sampled(
        lambda: torch.empty_strided((128, 1024), (1024, 1), dtype=torch.bfloat16, device="cuda")
    )}  # fmt: skip
    record = next(iter(program._lanes.values())).records if program._lanes else None
    if record is None:
        program(*sets[0])
    record = next(iter(next(iter(program._lanes.values())).records.values()))
    device = record.executable.device
    issue = record._issue[0]
    yield {"fusion": "norm", "way": "cuda.bindings launch", **sampled(issue)}
    library = ctypes.CDLL("libcuda.so.1").cuLaunchKernel
    library.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
    step = record.steps[-1]
    assert isinstance(step, LaunchStep)
    given = int(step.function), *step.shape.grid, *step.shape.block, step.shape.shared_bytes
    yield {"fusion": "norm", "way": "ctypes launch", **sampled(
        lambda: library(*given, record.arena.stream, step.packed.address, None)
    )}  # fmt: skip
    torch.cuda.synchronize()
    del device


def definitions() -> Iterator[dict[str, Any]]:
    """Yield `fd.execute` beside eager PyTorch for 256 KB, 64 MB and 1 GB."""
    import torch

    for megabytes in (0.25, 64, 1024):
        count = int(megabytes * 2**20 / 2 / 4)
        x, y = (torch.randn(count, device="cuda") for _ in range(2))
        with fusec.FusionDefinition() as fd:
            a = fd.define_tensor(shape=[-1], contiguity=[True], dtype=fusec.DataType.Float)
            b = fd.define_tensor(shape=[-1], contiguity=[True], dtype=fusec.DataType.Float)
            fd.add_output(fd.ops.add(a, b))
        fd.execute([x, y])

        def timed(run: Callable[[], Any]) -> float:
            for _ in range(5):
                run()
            torch.cuda.synchronize()
            found: list[float] = []
            for _ in range(7):
                start = perf_counter_ns()
                for _ in range(20):
                    run()
                torch.cuda.synchronize()
                found.append((perf_counter_ns() - start) / 20e3)
            return round(float(np.median(found)), 2)

        yield {
            "fusion": "add", "megabytes": megabytes, "way": "fd.execute",
            "us": timed(lambda fd=fd, x=x, y=y: fd.execute([x, y])),
            "eager_us": timed(lambda x=x, y=y: x + y),
        }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure everything, print it and write it down."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=OUT)
    out = parser.parse_args(arguments).out
    rows: list[dict[str, Any]] = []

    def note(row: dict[str, Any]) -> None:
        rows.append(row)
        print(row, flush=True)

    note({"way": "helper", "built": helper.helper() is not None, "cpus": os.cpu_count()})
    for name, text in (("norm", NORM), ("product", PRODUCT), ("noise", NOISE)):
        for row in rows_of(name, fusec.compile(text)):
            note(row)
    for kernels in (1, 2, 5, 11):
        for row in rows_of(f"chain of {kernels}", fusec.compile(chain(kernels))):
            note(row)
    for row in (*peers(), *definitions()):
        note(row)
    write(out, {**read(out), "calls": {"tree": tree(), "rows": rows}})


if __name__ == "__main__":
    end_with(main)
