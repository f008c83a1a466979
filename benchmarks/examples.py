"""Times the examples at sizes that fill the GPU: `python -m benchmarks.examples --out FILE`.

Each row is the median of event-timed runs with a cold L2 on random data; `moved` is what the plan
moves, `bytes` the fewest that any kernels must move; the share is of those over what the device's
bandwidth moves in that time, and `tensor_share` is that of the products. FUSEC_TREE, the hash of
`git rev-parse HEAD:fusec`, goes into the file, so that a figure can be traced to the code that was
run.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.entry import end_with
from fusec import driver
from fusec.options import CompileOptions
from fusec.run.device import Device
from fusec.segment import roofline
from fusec.segment.roofline import Rates
from fusec.segment.segmented import SegmentedFusion

EXAMPLES = Path(__file__).parent.parent / "examples"

WORKLOADS: tuple[tuple[str, Mapping[str, int]], ...] = (
    ("gelu_bias", {"T": 16384, "F": 8192}),
    ("swiglu", {"T": 16384, "F": 8192}),
    ("softmax", {"B": 65536, "H": 1024}),
    ("softmax", {"B": 16384, "H": 8192}),
    ("softmax", {"B": 4096, "H": 32768}),
    ("softmax", {"B": 1024, "H": 131072}),
    ("layernorm", {"B": 65536, "H": 1024}),
    ("layernorm", {"B": 16384, "H": 8192}),
    ("layernorm", {"B": 4096, "H": 32768}),
    ("rmsnorm_residual", {"T": 16384, "H": 8192}),
    ("layernorm_backward", {"B": 65536, "H": 1024}),
    ("layernorm_backward", {"B": 16384, "H": 8192}),
    ("transpose", {"M": 16384, "N": 8192}),
    ("column_mean", {"B": 16384, "H": 8192}),
    ("rope", {"NH": 32, "S": 8192}),
    ("batchnorm", {"N": 64, "C": 256}),
    ("matmul_long_k", {}),
    ("linear_gelu", {}),
    ("seed_2146", {}),
)


def run(device: Device, name: str, sizes: Mapping[str, int], repeats: int) -> dict[str, Any]:
    """Return one row of the results."""
    fusion = driver.load(str(EXAMPLES / f"{name}.yaml"), sizes)
    target = device.facts.target
    options = CompileOptions(targets=(target.arch,) if target else ())
    package = driver.compile_fusion(fusion, options)
    segmented = package.program.segmented
    timing = driver.measure(device, package, options.target, repeats)
    figures = figures_of(segmented, timing.seconds, device.facts.rates)
    return {
        "name": name,
        "sizes": dict(sizes),
        "schedulers": [s.scheduler for s in segmented.segments],
        "ms": round(timing.seconds * 1e3, 5),
        **figures,
    }


def figures_of(segmented: SegmentedFusion, seconds: float, rates: Rates) -> dict[str, float]:
    """Return what a measured time says about a fusion, against the least that it must do."""
    least = roofline.of_fusion(segmented)
    return {
        "moved": segmented.bytes,
        "bytes": least.compulsory_bytes,
        "gb_per_s": round(least.compulsory_bytes / seconds / 1e9),
        "share": round(least.share(seconds, rates), 3),
        "tensor_share": round(least.tensor_share(seconds, rates), 3),
    }


def main() -> None:
    """Run every workload and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--repeat", type=int, default=20)
    arguments = parser.parse_args()
    with Device() as device:
        rows: list[dict[str, Any]] = []
        for name, sizes in WORKLOADS:
            rows.append(run(device, name, sizes, arguments.repeat))
            row = rows[-1]
            where = ", ".join(f"{k}={v}" for k, v in sizes.items())
            print(
                f"{name:<20} {where:<20} {row['ms']:8.4f} ms {100 * row['share']:5.0f} %",
                flush=True,
            )
        record = {
            "device": device.facts.text(),
            "fusec_tree": os.environ.get("FUSEC_TREE", ""),
            "workloads": rows,
        }
    Path(arguments.out).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    end_with(main)
