"""How the time of segmentation grows with the graph: `python -m benchmarks.scale`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import pairwise
from math import log
from time import process_time
from typing import Any

from benchmarks.transformer import of_nodes, transformer
from fusec import lowering
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions

NODES = (100, 1_000, 10_000)
LAYERS = (20, 30, 60)
"""Those of https://github.com/NVIDIA/Fuser/issues/3510, whose time exploded between the first
two."""


def timed(make: Callable[[], Fusion], options: CompileOptions) -> dict[str, Any]:
    """Return the seconds of one core for building, optimising and segmenting a graph."""
    start = process_time()
    fusion = make()
    built = process_time()
    optimised = lowering.optimise(fusion, options)
    passed = process_time()
    segmented = lowering.segment(optimised, options)
    done = process_time()
    return {
        "nodes": len(optimised.nodes),
        "segments": len(segmented.segments),
        "build_s": round(built - start, 4),
        "passes_s": round(passed - built, 4),
        "segment_s": round(done - passed, 4),
    }


def measure(
    nodes: Iterable[int] = NODES, layers: Iterable[int] = LAYERS, repeats: int = 3
) -> dict[str, Any]:
    """Return the times by number of nodes and by number of layers, and how they grow.

    The growth is an exponent, below 1 where what all graphs share, asking the schedulers once,
    outweighs the rest. Of several repeats the fastest counts.
    """
    options = CompileOptions()
    timed(lambda: transformer(1), options)  # what is only imported or read once

    def best(make: Callable[[], Fusion]) -> dict[str, Any]:
        found = (timed(make, options) for _ in range(repeats))
        return min(found, key=lambda r: r["segment_s"])

    by_nodes = [{"asked": n, **best(lambda n=n: of_nodes(n))} for n in nodes]
    by_layers = [{"layers": k, **best(lambda k=k: transformer(k, training=True))} for k in layers]
    return {
        "transformer": by_nodes,
        "exponent": _exponent(by_nodes),
        "fuser_3510": by_layers,
        "fuser_3510_exponent": _exponent(by_layers),
    }


def _exponent(rows: list[dict[str, Any]]) -> float:
    """Return the least p with which no step grows faster than nodes to the power of p."""
    growth = (
        log(after["segment_s"] / before["segment_s"]) / log(after["nodes"] / before["nodes"])
        for before, after in pairwise(rows)
    )
    return round(max(growth), 3)


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
