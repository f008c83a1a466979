"""Measures how good segmentations are, and how long they take.

python -m benchmarks.segmentation record GRAPHS [--out FILE] [--parts seed,corpus,scale]
python -m benchmarks.segmentation model [--out FILE]     (on a GPU: the model against the clock)

GRAPHS is a folder of recorded fusions, as for benchmarks.corpus. Both write into one file; each
part carries the hash of the tree `fusec/` that it was measured with, from FUSEC_TREE or git.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import segmentation_corpus
from benchmarks.entry import end_with
from benchmarks.first_fit import first_fit
from benchmarks.segmentation_corpus import Settings, ratio
from fusec import driver, lowering, target
from fusec.exact.bound import bound
from fusec.schedule.registry import schedulers

ROOT = Path(__file__).parent.parent
OUT = ROOT / "benchmarks" / "results" / "segmentation.json"
SEED = ROOT / "examples" / "seed_2146.yaml"
SEED_FLOOR = 352_000_000
"""Bytes that issue 2473's fusion has to move."""
PARTS = ("seed", "corpus", "scale")
IN_FILE = {"T12": "T18", "T14": "T23", "T15": "T24"}
"""What the dump of issue 2473 writes out and a better segmentation computes again, by the names in
the dump and in the script."""


def tree() -> str:
    """Return the hash of the sources."""
    command = ["git", "rev-parse", "HEAD:fusec"]
    given = os.environ.get("FUSEC_TREE")
    return given or subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()  # fmt: skip


def seed(settings: Settings) -> dict[str, Any]:
    """Return the fusion of issue 2473: segmented freely, and in the two groups of its dump."""
    pinned = lowering.optimise(driver.load(str(SEED)), settings.options)
    free = replace(pinned, pins=())
    gpu = target.find(settings.target)
    whole = lowering.segment(free, settings.options)
    known = bound(free, schedulers(), gpu, seconds=settings.seconds)
    simple = first_fit(free, schedulers(), gpu)
    pair = lowering.segment(pinned, settings.options)
    crossing = sorted({e.value.name for e in pair.edges})
    again = [r.value.name for r in pair.rematerialised]
    dumped = {v: k for k, v in IN_FILE.items()}
    return {
        "free": {
            "segments": len(whole.segments),
            "bytes": whole.bytes,
            "to_352_MB": ratio(whole.bytes, SEED_FLOOR),
            "floor_bytes": known.floor_bytes,
            "best_bytes": known.bytes,
            "lower_bytes": known.lower_bytes,
            "proven": known.proven,
            "first_fit_bytes": simple.bytes,
        },
        "pinned": {
            "segments": [s.scheduler for s in pair.segments],
            "bytes": pair.bytes,
            "gigabytes": round(pair.bytes / 1e9, 3),
            "traffic": [s.estimate.bytes for s in pair.segments if s.estimate is not None],
            "workspace": [
                s.estimate.workspace_bytes for s in pair.segments if s.estimate is not None
            ],
            "crossing": crossing,
            "rematerialised": {n: dumped.get(n, "another") for n in again},
        },
    }


def scale() -> dict[str, Any]:
    """Return how the time grows with the graph, from a process of its own: memory is fresh."""
    command = [sys.executable, "-m", "benchmarks.scale"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def shrunk(before: dict[str, Any], now: dict[str, Any]) -> dict[str, list[int]]:
    """Return the schedulers that accept fewer probes than in the record before."""
    return {
        name: [old["probes"], now.get(name, {}).get("probes", 0)]
        for name, old in before.items()
        if "probes" in old and now.get(name, {}).get("probes", 0) < old["probes"]
    }


def read(path: Path) -> dict[str, Any]:
    """Return what was recorded before."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write(path: Path, data: dict[str, Any]) -> None:
    """Write the record aside, then in its place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".partial")
    aside.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    os.replace(aside, path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the chosen parts and put them into the record."""
    parser = argparse.ArgumentParser(prog="benchmarks.segmentation", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="all that needs no GPU")
    record.add_argument("graphs", metavar="GRAPHS", help="folder of graphs")
    record.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    record.add_argument("--seconds", type=float, default=60.0, help="for the optimum of a graph")
    record.add_argument("--only", default="", metavar="NAME", help="only graphs named so")
    model = commands.add_parser("model", help="predicted against measured times, on a GPU")
    model.add_argument("--repeat", type=int, default=20)
    for command in (record, model):
        command.add_argument("--out", default=str(OUT), metavar="FILE")
        command.add_argument("--target", default="sm_90a")
    given = parser.parse_args(arguments)
    out = Path(given.out)
    data = read(out)
    if given.command == "model":
        from benchmarks.segmentation_model import run

        data["model"] = {"fusec_tree": tree(), **run(given.repeat)}
        write(out, data)
        return 0
    settings = Settings(given.target, given.seconds)
    for part in given.parts.split(","):
        if part not in PARTS:
            print(f"no part `{part}`: one of {', '.join(PARTS)}", file=sys.stderr)
            return 2
        head = {"fusec_tree": tree(), "target": given.target}
        if part == "seed":
            data[part] = {**head, **seed(settings)}
        elif part == "scale":
            data[part] = {**head, **scale()}
        else:
            folder = Path(given.graphs)
            found = segmentation_corpus.run(folder, settings, given.only, _say)
            before = data.get(part, {}).get("accepted", {})
            found["accepts_less_than_before"] = shrunk(before, found["accepted"])
            data[part] = {**head, "seconds": given.seconds, **found}
        write(out, data)
        short = {k: v for k, v in data[part].items() if k != "rows"}
        print(json.dumps({part: short}, indent=1))
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    end_with(main)
