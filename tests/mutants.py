"""Draws wrong kernels by rule and records which of them the emulator notices.

`python tests/mutants.py [COUNT] [SEED] > record.json`: each mutant is one place of a rendered
kernel, or of a device header that it reaches, changed by one rule. It dies where its kernel, run in
a few orders, computes something else, hangs, or breaks a guard zone or a rule of PTX; a golden text
has no part in it. What lives is to be argued singly.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import cuda_on_cpu
import numpy as np
import paths  # noqa: F401
from cuda_on_cpu import run_plan
from families import GPU
from graphs import scattered
from rows_on_cpu import one_operation
from test_hopper_on_cpu import plan_of as product_plan
from test_hopper_on_cpu import product
from test_inner_outer_persistent import seed as seed_of_paper
from test_inner_persistent import layer_norm
from test_outer_persistent import standardise
from test_races import top, two_rows
from test_transpose import turned

from fusec.codegen.dispatch import plan_sources
from fusec.ir.annotations import Setting
from fusec.ir.dim import dim
from fusec.ir.dtype import BF16, F32, F64, I64, DType
from fusec.ir.evaluate import extents
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.reference.verdict import compare
from fusec.run.arrays import StridedArray, dense_strides
from fusec.run.binary.headers import headers_for
from fusec.run.inputs import random_inputs
from fusec.schedule.plan import KernelPlan
from fusec.schedule.registry import find_scheduler

SEED = 20261126
COUNT = 60
ORDERS: tuple[dict[str, Any], ...] = (
    *({"seed": 0}, {"seed": 1, "backwards": True}, {"seed": 2, "at_once": True}),
    *({"seed": seed, "backwards": seed % 2 == 1} for seed in range(3, 24)),
)
SECONDS = 60
"""Of processor time, after which a loop without waits counts as a hang."""
SYNCHRONISATION = (
    r"__sync\w+(?: \}\})?\(\);|cluster_sync\(\);|named_barrier_sync<|fence_\w+\(\);"
    r"|wgmma_(fence|commit|wait)|copy_(wait|commit)|commit_group|wait_group|\.wait\(|spin_until|\.arrive|wait_turn"
    r"|release_turn|store_release"
)
# What a rule is called: where it applies in a line, and what stands there instead.
RULES: dict[str, tuple[str, str]] = {
    "dropped": (rf"^(?=.*({SYNCHRONISATION})).*$", ""),
    "parity": (r"(?<=wait\()parity(?=\))|(?<=parity = )[01]|(?<=parity \^= ).*(?=;)", "parity"),
    "offset": (r"(?<=[\w\])]) \+ (?=[\w(])(?=.*[\]\)];)", " - "),
    "factor": (r" \* k(?=[A-Z])", " + k"),
    "predicate": (r"(?<=\bif \()(?=.*[<>=!])(.+?)(?=\) )", "!"),
    "bound": (r" (<|>=) (?=[\w(])", "bound"),
    "swapped": (r"(\b[\w.\[\]]+) (-|/) (\b[\w.\[\]]+)", "swap"),
}


@dataclass(frozen=True)
class Mutant:
    """A changed line of a text; `file` is a header's name or the kernel's."""

    case: str
    rule: str
    file: str
    number: int
    before: str
    after: str


def sums(rows: int, columns: int, dim: int) -> Fusion:
    """Return two sums over one dim of a matrix: what adds up the first is used again at once."""
    builder = GraphBuilder("sums")
    x = builder.input("x", F32, [rows, columns])
    for each in (x, builder.apply("mul", x, x)):
        builder.output(builder.apply("sum", each, dims=[dim]))
    return builder.finish()


def scaled(rows: int, columns: int) -> Fusion:
    """Return the rows of a matrix times one row: a loop over rows, not a flat one."""
    builder = GraphBuilder("scaled")
    x, w = builder.input("x", F32, [rows, columns]), builder.input("w", F32, [columns])
    builder.output(builder.apply("mul", x, w))
    return builder.finish()


def _families() -> dict[str, tuple[str, Callable[[], Fusion]]]:
    def one(
        op: str, *shape: int, arguments: tuple[Any, ...] = (), dtype: DType = F32
    ) -> Callable[[], Fusion]:
        return lambda: one_operation(op, dtype, shape, *arguments)

    def into(*what: Any) -> tuple[str, Callable[[], Fusion]]:
        return "scatter", lambda: scattered(*what)

    return {
        "pointwise": ("pointwise", one("tanh", 7, 933)),
        "pointwise rows": ("pointwise", lambda: scaled(37, 600)),
        "transpose": ("transpose", lambda: turned(F32, 100, 77)),
        "reduction_inner": ("reduction", lambda: sums(5, 1100, 1)),
        "reduction_inner split": ("reduction", lambda: sums(3, 6000, 1)),
        "reduction_outer": ("reduction", lambda: sums(300, 100, 0)),
        "reduction_outer split": ("reduction", lambda: sums(700, 72, 0)),
        "inner_persistent": ("inner_persistent", lambda: layer_norm(F32, 3, 1100)),
        "inner_persistent shared": ("inner_persistent", two_rows),
        "outer_persistent": ("outer_persistent", lambda: standardise(F32, 33, 70)),
        "inner_outer_persistent": ("inner_outer_persistent", lambda: seed_of_paper(2, 23, 1000)),
        "scan_rows": ("scan", one("cumsum", 3, 2000, arguments=(1,))),
        "scan_columns": ("scan", one("cumsum", 700, 20, arguments=(0,))),
        "scan_tiles": ("scan", one("cumsum", 2, 17_700, arguments=(1,))),
        "sort_rows": ("sort", one("sort", 3, 300, arguments=(1,))),
        "sort long": ("sort", one("sort", 2, 5000, arguments=(1,))),
        "topk": ("sort", top),
        "scatter_lines": (
            "scatter",
            lambda: scattered("scatter", F32, (301, 20), (300, 11), (301, 12), 1),
        ),
        "scatter_elements": (
            "scatter",
            lambda: scattered("index_add", I64, (200, 6), (50,), (50, 6), 0),
        ),
        "scatter_sorted": (
            "scatter",
            lambda: scattered("scatter_add", F32, (700, 3), (200, 2), (200, 3), 0),
        ),
        "pointwise wide": ("pointwise", one("neg", 7, 256, dtype=F64)),
        "scan_columns wide": ("scan", one("cumsum", 700, 20, arguments=(0,), dtype=F64)),
    }


SCHEDULES: dict[str, dict[str, Setting]] = {
    "pointwise rows": {"threads_x": 64, "threads_y": 4, "unroll": 2},
    "reduction_inner split": {"threads_x": 64, "threads_y": 2, "splits": 5},
    "reduction_outer": {"threads_x": 8, "threads_y": 16, "splits": 1},
    "reduction_outer split": {"threads_x": 8, "threads_y": 32, "splits": 5},
    "inner_outer_persistent": {"threads_x": 32, "threads_y": 2, "ranges": 2},
    "scan_rows": {"threads_x": 64, "threads_y": 2, "chunks": 3},
    "scan_columns": {"threads_x": 4, "threads_y": 32, "chunks": 4},
    "scan_tiles": {"threads_x": 64, "chunks": 2, "tiles": 35},
    "sort long": {"items": 4, "tiles": 5},
}
"""Blocks of several rows, and fewer threads than there is work for: loops have several turns."""

PRODUCTS: dict[str, dict[str, Any]] = {
    "matmul_simt": {},
    "matmul_mma": {},
    "matmul_wgmma": {
        "tile_m": 128,
        "tile_n": 64,
        "stages": 2,
        "ping_pong": False,
        "cluster_m": 1,
        "cluster_n": 1,
        "epilogue_smem": False,
    },
    "matmul_split_k": {
        "tile_n": 64,
        "stages": 2,
        "cluster_k": 2,
        "splits": 3,
        "split_method": "serial_tma",
    },
}
CASES = (*_families(), *PRODUCTS)


@cache
def case(name: str) -> tuple[Fusion, KernelPlan]:
    """Return a fusion and its plan."""
    if name in PRODUCTS:
        hopper = "tile_n" in PRODUCTS[name]
        dtype = F32 if name == "matmul_simt" else BF16
        # More rows of tiles than a band has, and more tiles than blocks, as in large products.
        shape = (136, 72, 800) if hopper else (584, 136, 40) if dtype == F32 else (136, 136, 200)
        fusion = product(*shape, dtype=dtype, batches=0 if name == "matmul_split_k" else 2)
        plan = product_plan(fusion, name.removeprefix("matmul_"), **PRODUCTS[name])
        if name == "matmul_wgmma":
            (kernel,) = plan.kernels
            plan = replace(plan, kernels=(replace(kernel, grid=(dim(3), dim(1), dim(1))),))
        return fusion, plan
    scheduler, make = _families()[name]
    fusion = make()
    family: Any = find_scheduler(scheduler)
    return fusion, family.build(fusion, GPU, SCHEDULES.get(name, {}))


@cache
def texts(name: str) -> dict[str, str]:
    """Return the texts that a case is made of: its kernels, and the headers that they include."""
    found: dict[str, str] = {}
    for source in plan_sources(case(name)[1]):
        found[source.name] = source.text
        found.update(headers_for(source.text))
    return found


def changed(rule: str, line: str) -> Iterator[str]:
    """Yield the line with each place changed to which a rule applies."""
    pattern, new = RULES[rule]
    for place in re.finditer(pattern, line):
        found = place[0]
        if new == "parity":
            replaced = "0" if found == "1" else "1" if found == "0" else f"({found}) ^ 1"
        elif new == "bound":
            replaced = found.replace("<", "<=") if "<" in found else found.replace(">=", ">")
        elif new == "swap":
            replaced = f"{place[3]} {place[2]} {place[1]}"
        elif new == "!":
            replaced = f"!({found})"
        else:
            replaced = new
        if replaced != found:
            yield line[: place.start()] + replaced + line[place.end() :]


@cache
def mutants(name: str, rule: str) -> tuple[Mutant, ...]:
    """Return all mutants of a case by a rule."""
    return tuple(
        Mutant(name, rule, file, number, line, after)
        for file, text in texts(name).items()
        for number, line in enumerate(text.splitlines())
        if not line.lstrip().startswith(("//", "#", '"', "static_assert", "template"))
        and "asm" not in line
        and not line.startswith(
            ("  const int*", "constexpr", "inline constexpr", "__device__", "  static constexpr")
        )
        for after in changed(rule, line.split("  // ")[0])
    )


@cache
def inputs_of(fusion: Fusion) -> dict[str, Any]:
    """Return random inputs; places are few, or outside of the result by one."""
    inputs = dict(random_inputs(fusion, fusion.hints, 0))
    if "places" in inputs:
        shape = inputs["places"].shape
        drawn = np.random.default_rng(2).integers(0, 9, shape)
        inputs["places"] = StridedArray(drawn.ravel(), shape, dense_strides(shape))
    return inputs


@cache
def outside(name: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return inputs with places outside of the result, and what the kernels make of them."""
    fusion, plan = case(name)
    inputs = dict(inputs_of(fusion))
    extent = max(extents(fusion.outputs[0].value.type, dict(fusion.hints)))
    drawn = inputs["places"].array.ravel().copy()
    for start, place in enumerate((-1, extent, extent - 1)):
        drawn[start::7] = place
    shape = inputs["places"].shape
    inputs["places"] = StridedArray(drawn, shape, dense_strides(shape))
    with tempfile.TemporaryDirectory(prefix="mutant.") as folder:
        return inputs, bytes_of(run_plan(plan, inputs, Path(folder)))


