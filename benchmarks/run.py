"""Times suites of workloads beside the limit of the memory, and beside peers.

python -m benchmarks.run --suite NAME [--only GLOB,...] [--peers NAME,...]
                         [--seed N,...] [--seconds S] [--repeat N] [--out FILE.json]

NAME: memory, small, attention, attention_backward, operands, generated or products.

docs/bench.md says what is measured, how, and what is in the file.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from fnmatch import fnmatchcase
from math import exp, log
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks import generated, operands, products, suites
from benchmarks.entry import end_with
from benchmarks.measure import has_torch
from benchmarks.peers import PEERS
from benchmarks.prepared import prepare
from benchmarks.rows import Row
from fusec import driver
from fusec.bench.work import Work, build
from fusec.diagnostics import FusecError, InternalError
from fusec.options import DEFAULT_TARGET, CompileOptions
from fusec.run.device import Device, device_available

DRAWN = {"generated": generated.rows_of, "products": products.rows}
"""Suites with rows that are drawn from seeds."""
SEEDS = {"generated": 1, "products": 3}
"""How many seeds are drawn where none is given."""
SUMMARIES = {"products": products.summary, "operands": operands.summary}
"""Of suites with other peers for each row."""
SUITES = (*suites.SUITES, *DRAWN)
SCHEMA = 1
UNDER = 0.92


def rows_of(suite: str, only: Sequence[str], seeds: Sequence[int]) -> list[Row]:
    """Return the rows of a suite whose names one of the patterns fits; all without patterns."""
    rows = DRAWN[suite](seeds) if suite in DRAWN else suites.SUITES[suite]
    return [r for r in rows if not only or any(fnmatchcase(r.name, o) for o in only)]


def build_row(row: Row, target: str) -> Work | str:
    """Return a row built, or why it cannot be; runs in a process of its own."""
    try:
        options = CompileOptions(targets=(target,), targets_given=True, jobs=1)
        return build(row.fusion, options)
    except FusecError as error:
        return error.render()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def build_all(rows: Sequence[Row], target: str, jobs: int) -> dict[str, Work | str]:
    """Return every row built, by name, several at a time."""
    found: dict[str, Work | str] = {}
    with ProcessPoolExecutor(max(1, min(jobs, len(rows))), get_context("spawn")) as pool:
        waiting = {pool.submit(build_row, row, target): row.name for row in rows}
        for future in as_completed(waiting):
            error = future.exception()
            found[waiting[future]] = f"{error!r}" if error is not None else future.result()
    return found


def timed(
    rows: Sequence[Row],
    works: Mapping[str, Work | str],
    given: argparse.Namespace,
    prepared: Mapping[tuple[str, str], str],
) -> Iterator[dict[str, Any]]:
    """Yield the head of the record, then each row as it is measured, until the time is over."""
    from benchmarks.measure import measure
    from fusec.bench.session import Session
    from fusec.commands.bench import head

    end, stopped = time.monotonic() + given.seconds, ""
    with Session(given.jobs) as session:
        yield head(session)
        for row in rows:
            work = works[row.name]
            if time.monotonic() > end:
                stopped = stopped or f"{given.seconds:g} s were over"
            if isinstance(work, str):
                yield {"name": row.name, "failed": work}
            elif stopped:
                yield {"name": row.name, "not_measured": stopped}
            else:
                try:
                    if given.suite == "operands":
                        yield operands.measure(session, row, work, given.repeat)
                    elif given.suite == "products":
                        peers = given.peers
                        yield products.measure(session, row, work, peers, given.repeat, prepared)
                    else:
                        small = given.suite == "small"
                        yield measure(session, row, work, given.peers, given.repeat, small=small)
                except Exception as error:
                    known = isinstance(error, FusecError)
                    text = error.render() if known else f"{type(error).__name__}: {error}"
                    # A fault of a kernel breaks the context, and all that is measured later.
                    stopped = f"{row.name} faulted" if isinstance(error, InternalError) else ""
                    yield {"name": row.name, "failed": text}


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the means of rows: of shares and ratios the geometric ones."""
    shares = {r["name"]: r["share"] for r in rows}
    ratios: dict[str, list[float]] = {}
    for row in rows:
        for name, ratio in row["ratios"].items():
            ratios.setdefault(name, []).append(ratio)
    return {
        "rows": len(rows),
        "share": geometric_mean(list(shares.values())),
        "under": sorted(n for n, share in shares.items() if share < UNDER),
        "ratios": {n: geometric_mean(every) for n, every in ratios.items()},
        "lost": {n: sum(r < 1 for r in every) for n, every in ratios.items()},
    }


