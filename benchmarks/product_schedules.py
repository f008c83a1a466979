"""Times of many schedules of thin products, beside what their price says: what that is fitted to.

python -m benchmarks.product_schedules [--only GLOB,...] [--part K/N] [--weights] [--methods]
                                       [--lines FILE] [--most N] [--repeat N] [--seconds S]
                                       [--jobs N] [--out FILE.json]

Of each product as many schedules as --most says, unlike ones and cheap ones, run in turn with a
cold L2, beside cuBLAS; a time is the median. --methods compares the ways to sum a split product
instead: the same tile and split by each of them. --lines has products and schedules of a file: a
product's name alone on a line, `4328x272x8888_tn`, then a line for each of its schedules, beside
what price chooses; `# ...` is left out. --part takes every Nth product from the Kth on. --weights
takes products of weights of 8 and 4 bits, beside cuBLAS on weights that are halves already.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from copy import copy
from dataclasses import replace
from fnmatch import fnmatch
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.entry import end_with
from benchmarks.operands import peers_of
from benchmarks.operands import row_of as row_of_kind
from benchmarks.products import FEW_ROWS, SKINNY, Shape, text_of
from benchmarks.rows import Row
from fusec.ir.annotations import Setting
from fusec.ir.text import to_text
from fusec.run.inputs import choose_sizes
from fusec.schedule.matmul.choice import RASTER_GROUP, SPLIT_METHODS, MatmulParameters
from fusec.schedule.matmul.compared import SPLIT_TILES, WEIGHED_TILES, most_stages, swap_ab_tiles
from fusec.schedule.matmul.cost.estimate import seconds
from fusec.schedule.matmul.cost.occupancy import room
from fusec.schedule.matmul.cost.work import ProductWork, work_of
from fusec.schedule.matmul.family import Matmul, MatmulProblem
from fusec.schedule.matmul.limits import STREAM_K
from fusec.schedule.matmul.records import with_settings
from fusec.schedule.matmul.stream_k import PARTS
from fusec.schedule.matmul.tiles import PERSISTENT
from fusec.segment.traffic import traffic
from fusec.target import Target, find
from fusec.tune.job import Failed, Job, build

SCHEMA = 1
DRAWN: tuple[tuple[Shape, str], ...] = (
    ((152, 9992, 12024), "nt"), ((168, 15352, 4008), "nn"), ((464, 3904, 10272), "tn"),
    ((24, 14384, 4328), "tn"), ((88, 5832, 10808), "nn"), ((48, 15824, 4512), "nn"),
    ((128, 13112, 6912), "nn"), ((448, 8960, 9920), "nn"), ((6584, 264, 9944), "nt"),
    ((144, 7808, 9440), "tn"), ((362, 2912, 13632), "nt"), ((16, 16384, 1024), "nt"),
    ((8, 4096, 16384), "nt"), ((2, 12000, 4104), "nt"), ((100, 4096, 4096), "nt"),
)  # fmt: skip
"""Products whose rows, many of them, begin inside lines of memory."""
PRODUCTS = (*((s, "nt") for s in dict.fromkeys((*SKINNY, *FEW_ROWS))), *DRAWN)
WEIGHTS: tuple[tuple[Shape, str], ...] = tuple(
    ((m, n, 8192), kind)
    for kind in ("weighted", "packed", "across")
    for n in (8192, 28672)
    for m in (64, 128, 192, 256)
)
"""Products of weights of 8 bits, of 4 bits, and of 4 bits along N with zero points."""
KINDS = tuple(dict.fromkeys(kind for _, kind in WEIGHTS))
DEAREST = 2.5
"""How many times the lowest price a schedule may have that is measured."""
PER_FORM = 3
"""Schedules that differ in their splits alone."""
FORM = (
    "kernel", "tile_m", "tile_n", "stages", "cluster_m", "cluster_n", "cluster_k", "split_method",
    "ping_pong", "epilogue_smem",
)  # fmt: skip
"""The settings in which schedules of different forms differ."""
TARGET = "sm_90a"
GROSS = 0.02
"""The norm of an error, over that of the result, that no rounding explains."""


def name_of(shape: Shape, layout: str) -> str:
    """Return how a product is called."""
    return "x".join(map(str, shape)) + ("" if layout == "nt" else f"_{layout}")


def product_of(name: str) -> tuple[Shape, str]:
    """Return the extents and the layout of what is called so."""
    extents, _, layout = name.partition("_")
    m, n, k = map(int, extents.split("x"))
    return (m, n, k), layout or "nt"


def row_of(shape: Shape, layout: str) -> Row:
    """Return a plain product of bf16, or one of weights."""
    if layout in KINDS:
        return replace(row_of_kind(layout, shape), name=name_of(shape, layout))
    text = text_of(shape, layout, "")
    return Row(name_of(shape, layout), "product", text=text, function=f"product_{layout}")


def schedule_text(p: MatmulParameters) -> str:
    """Return a schedule as a line: kernel, tile, stages, then what is split or shared, and how."""
    words, s = [p.kernel, f"{p.tile_m}x{p.tile_n}", f"{p.stages}"], p.settings
    along = s.get("cluster_m", 1), s.get("cluster_n", 1)
    cluster = (f"cluster_{along[0]}x{along[1]}", along != (1, 1))
    if p.kernel == "wgmma":
        named = (
            ("ping_pong", s["ping_pong"]), cluster, (f"parts_{p.splits}", p.splits > 1),
            ("staged", s["epilogue_smem"]),
            (f"raster_{s['raster_group']}", s["raster_group"] != RASTER_GROUP),
        )  # fmt: skip
    else:
        words += [f"{p.cluster_k}", f"{p.splits}"]
        named = ((f"{s['split_method']}", p.splits > 1), cluster)
    return " ".join([*words, *(w for w, is_so in named if is_so)])


def schedule_of(text: str, first: MatmulParameters) -> MatmulParameters:
    """Return the schedule of a line; fields that it does not name are those of `first`."""
    kernel, tile, stages, *rest = text.split()
    tile_m, tile_n = map(int, tile.split("x"))
    named = {name: value for name, _, value in (w.partition("_") for w in rest)}
    along_m, along_n = map(int, named.get("cluster", "1x1").split("x"))
    settings: dict[str, Setting] = {
        "kernel": kernel, "tile_m": tile_m, "tile_n": tile_n, "stages": int(stages),
        "cluster_m": along_m, "cluster_n": along_n, "cluster_k": 1,
        "splits": int(named.get("parts", 1)), "split_method": SPLIT_METHODS[0],
        "ping_pong": "ping_pong" in rest, "epilogue_smem": "staged" in rest,
        "raster_group": int(named.get("raster", RASTER_GROUP)),
    }  # fmt: skip
    if kernel != "wgmma":
        cluster, splits, *others = rest
        method = next((w for w in others if w in SPLIT_METHODS), SPLIT_METHODS[0])
        settings |= {"cluster_k": int(cluster), "splits": int(splits), "split_method": method}
    found = changed(first, **settings)
    width = next(w for w in found.widths if w <= first.vector_width)
    return replace(found, vector_width=width)


def changed(p: MatmulParameters, **settings: Setting) -> MatmulParameters:
    """Return a schedule with other settings, which its kernel has."""
    found = with_settings(p, settings)
    assert isinstance(found, MatmulParameters), found
    return found


class Priced:
    """A product with the price of any of its schedules."""

    def __init__(self, shape: Shape, layout: str, target: Target) -> None:
        """Analyse it."""
        self.row, self.target, self.family = row_of(shape, layout), target, Matmul()
        self.kind = layout
        found = self.family.problem(self.row.fusion)
        assert isinstance(found, MatmulProblem), found
        self.problem = found
        self.traits = replace(found.traits, slots=found.product.slots)
        bytes_ = traffic(found.fusion)
        self.work: ProductWork = work_of(found.product, bytes_, found.hints)
        chosen = self.family.default_parameters(found, target)
        assert isinstance(chosen, MatmulParameters), chosen
        self.chosen = chosen

    def legal(self, p: MatmulParameters) -> MatmulParameters | None:
        """Return a schedule with the fields that follow, None where there is no such kernel."""
        made = self.family.with_derived(self.problem, p)
        return made if self.family.legal(self.problem, made, self.target) is None else None

    def seconds(self, p: MatmulParameters) -> float:
        """Return the predicted time, without the launch."""
        return seconds(p, self.work, self.target)

    def priced_for(self, target: Target) -> Priced:
        """Return the same product with the costs of another target."""
        found = copy(self)
        found.target = target
        return found

    def over_best(self, made: Mapping[str, MatmulParameters], times: Mapping[str, float]) -> float:
        """Return the time of the cheapest of some schedules over that of the fastest of them."""
        chosen = min(made, key=lambda text: self.seconds(made[text]))
        return times[chosen] / min(times[text] for text in made)

    def of(self, texts: Iterable[str]) -> dict[str, MatmulParameters]:
        """Return the schedules of lines, those that are legal."""
        made = {text: self.legal(schedule_of(text, self.chosen)) for text in texts}
        return {text: p for text, p in made.items() if p is not None}


def every(product: Priced) -> Iterator[MatmulParameters]:
    """Yield the schedules of a product that may be worth a look."""
    sizes, target = product.work.sizes, product.target
    first = product.chosen
    if sizes.m <= 32:
        rows = next(r for r in (8, 16, 32) if r >= sizes.m)
        for columns in (16, 32):
            for stages in (1, 2, 4):
                for splits in (1, 2, 3, 4, 6, 8):
                    yield schedule_of(f"gemv {rows}x{columns} {stages} 1 {splits}", first)
    for rows, columns, is_turned in PERSISTENT:
        turned = " ping_pong" if is_turned else ""
        for cluster in ("", " cluster_1x2", " cluster_2x1"):
            p = schedule_of(f"wgmma {rows}x{columns} 2{turned}{cluster}", first)
            for each in (p, replace(p, epilogue_smem=True)):
                stages = most_stages(each, product.traits, target.shared)
                yield replace(each, stages=stages)
    for tile in _split_tiles(product):
        yield from _split(tile, product)


def _split_tiles(product: Priced) -> Iterator[MatmulParameters]:
    swap_ab = ((rows, columns) for rows, columns, _ in swap_ab_tiles(product.work.sizes.m))
    weighed = WEIGHED_TILES if product.kind in KINDS else ()
    for rows, columns in dict.fromkeys((*SPLIT_TILES, *weighed, *swap_ab)):
        p = schedule_of(f"split_k {rows}x{columns} 2 2 1", product.chosen)
        p = product.family.with_derived(product.problem, p)
        found: set[int] = set()
        for count in (1, 2, 3):
            found.add(most_stages(replace(p, splits=2), product.traits, room(count)))
        whole = max(found)
        for stages in sorted({*found, max(2, whole * 2 // 3)} - {2}, reverse=True):
            yield replace(p, stages=stages)


def _split(tile: MatmulParameters, product: Priced) -> Iterator[MatmulParameters]:
    sizes, sms = product.work.sizes, product.target.sms
    most = max(1, 3 * sms // sizes.tiles(tile))
    for splits in range(1, most + 1):
        for method in SPLIT_METHODS[:1] if splits == 1 else SPLIT_METHODS[:2]:
            for along in ("cluster_n", "cluster_m"):
                own = {"splits": splits, "split_method": method, along: 2}
                yield changed(tile, cluster_k=1, **own)
    if product.kind in KINDS:
        yield changed(tile, cluster_k=1, splits=PARTS, split_method=STREAM_K)
    for cluster in (1, 2, 4, 8):
        for splits in range(1, most // cluster + 1):
            for method in SPLIT_METHODS[:1] if splits == 1 else SPLIT_METHODS[:2]:
                yield changed(tile, cluster_k=cluster, splits=splits, split_method=method)


def picked(product: Priced, most: int) -> list[MatmulParameters]:
    """Return what price chooses, then of every form the cheapest schedules, at most so many."""
    forms: dict[tuple[object, ...], list[tuple[float, MatmulParameters]]] = {}
    for p in every(product):
        made = product.legal(p)
        if made is not None:
            form = tuple(made.setting(name) for name in FORM)
            forms.setdefault(form, []).append((product.seconds(made), made))
    found: list[tuple[float, MatmulParameters]] = []
    for form in forms.values():
        count = 1 if form[0][1].kernel == "wgmma" else PER_FORM
        cheap = sorted(form, key=lambda each: each[0])[:count]
        # The k-th of a form counts for more, so that every form has its first before.
        found += [(us * (1 + 0.06 * k), p) for k, (us, p) in enumerate(cheap)]
    found.sort(key=lambda each: each[0])
    lowest = product.seconds(product.chosen)
    near = [p for us, p in found if us <= DEAREST * lowest]
    return list(dict.fromkeys([product.chosen, *near]))[:most]


def by_method(product: Priced) -> list[MatmulParameters]:
    """Return a split by each method, and the same sharing by clusters alone.

    The cheapest schedule with 4 parts of K at least is taken; of `cluster_k` the cheapest without
    others that share K.
    """
    made = (product.legal(p) for p in every(product))
    split = [p for p in made if p is not None and p.kernel == "split_k"]
    slices = [p for p in split if p.splits > 1 and p.split_method == SPLIT_METHODS[0]]
    clusters = [p for p in split if p.splits == 1 and p.cluster_k > 1]
    found = [min(clusters, key=product.seconds)] if clusters else []
    if slices:
        first = min(slices, key=product.seconds)
        methods = (changed(first, split_method=m) for m in SPLIT_METHODS)
        found += [p for p in methods if product.legal(p) is not None]
        # Without a cluster all that a cluster sums passes through memory, too.
        whole = replace(first, cluster_k=1, splits=first.cluster_k * first.splits)
        if first.cluster_k > 1:
            methods = (changed(whole, split_method=m) for m in SPLIT_METHODS)
            found += [p for p in methods if product.legal(p) is not None]
    return found


def lines_of(text: str) -> dict[tuple[Shape, str], list[str]]:
    """Return the products of a file, by shape and layout, with the lines of their schedules."""
    found: dict[tuple[Shape, str], list[str]] = {}
    for line in (each.partition("#")[0].strip() for each in text.splitlines()):
        if " " in line:
            next(reversed(found.values())).append(line)
        elif line:
            found[product_of(line)] = []
    return found


def listed(
    product: Priced, lines: Mapping[tuple[Shape, str], Sequence[str]]
) -> list[MatmulParameters]:
    """Return what price chooses, then a file's schedules, which AssertionError has where none is.

    Results are accessed by as many columns at once as can be.
    """
    found = [product.chosen]
    for text in lines[product_of(product.row.name)]:
        p = schedule_of(text, product.chosen)
        made = (product.legal(replace(p, vector_width=w)) for w in p.widths)
        legal = next((m for m in made if m is not None), None)
        assert legal is not None, f"{product.row.name} has no {text}"
        found.append(legal)
    return list(dict.fromkeys(found))


def job_of(product: Priced) -> Job:
    """Return a product as what is tuned."""
    return Job(product.row.name, to_text(product.row.fusion), "matmul", product.target.arch)


def measured(
    session: Any,
    product: Priced,
    wanted: Sequence[tuple[MatmulParameters, Future[Any]]],
    repeats: int,
) -> dict[str, Any]:
    """Return the times of a product's schedules and of cuBLAS, run in turn."""
    import torch

    from benchmarks import peers
    from benchmarks.measure import forget
    from benchmarks.torch_side import arguments_of, error_of, on_stream, view_of
    from fusec.bench.bound import BoundWork
    from fusec.bench.data import Inputs
    from fusec.bench.timer import Contender
    from fusec.bench.work import Work

    row, sizes = product.row, choose_sizes(product.row.fusion)
    schedules: list[tuple[str, float]] = []
    contenders: list[Any] = []
    failed: dict[str, str] = {}
    with ExitStack() as stack:
        inputs = stack.enter_context(Inputs(session.device, row.fusion, sizes))
        stack.enter_context(on_stream(session.device))
        stack.callback(forget)
        function, arguments = row.torch_function(), arguments_of(row.fusion, inputs)
        expected = function(*arguments)
        if product.kind in KINDS:
            names = (i.value.name for i in row.fusion.inputs)
            found = peers_of(product.kind, dict(zip(names, arguments, strict=True)))
        else:
            offer = peers.Offer(row, function, arguments)
            found = {n: peers.found(n, offer)[0] for n in ("eager", "cublaslt")}
        contenders += [Contender(n, issue) for n, issue in found.items() if issue is not None]
        peer_count = len(contenders)
        for p, future in wanted:
            text, each = schedule_text(p), future.result()
            if isinstance(each, Failed):
                failed[text] = each.reason
                continue
            work = Work(text, product.target.arch, sizes, each.host, each.cubins, 0, 0, (), ())
            bound = stack.enter_context(BoundWork(session.device, work, inputs))
            bound.issue()
            session.device.synchronise(text)
            (output,) = (view_of(tensor) for tensor in bound.outputs.values())
            error = error_of([output], [expected])
            if not error.norm < GROSS:
                failed[text] = f"the error is {error.norm:.2e}"
                continue
            schedules.append((text, product.seconds(p)))
            contenders.append(Contender(text, bound.issue))
        times = session.timer.race(contenders, repeats, 0.0)
        torch.cuda.synchronize()
    us = [round(t.seconds * 1e6, 2) for t in times]
    peers_us = {t.name: time for t, time in zip(times[:peer_count], us, strict=False)}
    found_us = zip(schedules, us[peer_count:], strict=True)
    records = [[text, time, round(predicted * 1e6, 2)] for (text, predicted), time in found_us]
    return {
        "name": row.name, "peers": peers_us, "chosen": schedule_text(product.chosen),
        "schedules": sorted(records, key=lambda r: r[1]), "failed": failed,
    }  # fmt: skip


