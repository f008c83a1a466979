"""All that is measured on four GPUs, or on another number of ranks, by one command.

python -m benchmarks.four_gpus [--ranks N] [--device cuda|reference] [--out FILE]
                               [--only PART ...] [--again] [--limit SECONDS] [--list]

Each part is a process of its own with a limit of time. What has ended well for the same tree, ranks
and device is not run again, unless it is named or `--again` is said. Under `runs` the record has
how each part ended; times stand where `benchmarks.two_gpus` puts them. With `--device reference`
examples and fusions run at small sizes without GPUs, and what is timed is left out.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import programs_ranks as texts
from benchmarks.entry import end_with
from benchmarks.segmentation import ROOT, read, tree, write
from fusec.parse import read_file

EXAMPLES = ROOT / "examples" / "parallel"
OUT = ROOT / "benchmarks" / "results" / "four-gpus.json"
TIMED = {
    "known": 420, "sampled": 420, "all_reduce": 120, "norm": 120, "mlp": 180, "pipeline": 180,
    "experts": 180,
}  # fmt: skip
"""Parts of `benchmarks.two_gpus`, with their seconds at most."""
VERIFIED = 150
"""Seconds for a fusion that is verified, at most: the reference takes longest."""
NVFUSER = 240
"""Seconds for nvFuser's tests of several devices, by their names, at most."""
FAILURES = 560
SHOWN = 12
"""Lines of what a part printed last, in the record."""


@dataclass(frozen=True)
class Part:
    """A command, and the seconds that it may take."""

    name: str
    command: tuple[str, ...]
    limit: int


def small(file: Path) -> list[str]:
    """Return options that make a fusion's default sizes small: for the reference."""
    sizes = read_file(file).hints
    given = {name: size for name, size in sizes.items() if "." not in name and size > 16}
    return [f"--set={name}={max(16, size // 64)}" for name, size in given.items()]


def fusions(ranks: int, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield what is verified: the examples, and fusions of other meshes, written to a folder."""
    for file in sorted(EXAMPLES.glob("*.yaml")):
        if read_file(file).mesh is None:
            continue
        own = folder / file.name
        own.write_text(resized(file.read_text(encoding="utf-8"), ranks), encoding="utf-8")
        yield f"example {file.stem}", own
    if ranks % 2 == 0:
        mesh = folder / "two_axes.yaml"
        mesh.write_text(texts.two_axes(ranks // 2, 2, 8192, 4096, 14336), encoding="utf-8")
        yield f"mesh {ranks // 2}x2", mesh
    turned = folder / "turned.yaml"
    turned.write_text(texts.turned(ranks, 8192, 8192), encoding="utf-8")
    yield "all_to_all", turned


def resized(text: str, ranks: int) -> str:
    """Return an example with a mesh of so many ranks, and as many slices or terms as there are."""
    for before in ("mesh: [4", "p: 4", "stream: {0: 4", '"bf16[4,'):
        text = text.replace(before, before.replace("4", str(ranks)))
    return text


def parts(ranks: int, device: str, out: Path, folder: Path) -> Iterator[Part]:
    """Yield all parts, those first that say most if time runs out."""
    for name, file in fusions(ranks, folder):
        sizes = small(file) if device == "reference" else []
        line = ["run", str(file), "--ranks", str(ranks), "--device", device, "--repeat", "0"]
        yield Part(name, (sys.executable, "-m", "fusec", *line, *sizes), VERIFIED)
    if device == "cuda":
        launcher = "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)
        for name, limit in TIMED.items():
            asked = "-m", "benchmarks.two_gpus", "--only", name, "--out", str(out)
            yield Part(name, (sys.executable, *launcher, *asked), limit)
        scripts = str(ROOT / "tests" / "ranks_of_nvfuser.py")
        yield Part("nvfuser", (sys.executable, *launcher, scripts), NVFUSER)
    script = str(ROOT / "tests" / "gpu_rank_failures.py")
    failures = sys.executable, script, "--device", device, "--ranks"
    yield Part("failures", (*failures, str(ranks)), FAILURES)


def run(part: Part) -> dict[str, Any]:
    """Run a part and return how it ended; at its time limit all its processes are killed."""
    begun = time.monotonic()
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        part.command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=part.limit)
        ended = f"exit {process.returncode}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        ended = f"more than {part.limit} s"
    return {
        "ended": ended,
        "seconds": round(time.monotonic() - begun, 1),
        "said": said.replace(f"{ROOT}/", "").splitlines()[-SHOWN:],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what has not been run, record each at once, and return whether all has ended well."""
    parser = argparse.ArgumentParser(prog="benchmarks.four_gpus", description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--device", default="cuda", choices=("cuda", "reference"))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--only", nargs="+", metavar="PART")
    parser.add_argument("--again", action="store_true", help="run also what has ended well")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds of all parts")
    parser.add_argument("--list", action="store_true", help="print the parts alone")
    given = parser.parse_args(arguments)
    begun, problems = time.monotonic(), 0
    head = {"tree": tree(), "ranks": given.ranks, "device": given.device}
    with TemporaryDirectory() as place:
        every = {p.name: p for p in parts(given.ranks, given.device, given.out, Path(place))}
        for name in given.only or every:
            if name not in every:
                parser.error(f"no part is called `{name}`: {', '.join(every)}")
        for name in given.only or every:
            known = read(given.out).get("runs", {}).get(name, {})
            is_done = known.get("ended") == "exit 0" and head.items() <= known.items()
            if given.list or (is_done and not given.again and not given.only):
                print(f"{name}: {known.get('ended', 'not run')}", flush=True)
                continue
            if time.monotonic() - begun > given.limit:
                print(f"{name}: left for the next time", flush=True)
                problems += 1
                continue
            found = run(every[name])
            record = read(given.out)
            runs = {**record.get("runs", {}), name: {**head, **found}}
            write(given.out, {**record, "runs": runs})
            problems += found["ended"] != "exit 0"
            print(f"{name}: {found['ended']}, {found['seconds']} s", flush=True)
    return int(problems > 0)


if __name__ == "__main__":
    end_with(main)