def geometric_mean(numbers: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers; 0 of none."""
    return round(exp(sum(map(log, numbers)) / len(numbers)), 4) if numbers else 0.0


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def arguments_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments, checked."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.run", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    listed = {"type": lambda text: [t for t in text.split(",") if t], "default": []}
    parser.add_argument("--suite", choices=SUITES, required=True)
    parser.add_argument("--only", **listed, help="patterns of names, with *, ? and [...]")
    parser.add_argument("--peers", **listed, help=f"of {', '.join(PEERS)}")
    parser.add_argument(
        "--seed", type=_numbers, default=[], help="seeds of what is drawn; drawn themselves without"
    )
    parser.add_argument(
        "--compile-seconds",
        type=float,
        default=600,
        help="for what torch.compile makes of products",
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no row later")
    parser.add_argument("--repeat", type=int, default=25, help="runs of each contender")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--target", help="to build for (default: the GPU at hand)")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    parser.add_argument("--build", action="store_true", help="only build, which needs no GPU")
    given = parser.parse_args(arguments)
    if given.suite == "products" and not given.peers:
        given.peers = list(products.DEFAULT_PEERS)
    if given.suite == "generated" and len(given.seed) > 1:
        parser.error("`generated` takes one seed")
    unknown = [p for p in given.peers if p not in PEERS]
    if unknown:
        parser.error(f"no peer `{unknown[0]}`: one of {', '.join(PEERS)}")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Build and time the rows; print a table, and write the record as it grows."""
    given = arguments_of(arguments)
    seeds = given.seed or [secrets.randbits(32) for _ in range(SEEDS.get(given.suite, 0))]
    rows = rows_of(given.suite, given.only, seeds)
    if given.suite in DRAWN:
        listed = ",".join(map(str, seeds))
        print(f"seed {listed}: --suite {given.suite} --seed {listed} is the same again", flush=True)
    if given.list or not rows:
        print("\n".join(r.name for r in rows) or "no row has such a name")
        return 0 if rows else 2
    reason = device_available()
    if reason is not None and not given.build:
        print(f"environment: {reason}\n  = help: --build builds without a GPU", file=sys.stderr)
        return 4
    began = time.monotonic()
    works = build_all(rows, given.target or target_at_hand(reason), given.jobs)
    failed = {n: w for n, w in works.items() if isinstance(w, str)}
    took = time.monotonic() - began
    print(f"{len(works) - len(failed)} of {len(works)} rows built in {took:.1f} s", flush=True)
    if given.build:
        for name, why in failed.items():
            print(f"{name}: {why}")
        return 1 if failed else 0
    return _time_all(rows, works, given, seeds)


def target_at_hand(reason: str | None) -> str:
    """Return the target of the GPU at hand, without one the default."""
    if reason is not None:
        return DEFAULT_TARGET
    with Device() as device:
        return driver.for_device(CompileOptions(), device.facts).target


def _time_all(
    rows: Sequence[Row],
    works: Mapping[str, Work | str],
    given: argparse.Namespace,
    seeds: Sequence[int],
) -> int:
    from benchmarks.torch_side import versions

    prepared = _prepared(rows, given) if given.suite == "products" else {}
    began, found = time.monotonic(), timed(rows, works, given, prepared)
    record: dict[str, Any] = {
        "schema": SCHEMA, "suite": given.suite,
        "seed": _one_or_all(seeds) if given.suite in DRAWN else None, **next(found),
        "peers": versions({name: PEERS[name].package for name in given.peers}),
        "rows": [], "failed": {}, "not_measured": {},
    }  # fmt: skip
    for each in found:
        _take(record, each)
        record["summary"] = SUMMARIES.get(given.suite, summary)(record["rows"])
        record["seconds"] = round(time.monotonic() - began, 1)
        if given.out is not None:
            aside = given.out.with_suffix(".partial")
            aside.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
            os.replace(aside, given.out)
    print(json.dumps(record["summary"], indent=1))
    if record["not_measured"]:
        print(f"not measured: {','.join(record['not_measured'])}")
    return 1 if record["failed"] else 0


def _one_or_all(seeds: Sequence[int]) -> int | list[int]:
    return seeds[0] if len(seeds) == 1 else list(seeds)


def _prepared(rows: Sequence[Row], given: argparse.Namespace) -> dict[tuple[str, str], str]:
    """Return what torch.compile has not made of products, by row and peer, and why."""
    names = [n for n in given.peers if n in products.EPILOGUE_PEERS]
    fused = [r for r in rows if not r.function.endswith(products.LAYOUTS)]
    reason = "has nothing for this workload"
    found = {(row.name, name): reason for row in rows for name in names}
    if not (names and fused) or has_torch():
        return found
    began = time.monotonic()
    found |= prepare(fused, names, given.compile_seconds, given.jobs)
    ready = sum(not found[row.name, name] for row in fused for name in names)
    took = time.monotonic() - began
    print(f"torch.compile made {ready} of {len(fused) * len(names)} in {took:.1f} s", flush=True)
    return found


def _take(record: dict[str, Any], row: dict[str, Any]) -> None:
    """Put what is known of a row into the record, and say it."""
    if "not_measured" in row:
        record["not_measured"][row["name"]] = row["not_measured"]
    elif "failed" in row:
        record["failed"][row["name"]] = row["failed"]
        print(f"{row['name']}: {row['failed']}", flush=True)
    else:
        name, *cells = row.pop("line")
        record["rows"].append(row)
        print(f"{name:<44} " + "  ".join(cells), flush=True)
        if "replay" in row:
            print(f"  {json.dumps(row['replay'])}", flush=True)


if __name__ == "__main__":
    end_with(main)