def bytes_of(found: dict[str, np.ndarray]) -> dict[str, bytes]:
    """Return arrays as bytes."""
    return {name: value.tobytes() for name, value in found.items()}


def edit_of(mutant: Mutant, line: str) -> Callable[[str], str]:
    """Return the edit of a mutant's text that puts `line` at its place."""
    original = texts(mutant.case)[mutant.file]
    lines = original.splitlines()
    lines[mutant.number] = line
    return lambda text: "\n".join([*lines, ""]) if text == original else text


def fate(mutant: Mutant, line: str) -> str:
    """Return how a mutant dies; nothing where it lives."""
    fusion, plan = case(mutant.case)
    inputs = inputs_of(fusion)
    with tempfile.TemporaryDirectory(prefix="mutant.") as folder:
        first: dict[str, bytes] | None = None
        for number, order in enumerate(ORDERS):
            try:
                found = run_plan(plan, inputs, Path(folder), edit=edit_of(mutant, line), **order)
            except AssertionError as error:
                return f"order {number}: {str(error)[:300]}"
            held = bytes_of(found)
            if held != (first := first or held):
                return f"order {number}: other bytes"
            if number == 0 and not (verdict := compare(fusion, fusion.hints, inputs, found)).ok:
                return f"order {number}: {verdict.text()[:200]}"
        if "places" in inputs:
            given, expected = outside(mutant.case)
            try:
                found = run_plan(plan, given, Path(folder), edit=edit_of(mutant, line))
            except AssertionError as error:
                return f"places outside: {str(error)[:300]}"
            if bytes_of(found) != expected:
                return "places outside: other bytes"
    return ""


