"""Moments at which a rank of `fusec run` is killed or stopped, on GPUs and without.

`environment` lets the processes of a run import this module at their start, by `sitecustomize`:
`install` then replaces the function that the moment begins with, in rank 1 alone. Tests that fork
ranks call `replace` themselves.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from importlib import import_module
from pathlib import Path
from typing import Any

from paths import ROOT

MOMENT, SIGNAL, FOLDER = "TEST_MOMENT", "TEST_SIGNAL", "TEST_FOLDER"
SIGNALS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
HEADLINES = {"killed": "rank 1 died", "stopped": "rank 1 is stopped"}

SUMMED = """\
fusion: summed
mesh: [2]
dims: {B: 16, H: 2048}
inputs:
  p: {type: "f32[2, B, H]", shard: {0: mesh}}
  r: {type: "f32[B, H]", shard: {}}
ops:
  - t = add(sum(p, dims=[0]), r)
  - m = max(t, dims=[1], keepdim=true)
  - y = sub(t, m)
outputs: [y, t]
"""
GATHERED = """\
fusion: gathered
mesh: [2]
dims: {B: 24, H: 1000}
inputs:
  x: {type: "f32[B, H]", shard: {0: mesh}}
ops:
  - d = mul(x, 2.0)
  - s = sum(d, dims=[1], keepdim=true)
  - y = add(d, s)
outputs:
  - y: {shard: {}}
"""
RING = """\
fusion: ring
mesh: [2]
dims: {M: 64, K: 64, N: 64}
inputs:
  x: {type: "bf16[M, K]", shard: {0: mesh}}
  w: {type: "bf16[K, N]", shard: {1: mesh}}
ops:
  - y = matmul(x, w)
outputs:
  - y: {shard: {1: mesh}, stream: {0: 2}}
