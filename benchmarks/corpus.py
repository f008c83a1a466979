"""The corpus runner: every graph of a folder through all stages, each with its own time limit.

python -m benchmarks.corpus DIR [--device cuda|none] [--only NAME] [--jobs N] --out FILE
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.corpus_pool import Pool, default_jobs
from benchmarks.corpus_stages import STAGES, Record, Settings
from benchmarks.entry import end_with

# Each worker is one of many: their linear algebra must not fight over the processors.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the graphs, write the records, print the tables; 0 if nothing failed by fault."""
    given = _parser().parse_args(arguments)
    folder = Path(given.graphs)
    names = sorted(p.stem for p in folder.glob("*.json"))
    if given.only:
        names = [n for n in names if given.only in n]
    if not names:
        print(f"no graphs in {folder}", file=sys.stderr)
        return 2
    if given.device == "cuda":
        from fusec.run.device import device_available

        reason = device_available()
        if reason is not None:
            print(f"--device cuda: {reason}", file=sys.stderr)
            return 4
    for variable in THREADS:
        os.environ.setdefault(variable, "1" if given.jobs > 1 else str(default_jobs()))
    cuda, jobs = given.device == "cuda", min(given.jobs, len(names))
    settings = Settings(folder, cuda, given.references, given.target, given.seed)
    began = time.perf_counter()
    records: list[Record] = []

    def report(record: Record) -> None:
        records.append(record)
        spent = sum(record.seconds.values())
        first = record.message.splitlines()[0] if record.message else ""
        line = f"[{len(records)}/{len(names)}] {record.name}: {record.stage} {record.exit}"
        print(f"{line} ({spent:.1f} s) {first}", flush=True)

    Pool(settings, jobs, given.limit).run(names, report)
    total = time.perf_counter() - began
    records.sort(key=lambda r: r.name)
    _write(Path(given.out), given, records, total)
    print(summary(records, total))
    return 0 if all(r.exit in (0, 3) for r in records) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.corpus", description=__doc__)
    parser.add_argument("graphs", metavar="DIR", help="folder of graphs, reference.py beside it")
    parser.add_argument("--device", choices=("cuda", "none"), default="none")
    parser.add_argument("--only", metavar="NAME", help="only graphs with this in their name")
    parser.add_argument("--jobs", type=int, default=default_jobs(), metavar="N")
    parser.add_argument("--limit", type=float, default=180.0, metavar="SECONDS", help="per graph")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--references", action="store_true", help="without a GPU: compare the two references"
    )
    parser.add_argument("--out", required=True, metavar="FILE")
    return parser


def _write(path: Path, given: argparse.Namespace, records: Sequence[Record], total: float) -> None:
    data = {
        "device": given.device,
        "fusec_tree": os.environ.get("FUSEC_TREE", ""),
        "target": given.target,
        "jobs": given.jobs,
        "seconds": round(total, 1),
        "stages": dict(sorted(Counter(_outcome(r) for r in records).items())),
        "graphs": [r.data() for r in records],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".partial")
    aside.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    os.replace(aside, path)


def _outcome(record: Record) -> str:
    return record.stage if record.exit in (0, 3) else f"{record.stage}, exit {record.exit}"


def summary(records: Sequence[Record], total: float) -> str:
    """Return how many graphs ended where, and why those that did not get through."""
    order = {stage: k for k, stage in enumerate((*reversed(STAGES), "refused"))}
    outcomes = Counter((order[r.stage], r.exit, _outcome(r)) for r in records)
    lines = ["", f"{len(records)} graphs in {total:.0f} s", ""]
    lines += [f"  {count:4}  {text}" for (_, _, text), count in sorted(outcomes.items())]
    reasons: dict[tuple[int, str], list[str]] = {}
    for record in records:
        if record.exit:
            reasons.setdefault((record.exit, reason(record)), []).append(record.name)
    if reasons:
        lines += ["", "why:"]
    for (code, why), names in sorted(reasons.items(), key=lambda i: (-i[0][0], -len(i[1]), i[0])):
        lines.append(f"  {len(names):4}  exit {code}  {why[:150]}")
        lines += [f"              {name}" for name in names[:4]]
        lines += [f"              and {len(names) - 4} more"] if len(names) > 4 else []
    slow = sorted(records, key=lambda r: -sum(r.seconds.values()))[:5]
    lines += ["", "slowest:"]
    lines += [f"  {sum(r.seconds.values()):6.1f} s  {r.name}" for r in slow]
    return "\n".join(lines)


def reason(record: Record) -> str:
    """Return the message's first line without names and sizes, so that equal causes group."""
    first: Any = record.message.splitlines()[0] if record.message else ""
    if record.exit == 70:
        return f"{record.stage}: {first}"
    return first


if __name__ == "__main__":
    end_with(main)