def line_of(found: Mapping[str, Any]) -> str:
    """Return what is told of a product: its best schedule, and what price has chosen."""
    times = {text: us for text, us, _ in found["schedules"]}
    if not times:
        return f"{found['name']:<24} has no such schedule"
    best, chosen = found["schedules"][0], times.get(found["chosen"], float("nan"))
    peer = min(found["peers"].values(), default=float("nan"))
    return (
        f"{found['name']:<24} cuBLAS {peer:.1f}  best {best[1]:.1f} ({best[0]})  "
        f"chosen {chosen:.1f} ({found['chosen']})  of {len(times)}, {len(found['failed'])} failed"
    )


def arguments_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="patterns of names, with *, ? and [...]")
    parser.add_argument("--part", default="0/1", help="K/N: every Nth product from the Kth")
    parser.add_argument("--weights", action="store_true", help="products of weights of few bits")
    parser.add_argument("--methods", action="store_true", help="compare the ways to sum")
    parser.add_argument("--lines", type=Path, help="products and their schedules")
    parser.add_argument("--most", type=int, default=60, help="schedules of a product")
    parser.add_argument("--repeat", type=int, default=9, help="runs of each")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin none later")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true", help="print the schedules, and build none")
    parser.add_argument("--out", type=Path)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build and time, and write what was found after each product."""
    given = arguments_of(arguments)
    part, parts = map(int, given.part.split("/"))
    only = [o for o in given.only.split(",") if o] or ["*"]
    lines = {} if given.lines is None else lines_of(given.lines.read_text("utf-8"))
    products = lines or (WEIGHTS if given.weights else PRODUCTS)
    shapes = [s for s in products if any(fnmatch(name_of(*s), o) for o in only)][part::parts]
    target = find(TARGET)
    select: Callable[[Priced], list[MatmulParameters]] = partial(picked, most=given.most)
    if lines:
        select = partial(listed, lines=lines)
    elif given.methods:
        select = by_method
    if given.list:
        for shape in shapes:
            product = Priced(*shape, target)
            for p in select(product):
                print(f"{product.row.name} {schedule_text(p)} {product.seconds(p) * 1e6:.1f}")
        return 0
    from fusec.bench.session import Session

    end = time.monotonic() + given.seconds
    rows: list[dict[str, Any]] = []
    pool = ProcessPoolExecutor(max(1, given.jobs - 1), get_context("spawn"))
    with pool, Session(1) as session:
        waiting: list[tuple[Priced, list[tuple[MatmulParameters, Future[Any]]]]] = []
        for shape in shapes:
            product = Priced(*shape, target)
            job = job_of(product)
            futures = [(p, pool.submit(build, job, p.settings)) for p in select(product)]
            waiting.append((product, futures))
        for product, futures in waiting:
            if time.monotonic() > end:
                pool.shutdown(wait=False, cancel_futures=True)
                break
            rows.append(measured(session, product, futures, given.repeat))
            print(line_of(rows[-1]), flush=True)
            if given.out is not None:
                head = {"schema": SCHEMA, "device": session.device.facts.name}
                given.out.write_text(json.dumps({**head, "rows": rows}) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    end_with(main)
