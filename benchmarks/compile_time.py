"""How long and in how much memory large graphs compile, and NVRTC's part against its model.

python -m benchmarks.compile_time graphs [NAME ...] [--out FILE]   cold, each in its own process
python -m benchmarks.compile_time model [--out FILE]     kernels of all sizes, one by one

A graph is compiled on one core and without caches. Seconds are those of the core, so that others at
work on the machine count less; a graph that exceeds its limits is named, and the exit code is 1.
`benchmarks.builds` measures products and attention.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import exp, log
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from benchmarks.compile_graphs import GRAPHS, fan, row_maxima
from benchmarks.entry import end_with
from benchmarks.segmentation import ROOT, read, tree, write
from fusec import driver, lowering
from fusec.codegen.dispatch import plan_sources
from fusec.ir.annotations import Pin
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.run.binary.headers import headers_for
from fusec.run.binary.nvrtc import compile_cuda

OUT = ROOT / "benchmarks" / "results" / "compile_time.json"
OPTIONS = CompileOptions(targets=("sm_90a",), jobs=1, use_cache=False)
OWN_CACHE = {"CUDA_CACHE_DISABLE": "1"}
"""NVRTC has a cache of its own, in which what was compiled before takes no time."""
SECONDS = 5.0
"""Seconds of one core for any graph, with EACH for every kernel that differs in more than names."""
EACH = 0.06
MEGABYTES = 1000


def graph(name: str) -> dict[str, Any]:
    """Return what compiling one graph takes in this process: seconds of a core, and megabytes."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    start = process_time()
    fusion = GRAPHS[name]()
    program = driver.plan(fusion, OPTIONS)
    ready = process_time()
    driver.build(program)
    done = process_time()
    sources = program.kernel_sources
    distinct = len({s.digest for s in sources})
    row: dict[str, Any] = {
        "graph": name,
        "nodes": len(program.fusion.nodes),
        "segments": len(program.segmented.segments),
        "kernels": len(sources),
        "distinct": distinct,
        "plan_s": round(ready - start, 2),
        "build_s": round(done - ready, 2),
        "process_s": round(done, 2),
        "limit_s": round(SECONDS + EACH * distinct, 2),
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 // 10**6,
    }
    return {**row, "ok": row["process_s"] <= row["limit_s"] and row["megabytes"] <= MEGABYTES}


def in_process(name: str) -> dict[str, Any]:
    """Return what a graph takes in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.compile_time", "graph", name]
    done = subprocess.run(
        command, env={**os.environ, **OWN_CACHE}, check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout)


def graphs(names: Sequence[str], repeats: int) -> dict[str, Any]:
    """Return what each graph takes; of several repeats the fastest counts."""
    rows: list[dict[str, Any]] = []
    for name in names:
        found = (in_process(name) for _ in range(repeats))
        rows.append(min(found, key=lambda row: row["process_s"]))
        print(json.dumps(rows[-1]), flush=True)
    return {"exceeding": [r["graph"] for r in rows if not r["ok"]], "rows": rows}


def pinned(fusion: Fusion) -> Fusion:
    """Return a fusion that is one segment, however long NVRTC takes for its kernel."""
    fusion = lowering.optimise(fusion, OPTIONS)
    names = tuple(n.output.name for n in fusion.nodes if n.op.name != "cast")
    return replace(fusion, pins=(Pin("whole", names),))


def kernels() -> Iterator[tuple[str, Fusion]]:
    """Yield kernels of all sizes: chains of reductions, and reductions side by side."""
    for kind in ("bf16[4096, 8192]", "f32[4096, 1024]", "bf16[1024, 65536]", "f32[512, 64]"):
        for count in (1, 3, 6, 10, 15, 20, 30, 50):
            yield f"{count} row maxima of {kind}", row_maxima(count, kind)
    for along in ("0", "1"):
        for kind in ("f32[4096, 1024]", "bf16[4096, 8192]"):
            for count in (3, 10, 20, 40):
                yield f"{count} sums along {along} of {kind}", fan(count, along, kind)


def model() -> dict[str, Any]:
    """Return the predicted and the measured seconds of each kernel, and how far they are apart."""
    compile_cuda('extern "C" __global__ void k() {}', name="k", arch="sm_90a", headers={})
    rows: list[dict[str, Any]] = []
    for name, fusion in kernels():
        segmented = lowering.segment(pinned(fusion), OPTIONS)
        (segment,) = segmented.segments
        assert segment.estimate is not None
        (plan,) = driver.Compilation(segmented.fusion, OPTIONS, segmented=segmented).plans
        (source,) = plan_sources(plan)
        start = process_time()
        compile_cuda(
            source.text, name=source.name, arch="sm_90a", headers=headers_for(source.text, None)
        )
        spent, predicted = process_time() - start, segment.estimate.build.seconds
        rows.append({"kernel": name, "predicted_s": round(predicted, 3), "s": round(spent, 3)})
        print(json.dumps(rows[-1]), flush=True)
    off = [abs(log(r["predicted_s"] / r["s"])) for r in rows]
    return {"kernels": len(rows), "median_factor": round(exp(median(off)), 2), "rows": rows}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for, and put it into the record."""
    parser = argparse.ArgumentParser(prog="benchmarks.compile_time", description=__doc__)
    parser.add_argument("what", choices=("graphs", "graph", "model"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="graphs")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", default=str(OUT), metavar="FILE")
    given = parser.parse_args(arguments)
    unknown = [n for n in given.names if n not in GRAPHS]
    if unknown:
        parser.error(f"no `{unknown[0]}`: one of {', '.join(GRAPHS)}")
    if given.what == "graph":
        print(json.dumps(graph(*given.names)))
        return 0
    names = given.names or list(GRAPHS)
    found = model() if given.what == "model" else graphs(names, given.repeat)
    out = Path(given.out)
    write(out, {**read(out), given.what: {"fusec_tree": tree(), **found}})
    print({k: v for k, v in found.items() if k != "rows"})
    return 1 if found.get("exceeding") else 0


if __name__ == "__main__":
    end_with(main)