def apart(mutant: Mutant, line: str) -> str:
    """Return a mutant's fate, found in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        os.write(write, fate(mutant, line).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return said if status == 0 else f"killed by signal {os.waitstatus_to_exitcode(status)}"


def is_reached(mutant: Mutant) -> bool:
    """Return whether the kernel gets to the statement, and the mutant compiles."""
    marked = f'cpu::fail("reached"); {mutant.before}'
    return ": reached" in apart(mutant, marked) and "error:" not in apart_first(mutant)


@cache
def apart_first(mutant: Mutant) -> str:
    """Return the fate of a mutant."""
    return apart(mutant, mutant.after)


def draw(count: int, seed: int) -> Iterator[Mutant]:
    """Yield distinct mutants that are reached: a rule, then a case, then a place."""
    random, seen = Random(seed), set[Mutant]()
    rules = list(RULES)
    while len(seen) < count:
        rule = random.choice(rules)
        options = [name for name in CASES if mutants(name, rule)]
        mutant = random.choice(mutants(random.choice(options), rule))
        if mutant not in seen and is_reached(mutant):
            seen.add(mutant)
            yield mutant


def main() -> None:
    """Print the record."""
    count, seed = [int(a) for a in sys.argv[1:]] + [COUNT, SEED][len(sys.argv) - 1 :]
    cuda_on_cpu.precompiled(shutil.which("g++") or "")
    for name in CASES:
        first = plan_sources(case(name)[1])[0]
        alive = apart(Mutant(name, "", first.name, 0, "", ""), "")
        assert alive == "", f"{name} is wrong as it is: {alive}"
    record = []
    for mutant in draw(count, seed):
        fate_ = apart_first(mutant)
        record.append({**mutant.__dict__, "dies": fate_})
        print(len(record), mutant.case, mutant.rule, bool(fate_), file=sys.stderr, flush=True)
    dead = Counter(bool(r["dies"]) for r in record)
    whole = {"seed": seed, "died": dead[True], "lived": dead[False], "mutants": record}
    print(json.dumps(whole, indent=1))


if __name__ == "__main__":
    main()
