"""How many summation trees each example has for B = 1 to 4096; needs no GPU.

python -m benchmarks.summation_trees [FILE ...] [--most N]

B is the first dim of a file's first input that kernels leave to run time. `one plan` counts the
trees of the plan for the default size over all B; `planned` those of the plans made for each power
of eight. One tree: an element of a batch has the same bits whatever else is in the batch.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.entry import end_with
from benchmarks.segmentation import ROOT
from fusec import driver
from fusec.driver import Compilation
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.schedule.summation import summation_trees

MOST, STEP = 4096, 8
TARGET = "sm_90a"


def batch_of(fusion: Fusion) -> str | None:
    """Return the name of the first dim of the inputs that has one, None where none has."""
    names = (d for i in fusion.inputs for d in i.value.shape if not d.is_const)
    return next((str(d) for d in names if str(d) in fusion.hints), None)


def trees_of(program: Compilation, sizes: dict[str, int]) -> tuple[str, ...] | None:
    """Return the trees of a program's outputs at sizes; None where its kernels are for others."""
    posts = program.posts
    if not posts.covers(sizes):
        return None
    return tuple(summation_trees(program.local, posts.orders_at(sizes)).values())


def counts(file: Path, most: int) -> tuple[str, int, int] | None:
    """Return the batch dim, and the numbers of trees of one plan and of plans for each size.

    None without such a dim, or without sums.
    """
    options = CompileOptions(targets=(TARGET,), targets_given=True)
    (first, *_) = driver.programs(str(file), options)
    batch = batch_of(first.local)
    if batch is None or not first.posts.orders:
        return None
    hints = dict(first.local.hints)
    one = {trees_of(first, {**hints, batch: size}) for size in range(1, most + 1)}
    planned: set[tuple[str, ...] | None] = set()
    size = 1
    while size <= most:
        (program, *_) = driver.programs(str(file), replace(options, sizes={batch: size}))
        planned.add(trees_of(program, dict(program.local.hints)))
        size *= STEP
    return batch, len(one - {None}), len(planned - {None})


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each file."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.summation_trees", description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )  # fmt: skip
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE")
    parser.add_argument("--most", type=int, default=MOST, help="the largest B")
    given = parser.parse_args(arguments)
    files = given.files or sorted((ROOT / "examples").glob("*.yaml"))
    print(f"{'example':<28} {'dim':<6} one plan  planned")
    for file in files:
        found = counts(file, given.most)
        if found is not None:
            print(f"{file.stem:<28} {found[0]:<6} {found[1]:>8} {found[2]:>8}", flush=True)
    return 0


if __name__ == "__main__":
    end_with(main)