"""


@dataclass(frozen=True)
class Moment:
    """A moment: the fusion that comes to it, with options, and where it begins.

    gpu, host: `module:Class.method`, or a phase of `Links.phase`; what it begins with on GPUs and
    without. A method with `()` behind it returns the function that it begins with. exchange: of
    which kind an argument has to be, or its instruction.
    """

    text: str
    gpu: str
    host: str
    options: tuple[str, ...] = ()
    exchange: str = ""


_GPU = "fusec.run.transports.choice:GpuTransport"
_HOST = "fusec.run.transports.host:HostTransport"
_NO_READS, _LOOPS = ("--without", "peer_reads"), ("--without", "loops_by_cost")
# On GPUs an exchange is prepared once, and issued by what that returns.
_BEGIN = ("fusec.run.bound:Bound._prepared()", f"{_HOST}.begin")

MOMENTS = {
    "the rendezvous": Moment(
        SUMMED,
        "fusec.run.distributed.rendezvous:_connect_all",
        "fusec.run.distributed.rendezvous:_connect_all",
    ),
    "compiling": Moment(SUMMED, "compiling", "compiling"),
    "before the first exchange": Moment(GATHERED, f"{_GPU}.prepare", f"{_HOST}.prepare"),
    "in all_reduce": Moment(SUMMED, *_BEGIN, _NO_READS, "all_reduce"),
    "in all_gather": Moment(GATHERED, *_BEGIN, (), "all_gather"),
    "in a peer read": Moment(SUMMED, *_BEGIN, (), "Share"),
    "in a loop of sends": Moment(RING, *_BEGIN, _LOOPS, "Send"),
    "waiting for the stream": Moment(
        SUMMED, "fusec.run.device:Device.is_done", f"{_HOST}.wait", _NO_READS
    ),
    "freeing memory": Moment(SUMMED, "freeing memory", "fusec.run.distributed.links:Links.close"),
    "gathering outputs": Moment(GATHERED, "gathering outputs", "gathering outputs"),
}


def let_reads_win(folder: Path) -> Path:
    """Return a folder of targets by which sums over ranks are read in place."""
    from fusec.commands.calibrate import as_toml
    from fusec.target import find

    known = find("sm_90a")
    links = {**known.links, "peer_views": replace_fields(known.links["peer_views"], latency=1e-9)}
    folder.mkdir(parents=True)
    text = as_toml(replace_fields(known, links=links), "tests of ranks")
    (folder / "sm_90a.toml").write_text(text)
    return folder


def environment(name: str, act: str, folder: Path, seconds: float, device: str) -> dict[str, str]:
    """Return the environment of a run whose rank 1 comes to a moment; `folder` is its own."""
    start = folder / "start"
    start.mkdir(parents=True)
    (start / "sitecustomize.py").write_text("import rank_moments\nrank_moments.install()\n")
    moment = MOMENTS[name]
    begins = moment.gpu if device == "cuda" else moment.host
    paths = [str(start), str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "FUSEC_RANK_TIMEOUT": str(seconds),
        "FUSEC_TARGETS": str(let_reads_win(folder / "targets")),
        MOMENT: f"{begins};{moment.exchange}",
        SIGNAL: str(int(SIGNALS[act])),
        FOLDER: str(folder),
    }


def resized(text: str, ranks: int) -> str:
    """Return a fusion of two ranks for another number of ranks."""
    for before, after in (
        ("mesh: [2]", f"mesh: [{ranks}]"),
        ('"f32[2, ', f'"f32[{ranks}, '),
        ("stream: {0: 2}", f"stream: {{0: {ranks}}}"),
    ):
        text = text.replace(before, after)
    return text


def command(name: str, folder: Path, device: str, ranks: int = 2) -> list[str]:
    """Return the command line of a run that comes to a moment."""
    file, moment = folder / "fusion.yaml", MOMENTS[name]
    file.write_text(resized(moment.text, ranks))
    fusec = [sys.executable, "-m", "fusec", "run", str(file), *moment.options]
    return [*fusec, "--device", device, "--ranks", str(ranks)]


def processes(folder: Path) -> dict[str, int]:
    """Return the processes that have noted themselves: ranks 0 and 1, and their watchdogs."""
    return {path.name: int(path.read_text()) for path in (folder / "pids").iterdir()}


def install() -> None:
    """Let this process end or stop at its moment if it is rank 1; note its id if it is a rank."""
    rank = os.environ.get("FUSEC_RANK", os.environ.get("RANK"))
    if rank is None or MOMENT not in os.environ:
        return
    _note_watchdog(rank)
    _write(rank, os.getpid())
    if rank == "1":
        replace(*os.environ[MOMENT].split(";"))


def _write(name: str, pid: int) -> None:
    folder = Path(os.environ[FOLDER], "pids")
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(str(pid))


def _note_watchdog(rank: str) -> None:
    from fusec.run.distributed import watchdog

    start: Callable[..., Any] = watchdog._start_process  # pyright: ignore[reportPrivateUsage]

    def noting(*given: Any) -> Any:
        process = start(*given)
        _write(f"watchdog {rank}", process.pid)
        return process

    watchdog._start_process = noting  # pyright: ignore[reportPrivateUsage]


def _act() -> None:
    Path(os.environ[FOLDER], "acted").write_text(str(time.time()))
    os.kill(os.getpid(), int(os.environ[SIGNAL]))


def replace(begins: str, exchange: str) -> None:
    """Replace a function by one that acts before it does its work."""
    if ":" not in begins:
        from fusec.run.distributed.links import Links

        phase = Links.phase

        def entering(links: Links, doing: str, limit: float = 0.0) -> None:
            phase(links, doing, limit)
            if doing == begins:
                _act()

        Links.phase = entering  # pyright: ignore[reportAttributeAccessIssue]
        return
    module, _, path = begins.removesuffix("()").partition(":")
    owner: Any = import_module(module)
    *classes, name = path.split(".")
    for each in classes:
        owner = getattr(owner, each)
    work: Callable[..., Any] = getattr(owner, name)

    def acting(*given: Any, **named: Any) -> Any:
        if exchange and exchange not in _kinds(given):
            return work(*given, **named)
        if not begins.endswith("()"):
            _act()
            return work(*given, **named)
        issue: Callable[[], Any] = work(*given, **named)

        def act_and_issue() -> Any:
            _act()
            return issue()

        return act_and_issue

    setattr(owner, name, acting)


def _kinds(given: tuple[Any, ...]) -> set[str]:
    """Return the kinds of exchanges among arguments, and of their instructions."""
    exchanges = [getattr(each, "instruction", each) for each in given]
    names = {type(each).__name__ for each in exchanges}
    return names | {str(getattr(each, "kind", "")) for each in exchanges}
