"""The temporary memory of host programs beside the least possible, for every graph of a folder.

python -m benchmarks.host_memory DIR [--only NAME] [--out FILE]

Nothing runs: sizes are those of the graphs, and what is counted follows from the programs alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.corpus_graph import read_graph
from benchmarks.corpus_inputs import prepare
from benchmarks.entry import end_with
from fusec import driver
from fusec.call.placing import memory_of
from fusec.diagnostics import FusecError
from fusec.hostir.expand import expand
from fusec.hostir.passes.known import known_of
from fusec.hostir.passes.order_segments import sequencer_of
from fusec.hostir.tasks import WorkGraph
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.target import find

STEPS = 2_000_000
"""Steps of the search for the best order of a graph, at most; then a bound counts."""


@dataclass(frozen=True)
class Row:
    """A graph's memory in bytes, beside inputs and outputs.

    apart: with memory of its own for each buffer; in_order: without another order of segments; in
    place: where results lie on what is read for the last time. least: of any order and placement
    without that.
    """

    name: str
    segments: int
    buffers: int
    apart: int
    in_order: int
    peak: int
    in_place: int
    least: int

    @property
    def ratio(self) -> float:
        """Return the memory beside the least."""
        return self.peak / self.least if self.least else 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each graph that has temporary memory, and write them all."""
    parser = argparse.ArgumentParser(prog="benchmarks.host_memory", description=__doc__)
    parser.add_argument("graphs", metavar="DIR", type=Path)
    parser.add_argument("--only", metavar="NAME", default="")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--out", metavar="FILE", type=Path)
    given = parser.parse_args(arguments)
    rows: list[Row] = []
    refused = 0
    for path in sorted(given.graphs.glob("*.json")):
        if given.only not in path.stem:
            continue
        try:
            row = row_of(path.stem, prepare(read_graph(path), "graph").fusion, given.target)
        except FusecError as error:
            refused += 1
            print(f"{path.stem}: {error.diagnostic.message.splitlines()[0]}", file=sys.stderr)
            continue
        rows.append(row)
        if row.peak:
            print(line(row), flush=True)
    print(summary(rows, refused))
    if given.out is not None:
        record = {"where": "host", "target": given.target, "refused": refused}
        record["summary"] = summary(rows, refused)
        record["rows"] = [asdict(r) for r in rows if r.apart]
        given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


def row_of(name: str, fusion: Fusion, target: str = "sm_90a") -> Row:
    """Return a graph's figures."""
    options = CompileOptions(targets=(target,), untuned=True, without=("order_segments",))
    in_order = driver.Compilation(fusion, options)
    segmented, plans = in_order.segmented, in_order.plans
    known = known_of(segmented, plans, find(target), options.streams)
    work = WorkGraph(in_order.posts)
    found = sequencer_of(work, known).best(STEPS)
    options = CompileOptions(targets=(target,), untuned=True)
    made = {"fusion": in_order.fusion, "segmented": segmented, "plans": plans}
    ordered = driver.Compilation(fusion, options, **made)
    options = CompileOptions(targets=(target,), untuned=True, with_=("reuse_in_place",))
    in_place = driver.Compilation(fusion, options, fusion=in_order.fusion)
    program = expand(in_order.posts, segmented, plans)
    temporaries = [b for b in program.buffers if b.role == "temporary"]
    return Row(
        name,
        len(segmented.segments),
        len(temporaries),
        sum(b.bytes(fusion.hints) for b in temporaries),
        scratch(in_order),
        scratch(ordered),
        scratch(in_place),
        found.least,
    )


def scratch(program: driver.Compilation) -> int:
    """Return the bytes of the arena in which a call places what no caller sees."""
    host = expand(program.posts, program.segmented, program.plans)
    return memory_of(host, program.original.hints).scratch


def line(row: Row) -> str:
    """Return a row as text."""
    sizes = f"{row.peak} of {row.least} ({row.ratio:.3f})"
    others = f"in order {row.in_order}, in place {row.in_place}, apart {row.apart}"
    return f"{row.name}: {row.segments} segments, {row.buffers} temporaries, {sizes}, {others}"


def summary(rows: Sequence[Row], refused: int) -> str:
    """Return what all rows say together."""
    used = [r for r in rows if r.peak]
    worst = max(used, key=lambda r: r.ratio, default=None)
    best = sum(r.peak == r.least for r in used)
    saved = sum(r.peak < r.in_order for r in used)
    lower = sum(r.in_place < r.peak for r in used)
    parts = [
        f"{len(rows)} graphs ({refused} refused), {len(used)} with temporary memory",
        f"{best} at the least",
        f"at most {worst.ratio:.3f} of it ({worst.name})" if worst else "none above it",
        f"{saved} less by another order, {lower} less in place",
    ]
    return "; ".join(parts)


if __name__ == "__main__":
    end_with(main)
