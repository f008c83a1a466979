"""One of several ranks that share a GPU: calls and graphs of programs that exchange.

Processes map one another's memory on one GPU as on several, so that copies, flags and barriers are
those of a machine with a GPU for each. fusec refuses this elsewhere: ranks would wait in turns.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

import fusec
from fusec.call import fast
from fusec.call.captured import CapturedCall, capture
from fusec.call.record import Record
from fusec.run.distributed.links import Links
from fusec.run.distributed.process import barrier
from fusec.run.transports import choice
from fusec.schedule.host import communication as host
from fusec.target import find
from fusec.target.table import Link

GATHERED = """
fusion: gathered
mesh: [RANKS]
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
READ = """
fusion: read
mesh: [RANKS]
dims: {B: 5, H: 512}
inputs:
  p: {type: "f32[RANKS, B, H]", shard: {0: mesh}}
  r: {type: "f32[B, H]", shard: {}}
ops:
  - t = add(sum(p, dims=[0]), r)
  - m = max(t, dims=[1], keepdim=true)
  - y = sub(t, m)
outputs: [y, t]
"""
TURNED = """
fusion: turned
mesh: [RANKS]
dims: {B: 16, H: 32}
inputs:
  x: {type: "f32[B, H]", shard: {0: mesh}}
ops:
  - d = add(x, 1.0)
  - y = mul(d, 3.0)
outputs:
  - y: {shard: {1: mesh}}
"""
LOOPED = """
fusion: looped
mesh: [RANKS]
dims: {B: 48, H: 1000}
inputs:
  x: {type: "f32[B, H]", shard: {0: mesh}}
  w: {type: "f32[H]", shard: {}}
ops:
  - y = mul(x, w)
outputs:
  - y: {shard: {}, stream: {0: SLICES}}
"""


def reach_all(links: Links, device: Any) -> list[set[int]]:
    """Let ranks that share a GPU reach one another's memory."""
    return [set(range(links.size)) for _ in range(links.size)]


made: list[CapturedCall] = []
"""Graphs of calls."""


def noted(record: Record) -> CapturedCall:
    """Return the graph of a call, and note it."""
    made.append(capture(record))
    return made[-1]


choice.reachable = reach_all
fast.capture = noted
torch: Any = import_module("torch")
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
Arrays = dict[str, np.ndarray[Any, Any]]


def drawn(seed: int, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return whole numbers of which sums are exact."""
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(np.float32)


def part(whole: np.ndarray[Any, Any], axis: int) -> np.ndarray[Any, Any]:
    """Return this rank's part."""
    return np.ascontiguousarray(np.split(whole, RANKS, axis)[RANK])


def check(
    text: str,
    says: str,
    own: Callable[[int], list[Any]],
    right: Callable[[int], list[Any]],
    *,
    captured_calls: bool = False,
) -> None:
    """Compare calls, replays of a graph and of PyTorch's, with other values, with what is right.

    says: what the program has; own: this rank's arguments, by a seed; right: its outputs.
    captured_calls: whether its calls are to launch graphs.
    """
    text = text.replace("RANKS", str(RANKS)).replace("SLICES", str(2 * RANKS))
    program = fusec.compile(text, target="sm_90a", without=("loops_by_cost",))
    assert says in program.plan(), program.plan()

    def compare(seed: int, found: Any) -> None:
        outputs = found if isinstance(found, tuple) else (found,)
        for output, wanted in zip(outputs, right(seed), strict=True):
            np.testing.assert_array_equal(output.cpu().numpy(), wanted)

    kept = list[Any]()  # so that arguments lie elsewhere, and results
    made.clear()
    for seed in range(4):
        given = [torch.from_numpy(a).cuda() for a in own(seed)]
        kept += [given, program(*given)]
        compare(seed, kept[-1])
    assert len(made) == captured_calls
    arrays = [torch.from_numpy(a).cuda() for a in own(4)]
    graph = program.graph(*arrays)
    for seed in range(4, 30):
        for array, values in zip(arrays, own(seed), strict=True):
            array.copy_(torch.from_numpy(values))
        compare(seed, graph())
    others = [torch.from_numpy(a).cuda() for a in own(30)]
    compare(30, graph(*others))
    compare(31, program(*(torch.from_numpy(a).cuda() for a in own(31))))
    for array, values in zip(others, own(32), strict=True):
        array.copy_(torch.from_numpy(values))
    compare(32, graph())
    static = program.graph(*others, static_inputs=True)
    for seed in range(50, 60):
        for array, values in zip(others, own(seed), strict=True):
            array.copy_(torch.from_numpy(values))
        compare(seed, static())
    torch.cuda.synchronize()
    barrier()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        found = program(*others)
    for seed in range(33, 37):
        for array, values in zip(others, own(seed), strict=True):
            array.copy_(torch.from_numpy(values))
        captured.replay()
        compare(seed, found)
        compare(seed + 10, program(*(torch.from_numpy(a).cuda() for a in own(seed + 10))))
    torch.cuda.synchronize()
    barrier()


def let_reads_win() -> None:
    """Have sums read where they lie that a kernel would push."""
    links: Any = find("sm_90a").links
    links["peer_views"] = Link(0.7, 6e-6)
    host.pushes_sum = lambda *given: False  # type: ignore[assignment]


def gathered(seed: int) -> list[Any]:
    """Return all rows, as every rank has them."""
    d = 2 * drawn(seed, (24, 1000))
    return [d + d.sum(1, keepdims=True)]


def read(seed: int) -> list[Any]:
    """Return the sums over ranks less the greatest of a row, and the sums."""
    t = drawn(seed, (RANKS, 5, 512)).sum(0) + drawn(seed + 1000, (5, 512))
    return [t - t.max(1, keepdims=True), t]


if __name__ == "__main__":
    torch.cuda.set_device(0)
    check(GATHERED, "all_gather", lambda s: [part(drawn(s, (24, 1000)), 0)], gathered)
    looped = drawn(7, (1000,))
    check(
        LOOPED, "receive",
        lambda s: [part(drawn(s, (48, 1000)), 0), looped],
        lambda s: [drawn(s, (48, 1000)) * looped],
        captured_calls=True,
    )  # fmt: skip
    for says in ("all_reduce", "share"):
        check(
            READ, says,
            lambda s: [part(drawn(s, (RANKS, 5, 512)), 0), drawn(s + 1000, (5, 512))], read,
        )  # fmt: skip
        let_reads_win()
    check(
        TURNED, "all_to_all",
        lambda s: [part(drawn(s, (16, 32)), 0)],
        lambda s: [part((drawn(s, (16, 32)) + 1) * 3, 1)],
    )  # fmt: skip
