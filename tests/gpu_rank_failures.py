"""Kills and stops a rank of `fusec run --ranks N` at ten moments.

`python tests/gpu_rank_failures.py` needs a GPU for each rank, or `--device reference`. For each
case it checks the exit code, that the rank is named and what the survivors were doing, how long it
took, and that no process is left; at the end, by nvidia-smi, that none holds memory of a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from rank_moments import HEADLINES, MOMENTS, SIGNALS, command, environment, processes

SECONDS = 6.0
"""FUSEC_RANK_TIMEOUT of the runs: the processes of several cases share the GPUs and the cores."""
LEFT = 5.0
"""Seconds after which nothing of a run may be left."""
_LIMIT = 100.0


@dataclass(frozen=True)
class Case:
    """How a run ended; `problems`: what was not as it has to be."""

    moment: str
    act: str
    seconds: float
    code: int | None
    said: str
    problems: tuple[str, ...]


def is_running(pid: int) -> bool:
    """Return whether a process is there and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def try_moment(
    moment: str, act: str, folder: Path, device: str, ranks: int = 2, seconds: float = SECONDS
) -> Case:
    """Run ranks of which the second is lost at a moment, and return how they ended."""
    variables = environment(moment, act, folder, seconds, device)
    line = command(moment, folder, device, ranks)
    process = subprocess.Popen(
        line, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        _, said = process.communicate(timeout=_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        _, said = process.communicate()
    ended = time.time()
    acted = folder / "acted"
    took = ended - float(acted.read_text()) if acted.exists() else 0.0
    problems = list(_problems(process.returncode, said, act, ranks))
    if not acted.exists():
        problems.append("rank 1 did not come to this moment")
    if took > seconds + LEFT:
        problems.append(f"took {took:.1f} s")
    while time.time() < ended + LEFT and any(map(is_running, processes(folder).values())):
        time.sleep(0.05)
    left = [name for name, pid in processes(folder).items() if is_running(pid)]
    problems += [f"left: {name}" for name in left]
    return Case(moment, act, round(took, 2), process.returncode, said, tuple(problems))


def _problems(code: int, said: str, act: str, ranks: int) -> list[str]:
    problems = [] if code == 4 else [f"exit code {code}"]
    if f"environment: {HEADLINES[act]}\n" not in f"{said}\n":
        problems.append(f"`{HEADLINES[act]}` is not said")
    doing = r"(?:in `.+`|not in a collective)"
    lines = re.findall(rf"  = ranks? ([\d, ]+) (?:was|were) {doing}", said)
    named = {int(rank) for line in lines for rank in line.split(", ")}
    problems += [
        f"what rank {rank} was doing is not said"
        for rank in range(ranks)
        if rank not in {1, *named}
    ]
    if "rank 0 was ended" in said or "Traceback" in said:
        problems.append("more is said than who was lost")
    return problems


def on_gpus(place: str) -> set[str]:
    """Return this script's processes that hold memory of a GPU, by nvidia-smi.

    They have a path below `place` in their environment.
    """
    asked = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"]
    found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    holders = {line.split(",")[0] for line in found.splitlines() if line.strip()}
    return {pid for pid in holders if f"{place}/".encode() in environment_of(pid)}


def environment_of(pid: str) -> bytes:
    """Return a process' environment; that of one that has ended is empty."""
    try:
        return Path("/proc", pid, "environ").read_bytes()
    except OSError:
        return b""


def main(arguments: Sequence[str] | None = None) -> int:
    """Try all moments, several at a time, and print how each ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "reference"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--at-once", type=int, default=4, help="runs at a time")
    parser.add_argument("--out", type=Path, help="file for what was found, as JSON")
    given = parser.parse_args(arguments)
    uses_gpus = given.device == "cuda"
    during, left = set[str](), set[str]()
    begun = time.monotonic()
    with TemporaryDirectory() as place, ThreadPoolExecutor(given.at_once) as pool:
        cases = [
            pool.submit(
                try_moment, moment, act, Path(place, f"{number}"), given.device, given.ranks
            )
            for number, (moment, act) in enumerate(product(MOMENTS, SIGNALS))
        ]
        while uses_gpus and not all(case.done() for case in cases):
            during |= on_gpus(place)
            time.sleep(0.5)
        found = [case.result() for case in cases]
        if uses_gpus:
            time.sleep(LEFT)
            left = on_gpus(place)
    for case in found:
        how = "; ".join(case.problems) or "as it has to be"
        print(f"{case.moment}, {case.act}: {case.seconds:.1f} s, exit {case.code}: {how}")
        for line in case.said.splitlines():
            print(f"    {line}")
    problems = sum(map(len, (case.problems for case in found)))
    if uses_gpus:
        problems += len(left) + (not during)
        seen, rest = len(during), ", ".join(left) or "none"
        print(f"nvidia-smi: {seen} processes while they ran, left: {rest}")
    print(f"{len(found)} cases, {problems} problems, {time.monotonic() - begun:.0f} s")
    if given.out is not None:
        given.out.write_text(json.dumps([asdict(case) for case in found], indent=1) + "\n")
    return int(problems > 0)


if __name__ == "__main__":
    os.environ["FUSEC_TUNED"] = "0"
    sys.exit(main())
