"""How long generated graphs take to segment at n and 2n.

`python -m benchmarks.segmentation_families` measures them.
Each family grows in one way that has been more than linear once. Of several repeats the fastest
counts; `asked` are the segments that schedulers were asked for.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from time import process_time
from typing import Any

from benchmarks.entry import end_with
from fusec import lowering, target
from fusec.ir.dtype import F32
from fusec.ir.graph import Fusion, Operand
from fusec.ops.builder.build import GraphBuilder
from fusec.options import CompileOptions
from fusec.schedule.registry import schedulers
from fusec.segment.offers import Offers
from fusec.segment.search import segment

ROWS, COLUMNS = 1024, 2048


def hub(count: int) -> Fusion:
    """Return a norm that `count` branches read, each with a sum of its own."""
    fd, x = _start("hub")
    mean = fd.apply("mean", x, dims=[1], keepdim=True)
    centre = fd.apply("sub", x, mean)
    for k in range(count):
        weight = fd.input(f"w{k}", F32, (COLUMNS,))
        fd.output(fd.apply("sum", fd.apply("tanh", fd.apply("mul", centre, weight)), dims=[1]))
    return fd.finish()


def many_outputs(count: int) -> Fusion:
    """Return `count` outputs that are computed of one tensor."""
    fd, x = _start("many_outputs")
    for k in range(count):
        fd.output(fd.apply("tanh", fd.apply("mul", x, 1.0 + k)))
    return fd.finish()


def many_inputs(count: int) -> Fusion:
    """Return the sum of `count` more inputs."""
    fd, total = _start("many_inputs")
    for k in range(count):
        more = fd.input(f"x{k}", F32, (ROWS, COLUMNS))
        total = fd.apply("add", total, fd.apply("mul", more, 1.0 + k))
    fd.output(total)
    return fd.finish()


def alternating_axes(count: int) -> Fusion:
    """Return `count` sums that are subtracted, of rows and of columns in turn."""
    fd, x = _start("alternating_axes")
    for k in range(count):
        x = fd.apply("sub", x, fd.apply("sum", x, dims=[k % 2], keepdim=True))
    fd.output(x)
    return fd.finish()


def diamonds(count: int) -> Fusion:
    """Return a ladder of `count` diamonds: two values of the last one are added."""
    fd, x = _start("diamonds")
    for _ in range(count):
        x = fd.apply("add", fd.apply("tanh", x), fd.apply("exp", x))
    fd.output(x)
    return fd.finish()


def slices(count: int) -> Fusion:
    """Return a chain of `count` sums with slices of one tensor, each begun elsewhere."""
    fd, x = _start("slices")
    width = COLUMNS // 2
    total: Operand = fd.input("start", F32, (ROWS, width))
    for k in range(count):
        part = fd.apply("slice", x, start_indices=[0, k], end_indices=[ROWS, k + width])
        total = fd.apply("add", total, part)
        if k % 8 == 7:
            fd.output(total)
    fd.output(fd.apply("exp", total))
    return fd.finish()


def shifts(count: int) -> Fusion:
    """Return a chain of `count` sums of two neighbours each, one element shorter every time."""
    fd, x = _start("shifts")
    for k in range(count):
        width = COLUMNS - k
        left = fd.apply("slice", x, start_indices=[0, 1], end_indices=[ROWS, width])
        right = fd.apply("slice", x, start_indices=[0, 0], end_indices=[ROWS, width - 1])
        x = fd.apply("add", left, fd.apply("tanh", right))
    fd.output(x)
    return fd.finish()


def _start(name: str) -> tuple[GraphBuilder, Operand]:
    fd = GraphBuilder(name)
    return fd, fd.input("x", F32, (ROWS, COLUMNS))


FAMILIES: Mapping[str, tuple[Callable[[int], Fusion], int]] = {
    "hub": (hub, 80),
    "many_outputs": (many_outputs, 200),
    "many_inputs": (many_inputs, 100),
    "alternating_axes": (alternating_axes, 40),
    "diamonds": (diamonds, 100),
    "slices": (slices, 80),
    "shifts": (shifts, 20),
}
"""Each family with an n at which one kernel is too long, where that comes: at 2n there are more."""


def count_asked(fusion: Fusion, options: CompileOptions) -> int:
    """Return how many segments schedulers are asked for, in a search of an optimised fusion."""
    offers = Offers(schedulers(), target.find(options.target))
    segment(fusion, offers.schedulers, offers.target, offers=offers)
    return offers.asked // len(offers.schedulers)


def timed(make: Callable[[int], Fusion], count: int, repeats: int) -> dict[str, Any]:
    """Return the nodes, the seconds of one core of segmentation, and what was asked."""
    options = CompileOptions()
    fusion = lowering.optimise(make(count), options)
    seconds: list[float] = []
    for _ in range(repeats):
        began = process_time()
        lowering.segment(fusion, options)
        seconds.append(process_time() - began)
    return {
        "nodes": len(fusion.nodes),
        "seconds": round(min(seconds), 3),
        "asked": count_asked(fusion, options),
    }


def measure(names: list[str], repeats: int) -> dict[str, Any]:
    """Return each family's figures at n and 2n, and how often the time of n the latter takes."""
    found: dict[str, Any] = {}
    for name in names:
        make, count = FAMILIES[name]
        small, large = (timed(make, n, repeats) for n in (count, 2 * count))
        ratio = round(large["seconds"] / small["seconds"], 2)
        found[name] = {"n": small, "2n": large, "ratio": ratio}
        print(name, json.dumps(found[name]), flush=True)
    return found


def main() -> int:
    """Measure the families and print them as JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks.segmentation_families", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(FAMILIES)}")
    parser.add_argument("--repeats", type=int, default=1)
    given = parser.parse_args()
    measure(given.names or list(FAMILIES), given.repeats)
    return 0


if __name__ == "__main__":
    end_with(main)
