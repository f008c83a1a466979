"""What happens between kernels, timed on one GPU: chains, independent segments, loops over streams.

python -m benchmarks.programs [--out FILE]      needs a GPU

Each program is captured once and replayed; times are of the GPU, medians of replays in turn of what
is compared, in microseconds. Results are compared with the reference after the last replay.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.calls import chain
from benchmarks.entry import end_with
from benchmarks.segmentation import ROOT, read, tree, write
from fusec import driver
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse.reader import read_text
from fusec.reference.verdict import compare
from fusec.run.bound import Bound
from fusec.run.device import Device
from fusec.run.execute import Executable
from fusec.run.inputs import choose_sizes, random_inputs

OUT = ROOT / "benchmarks" / "results" / "h200-programs.json"
KERNELS = 12
REPLAYS = 20
"""Of a graph between two events, so that the events do not count."""
ROUNDS = 25
WITH_STREAMS = ("assign_streams",)


def independent(count: int, rows: int, depth: int) -> str:
    """Return a fusion of so many products, which have nothing to do with one another."""
    numbers = range(count)
    given = "\n".join(f"  x{k}: bf16[M, K]\n  w{k}: bf16[K, M]" for k in numbers)
    lines = "\n".join(f"  - y{k} = matmul(x{k}, w{k})" for k in numbers)
    outputs = ", ".join(f"y{k}" for k in numbers)
    return (
        f"fusion: independent\ndims: {{M: {rows}, K: {depth}}}\ninputs:\n{given}\n"
        f"ops:\n{lines}\noutputs: [{outputs}]\n"
    )


def looped(parts: int, rows: int, columns: int) -> str:
    """Return two products in turn, over parts of their rows where there are several."""
    stream = f", stream: {{0: {parts}}}" if parts > 1 else ""
    return (
        f"fusion: looped\ndims: {{M: {rows}, K: {columns}}}\ninputs:\n"
        f'  x: {{type: "bf16[M, K]"{stream}}}\n  v: bf16[K, K]\n  w: bf16[K, K]\n'
        "ops:\n  - h = relu(matmul(x, v))\n  - y = matmul(h, w)\noutputs: [y]\n"
    )


@contextmanager
def captured(device: Device, bound: Bound) -> Iterator[Callable[[], None]]:
    """Yield what replays a program, captured as a graph."""
    mode = device.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    bound.reset()
    bound.run()
    device.synchronise()
    device.call("cuStreamBeginCapture", device.stream, mode)
    bound.run()
    graph = device.call("cuStreamEndCapture", device.stream)
    made = device.call("cuGraphInstantiate", graph, 0)
    yield lambda: device.call("cuGraphLaunch", made, device.stream)
    device.call("cuGraphExecDestroy", made)
    device.call("cuGraphDestroy", graph)


def timed(device: Device, replays: Mapping[str, Callable[[], None]]) -> dict[str, float]:
    """Return the microseconds of a replay of each, in turn."""
    times: dict[str, list[float]] = {name: [] for name in replays}
    start, end = device.call("cuEventCreate", 0), device.call("cuEventCreate", 0)
    for _ in range(ROUNDS):
        for name, replay in replays.items():
            replay()
            device.call("cuEventRecord", start, device.stream)
            for _ in range(REPLAYS):
                replay()
            device.call("cuEventRecord", end, device.stream)
            device.synchronise()
            times[name].append(device.call("cuEventElapsedTime", start, end) * 1e3 / REPLAYS)
    return {name: round(median(found), 3) for name, found in times.items()}


def contend(device: Device, ways: Mapping[str, tuple[Fusion, CompileOptions]]) -> dict[str, Any]:
    """Return the times of ways to run what is the same, and whether each is right."""
    with ExitStack() as stack:
        replays: dict[str, Callable[[], None]] = {}
        bounds: dict[str, tuple[Bound, Fusion, Any, Any]] = {}
        for name, (fusion, options) in ways.items():
            package = driver.compile_fusion(fusion, driver.for_device(options, device.facts))
            program = package.program
            sizes = choose_sizes(fusion)
            inputs = random_inputs(fusion, sizes)
            executable = Executable(device, program.host, package.cubins(package.targets[0]))
            bound = stack.enter_context(executable.bind(inputs, sizes))
            replays[name] = stack.enter_context(captured(device, bound))
            bounds[name] = bound, fusion, inputs, sizes
        times = timed(device, replays)
        right = {
            name: compare(fusion, sizes, inputs, bound.outputs()).text().splitlines()[0]
            for name, (bound, fusion, inputs, sizes) in bounds.items()
        }
    return {"us": times, "verdicts": right}


def measure(device: Device) -> dict[str, Any]:
    """Return what each part measures."""
    plain = CompileOptions(untuned=True)
    overlapping = replace(plain, overlap=True)
    line = read_text(chain(KERNELS - 1))
    found: dict[str, Any] = {}
    kernels = len(driver.Compilation(line, plain).host.launches)
    each = contend(device, {"plain": (line, plain), "overlapped": (line, overlapping)})
    each["us_per_kernel"] = {n: round(t / kernels, 3) for n, t in each["us"].items()}
    found["chain"] = {"kernels": kernels, **each}
    parallel = replace(plain, with_=WITH_STREAMS)
    for count, rows, depth in ((4, 256, 1024), (4, 512, 512), (8, 512, 1024), (4, 1024, 1024)):
        fusion = read_text(independent(count, rows, depth))
        each = contend(device, {"one stream": (fusion, plain), "streams": (fusion, parallel)})
        each["ratio"] = round(each["us"]["one stream"] / each["us"]["streams"], 3)
        found[f"independent_{count}x{rows}x{depth}"] = each
    for rows, columns in ((2048, 2048), (8192, 4096)):
        ways = {
            ("whole" if parts == 1 else f"{parts} slices"): (
                read_text(looped(parts, rows, columns)), plain,
            )
            for parts in (1, 2, 4)
        }  # fmt: skip
        found[f"looped_{rows}x{columns}"] = contend(device, ways)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and put the results into the record."""
    parser = argparse.ArgumentParser(prog="benchmarks.programs", description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args(arguments)
    with Device() as device:
        found = measure(device)
        known = read(given.out)
        record = {"tree": tree(), "device": device.facts.text(), **found}
        write(given.out, {**known, "one_gpu": record})
    for name, each in found.items():
        print(name, each)
    return 0


if __name__ == "__main__":
    end_with(main)
