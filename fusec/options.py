"""Options of a compilation, and every environment variable, declared once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ShouldMerge = Callable[[Any, Any], bool]
"""Called with the Fusions of two neighbouring groups: whether these become one group."""

DEFAULT_TARGET = "sm_90a"

ENVIRONMENT = {
    "FUSEC_CACHE_DIR": "folder of built kernels, which no other user may write (default: "
    "$XDG_CACHE_HOME/fusec, ~/.cache/fusec)",
    "FUSEC_CACHE_LIMIT": "size of that folder, as 500M or 2G (default: 2G; 0 keeps nothing)",
    "FUSEC_DEBUG": "1: kernels that wait for another block for some seconds trap, and do not hang",
    "FUSEC_HELPER": "0: calls of programs do without the helper that is built in C",
    "FUSEC_RANK": "set by `fusec run --ranks`: which rank a process is",
    "FUSEC_RANKS": "set by it, too: how many there are",
    "FUSEC_RANK_TIMEOUT": "seconds without progress after which a rank counts as hung (default: "
    "20); more where ranks compute longer than that between exchanges",
    "FUSEC_RANK_TOKEN": "secret by which the ranks of a run know one another (default: a random "
    "one of `fusec run --ranks`; none under torchrun and MPI, where several hosts need one)",
    "FUSEC_REFERENCE": "what evaluates the reference of a verification: numpy (default), or cupy, "
    "which is CuPy on a GPU",
    "FUSEC_TARGET": f"targets without --target (default: the GPU at hand, else {DEFAULT_TARGET})",
    "FUSEC_TARGETS": "folder of target files, which `fusec doctor --measure` writes",
    "FUSEC_TREE": "name of the sources, which `fusec bench --out` records",
    "FUSEC_TUNED": "folder of measured schedules, which `fusec tune` writes (default: "
    "$XDG_CONFIG_HOME/fusec/tuned, ~/.config/fusec/tuned; 0: none, nor those that come with fusec)",
    "FUSEC_TRACEBACK": "set to 1 to see the traceback of an internal error",
    "NVFUSER_DISABLE": "nothing, which is noted: its options tune nvFuser's own kernels",
    "NVFUSER_ENABLE": "nothing, which is noted, too",
    "NVFUSER_PROF": "nothing, which is noted, too",
    "NVFUSER_DUMP": "comma list of nvFuser's dump names, printed while `fusec run script.py` runs",
}
"""Environment variables and what they do."""

DUMP_KINDS = {
    "segmented-fusion": "segments, edges and group details, as nvFuser prints them",
    "groups": "the groups that `should_merge` or explicit boundaries make, of kind none",
    "fusion-ir": "the fusion's operations",
    "partition": "what one rank runs of a fusion that is divided",
    "preseg": "the graph after each pass that changed something",
    "scheduler-params": "each segment's scheduler and its parameters",
    "schedule-space": "the schedules that each segment may have, with prices, fields and values",
    "cuda-kernel": "the CUDA text of every kernel",
    "ptx": "the PTX of every kernel",
    "sass": "the machine code of every kernel, disassembled",
    "python": "a runnable script that defines the same fusion",
    "host-passes": "what each pass over the host program changed",
    "host-ir": "which segments run, in which loops, as nvFuser prints host programs",
    "host-program": "what happens on the host: allocations, copies, launches",
}
"""What can be dumped, by option name."""

SCHEDULERS = (
    "no_op", "matmul", "attention", "attention_decode", "attention_backward", "pointwise",
    "concat", "transpose", "reduction", "inner_persistent", "outer_persistent", "scan", "sort",
    "scatter", "inner_outer_persistent",
)  # fmt: skip
"""The names that a file may pin a segment to; `fusec.schedule.registry` has what they name."""

DUMP_STYLES = ("2024", "head", "json", "dot", "mermaid")
ASKED = {
    "assign_streams": "puts independent segments on several streams",
    "reuse_in_place": "writes results where what a segment reads for the last time lies",
}
"""Passes that run only where they are asked for: no GPU has measured what they gain."""

PEER_READS = "peer_reads"
"""The name of what is done instead of an all-reduce where it is cheaper; also of --without."""
LOOPS_BY_PRICE = "loops_by_price"
"""That loops which pass slices around ranks are run only where that is cheaper; of --without."""
SCATTERED_SUMS = "scattered_sums"
"""That sums over ranks are divided as their readers are, where that is cheaper; of --without."""
REDEFINITIONS = ("after", "before", "never")


DEBUG_FLAGS = ("-DFUSEC_DEBUG",)
"""What kernels are built with where FUSEC_DEBUG is set."""


REFERENCES = ("numpy", "cupy")
"""What may evaluate the reference: NumPy, or CuPy on a GPU."""


def environment(name: str) -> str | None:
    """Return the value of a declared environment variable, None where it is unset or empty."""
    assert name in ENVIRONMENT, f"{name} is not declared in fusec.options"
    return os.environ.get(name) or None


@dataclass(frozen=True)
class CompileOptions:
    """What a compilation depends on besides the fusion.

    targets: architectures to build for, each with plans of its own; targets_given: whether the user
    chose them. without: passes left out; with_: those of ASKED that run; stop_after: the last pass
    to run. jobs: parallel builds; sizes: default sizes that the user replaces; buckets: of a dim
    all sizes to build for, where there are several. check_bounds: whether kernels check indices
    that are data. redefine: when schedulers are asked for other definitions of segments: `after`
    these were accepted, `before` there are any, or `never`. rates: a folder of target files that
    are used instead of those of FUSEC_TARGETS. schedule: a file that adds to the fusion's
    `schedules:`. precise: whether arithmetic before a rounding to a half type is what it is
    elsewhere, not cheaper. untuned: price alone chooses schedules; tuned: a folder of measured ones
    instead of the user's and those shipped. overlap: whether kernels start beside the end of those
    before them. streams: on which the iterations of a loop run in turn. sum_chunks: into how many
    chunks sums over ranks are divided, which are added in order; 0: exchanges add. should_merge:
    whether two neighbouring groups of operations become one; segments stand inside of groups.
    segments: values that stay in one segment each, by the segment's name. as_written: whether every
    operation is a segment by itself, no pass changes anything, and no memory is taken back.
    """

    targets: tuple[str, ...] = (DEFAULT_TARGET,)
    targets_given: bool = False
    without: tuple[str, ...] = ()
    stop_after: str | None = None
    jobs: int | None = None
    use_cache: bool = True
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    buckets: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    check_bounds: bool = False
    redefine: str = "after"
    rates: Path | None = None
    schedule: str | None = None
    precise: bool = False
    untuned: bool = False
    tuned: Path | None = None
    overlap: bool = False
    streams: int = 4
    sum_chunks: int = 0
    with_: tuple[str, ...] = ()
    as_written: bool = False
    should_merge: ShouldMerge | None = None
    segments: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    @property
    def target(self) -> str:
        """Return the first target: what one plan is made for."""
        return self.targets[0]
