"""Host time of emitted C: `python -m benchmarks.host_c [--include DIR] [--driver LIB] [-o FILE]`.

Compiles fusions for the GPU at hand, builds each with gcc, and times calls of NAME_run one by one,
with sizes so small that the GPU keeps up. Microseconds, by fusion.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.entry import end_with
from fusec import driver
from fusec.emit import emitted
from fusec.files import fusions_of
from fusec.options import CompileOptions

EXAMPLES = Path(__file__).parent.parent / "examples"
CASES: Mapping[str, Mapping[str, int]] = {
    "layernorm": {"B": 132},
    "gelu_bias": {"T": 64},
    "cross_entropy": {"T": 132},
    "layernorm_backward": {"B": 128},
    "linear_gelu": {"M": 256},
    "matmul_long_k": {"M": 128},
}
"""By example: the sizes that are not its default. One kernel, several, tensor maps, clusters."""
CALLS, BATCH = 20_000, 50
"""Calls that are timed, and after how many the stream is waited for."""
TIMING = """
#include <time.h>

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

"""
LOOP = """\
  static double times[{calls}];
  for (int i = -1000; i < {calls}; ++i) {{
    const double start = seconds();
    {run}
    if (i >= 0) times[i] = 1e6 * (seconds() - start);
    if (i % {batch} == 0) check_cuda(cuStreamSynchronize(stream));
  }}
  qsort(times, {calls}, sizeof *times, compare);
  printf("%.3f %.3f\\n", times[{calls} / 2], times[{calls} * 99 / 100]);
"""


def main(arguments: list[str] | None = None) -> int:
    """Measure every case and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--include", default="/usr/local/cuda/include")
    parser.add_argument("--driver", default="-l:libcuda.so.1")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args(arguments)
    figures: dict[str, Any] = {}
    for name, sizes in CASES.items():
        figures[name] = measured(name, sizes, given)
        print(name, figures[name], file=sys.stderr)
    if given.output is not None:
        given.output.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))
    return 0


def measured(name: str, sizes: Mapping[str, int], given: argparse.Namespace) -> dict[str, Any]:
    """Return the median and p99 of a call, and the median for each kernel."""
    options = CompileOptions(targets=(given.target,), targets_given=True, sizes=sizes)
    (fusion,) = fusions_of(str(EXAMPLES / f"{name}.yaml"), options)
    package = driver.compile_targets(driver.Compilation(fusion, options))
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        for file, content in emitted(package, ["c"]).items():
            (folder / file).write_bytes(content)
        text = (folder / "example.c").read_text()
        run = f"check({name}_run(program, stream, &arguments, &workspace));"
        assert run in text
        loop = LOOP.format(calls=given.calls, batch=BATCH, run=run)
        text = text.replace(f"  {run}\n", loop).replace(f'  printf("{name} has run\\n");\n', "")
        (folder / "timed.c").write_text(
            "#define _GNU_SOURCE\n"
            + text.replace("static void check(", f"{TIMING}static void check(")
        )
        command = [
            "gcc",
            "-std=c11",
            "-O2",
            f"-I{Path(given.include).resolve()}",
            "timed.c",
            f"{name}.c",
        ]
        subprocess.run([*command, given.driver, "-o", "timed"], cwd=folder, check=True)
        done = subprocess.run([folder / "timed"], capture_output=True, text=True, check=True)
    median, slow = map(float, done.stdout.split())
    kernels = len(package.program.host.launches)
    each = round(median / kernels, 3)
    return {"kernels": kernels, "median_us": median, "p99_us": slow, "us_per_kernel": each}


if __name__ == "__main__":
    end_with(main)
