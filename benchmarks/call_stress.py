"""Ten thousand calls of one program with changing sizes, from threads, on streams and devices.

python -m benchmarks.call_stress [--out FILE] [--calls N]     needs a GPU and PyTorch

Every result is compared. Each part says how much memory of the host and of the devices it left
taken: after the first thousand calls and after the last.
"""

from __future__ import annotations

import argparse
import gc
import random
import resource
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fusec
from benchmarks.entry import end_with
from benchmarks.segmentation import ROOT, read, tree, write
from fusec.call.program import Program

OUT = ROOT / "benchmarks" / "results" / "h200-calls.json"
THREADS = 4
TEXT = """
fusion: rows
dims: {B: 512, H: 256}
inputs:
  x: f32[B, H]
  w: f32[H]
  a: f32 = 1.0
ops:
  - s = segment_set(sum(mul(x, w), dims=[1], keepdim=true))
  - y = segment_set(mul(x, s))
  - z = mul(sum(mul(y, y), dims=[1]), a)
outputs: [y, z]
"""


def taken(devices: int) -> dict[str, int]:
    """Return megabytes of the host, and of the devices beside what PyTorch holds."""
    import torch

    for device in range(devices):
        torch.cuda.synchronize(device)
    gc.collect()
    found = {"host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}
    for device in range(devices):
        free, total = torch.cuda.mem_get_info(device)
        found[f"gpu {device}"] = (total - free - torch.cuda.memory_reserved(device)) >> 20
    return found


def work(program: Program, number: int, calls: int, device: int, stream: Any) -> int:
    """Call with sizes drawn by a seed, and return how many results were wrong."""
    import torch

    draw, wrong = random.Random(number), 0
    with torch.cuda.device(device), torch.cuda.stream(stream):
        rows = torch.randn(2048, 256, device="cuda")
        w = torch.randn(256, device="cuda")
        for _ in range(calls):
            x = rows[: draw.choice((1, 7, 64, 500, draw.randint(1, 2048)))]
            a = draw.uniform(0.5, 2.0)
            y, z = program(x, w, a)
            wanted = x.double() * (x.double() @ w.double())[:, None]
            near = torch.allclose(y.double(), wanted, rtol=1e-3, atol=1e-2)
            total = (wanted * wanted).sum(1) * a
            wrong += not (near and torch.allclose(z.double(), total, rtol=1e-3, atol=1e-1))
    return wrong


def part(name: str, calls: int, streams: int, devices: int) -> dict[str, Any]:
    """Return what a part found."""
    import torch

    program = fusec.compile(TEXT)
    places = [(k % devices, torch.cuda.Stream(k % devices)) for k in range(max(streams, devices))]
    wrong: list[int] = []

    def run(total: int) -> None:
        def one(number: int) -> None:
            wrong.append(work(program, number, total // THREADS, *places[number % len(places)]))

        threads = [threading.Thread(target=one, args=(k,)) for k in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    run(calls // 10)
    before = taken(devices)
    run(calls)
    return {
        "part": name, "calls": calls, "threads": THREADS, "wrong": sum(wrong),
        "ended": len(wrong) == 2 * THREADS, "before_mb": before, "after_mb": taken(devices),
        "builds": len(program.variants),
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts, and put them into the record."""
    import torch

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--calls", type=int, default=10_000)
    given = parser.parse_args(arguments)
    parts = [("one stream", 1, 1), ("two streams", 2, 1), ("two devices", 2, 2)]
    rows = [
        part(name, given.calls, streams, devices)
        for name, streams, devices in parts
        if devices <= torch.cuda.device_count()
    ]
    for row in rows:
        print(row)
    write(given.out, {**read(given.out), "stress": {"tree": tree(), "rows": rows}})
    return 1 if any(row["wrong"] or not row["ended"] for row in rows) else 0


if __name__ == "__main__":
    end_with(main)
