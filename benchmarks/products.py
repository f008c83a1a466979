"""The suite `products`: matrix products of bf16, plain and with an epilogue, beside cuBLAS."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from math import exp, log
from random import Random
from typing import Any

from benchmarks import peers
from benchmarks.measure import forget, has_torch
from benchmarks.rows import Row
from fusec.bench.bound import BoundWork
from fusec.bench.data import Inputs
from fusec.bench.figures import Error, kernels_of, runs_of
from fusec.bench.session import OWN, Session
from fusec.bench.timer import Contender
from fusec.bench.work import Work

LARGE = (
    (8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048), (16384, 4096, 4096),
    (5000, 4104, 2056), (3000, 3000, 3000), (2999, 4001, 4104), (4095, 4097, 4099),
)  # fmt: skip
"""M, N and K; the rows of the third last one's operands begin inside lines, those of the last one
at odd elements."""
SKINNY = (
    (128, 4096, 16384), (64, 8192, 8192), (16, 8192, 28672), (256, 256, 65536),
    (512, 512, 32768), (1024, 1024, 65536), (768, 768, 131072), (128, 128, 524288),
)  # fmt: skip
FEW_ROWS = tuple((m, n, 8192) for n in (8192, 28672) for m in (1, 4, 8, 16, 32, 64))
EPILOGUES = ("", "gelu", "silu_mul")
DRAWN = 60
LEAST, MOST = 16, 16384
"""Extents that are drawn."""
LEAST_SECONDS = 20e-6
BANDWIDTH, FLOPS = 4.25e12, 8e14
"""Bytes and operations a second of an H200, by which products are long enough to be drawn."""
LAYOUTS = ("nt", "nn", "tn")
"""Whether A and B are transposed: `nt` has both contiguous along K."""
CHECKED_ROWS = 256
"""Rows of the result that are compared with fp64."""
WARM_UP = 0.012
"""Seconds a contender; the products before have raised the clocks."""
DEFAULT_PEERS = ("eager", "cublaslt", "product")
EPILOGUE_PEERS = ("inductor", "inductor_tuned")
"""Peers of rows with an epilogue alone: of a plain product they make what cuBLAS has, or worse."""
COMPARED = ("eager", "cublaslt", "inductor", "inductor_tuned")
"""The peers that do a row's whole work; `product` leaves its epilogue out."""

LIMITS = (0.97, 0.95, 0.85, 0.75)
"""Ratios below which rows are counted."""

Shape = tuple[int, int, int]


def rows(seeds: Sequence[int]) -> tuple[Row, ...]:
    """Return the rows: those with names, by shape and then by epilogue, then those of each seed."""
    named = (("large", LARGE), ("skinny", SKINNY), ("few", FEW_ROWS))
    every = [
        _row(kind, shape, "nt", epilogue)
        for kind, shapes in named
        for shape in shapes
        for epilogue in EPILOGUES
    ]
    marks = {seed: f"s{seed}" if len(seeds) > 1 else "" for seed in seeds}
    return (*every, *(row for seed, mark in marks.items() for row in drawn(seed, mark=mark)))


def drawn(seed: int, count: int = DRAWN, mark: str = "") -> Iterator[Row]:
    """Yield products that last at least 20 us by the rates of the GPU, drawn from a seed.

    Extents are even on a logarithmic scale. Two thirds are multiples of 8, so that rows begin at
    multiples of 16 bytes. mark: of the seed, in the rows' names.
    """
    draw, number = Random(seed), 0
    while number < count:
        by = 8 if number % 3 else 1
        shape = tuple(_extent(draw, by) for _ in range(3))
        m, n, k = shape
        moved = 2 * (m * n + m * k + n * k)
        if max(moved / BANDWIDTH, 2 * m * n * k / FLOPS) < LEAST_SECONDS:
            continue
        yield _row(f"drawn{number:02}{mark}", (m, n, k), draw.choice(LAYOUTS), "")
        number += 1


def _extent(draw: Random, by: int) -> int:
    extent = exp(draw.uniform(log(LEAST), log(MOST)))
    return max(LEAST, round(extent / by) * by)


def _row(kind: str, shape: Shape, layout: str, epilogue: str) -> Row:
    name = "_".join([kind, "x".join(map(str, shape)), *([layout] if layout != "nt" else [])])
    function = f"product_{epilogue or layout}"
    text = text_of(shape, layout, epilogue)
    return Row(f"{name}_{epilogue}" if epilogue else name, name, text=text, function=function)


def text_of(shape: Shape, layout: str, epilogue: str) -> str:
    """Return the fusion of a product of M, N and K; those with an epilogue are `nt`."""
    m, n, k = shape
    lines = ["fusion: product", "inputs:"]
    lines.append(f"  a: bf16[{m}, {k}]" if layout[0] == "n" else f"  a: bf16[{k}, {m}]")
    lines.append(f"  b: bf16[{n}, {k}]" if layout[1] == "t" else f"  b: bf16[{k}, {n}]")
    if epilogue:
        lines.append(f"  bias: bf16[{n}]")
    if epilogue == "silu_mul":
        lines.append(f"  r: bf16[{m}, {n}]")
    lines.append("ops:")
    left = "a" if layout[0] == "n" else "permute(a, dims=[1, 0])"
    right = "b" if layout[1] == "n" else "permute(b, dims=[1, 0])"
    after = {
        "": f"matmul({left}, {right})",
        "gelu": "gelu(linear(a, b, bias), approximate=tanh)",
        "silu_mul": "mul(silu(linear(a, b, bias)), r)",
    }
    return "\n".join([*lines, f"  - y = {after[epilogue]}", "outputs: [y]", ""])


def measure(
    session: Session,
    row: Row,
    work: Work,
    names: Sequence[str],
    repeats: int,
    prepared: Mapping[tuple[str, str], str],
) -> dict[str, Any]:
    """Return what is measured of a product, as docs/bench.md has it.

    prepared: peers by row and name that were to be compiled before, and why they are not.
    """
    from benchmarks.torch_side import arguments_of, on_stream

    reason = has_torch()
    with ExitStack() as stack:
        inputs = stack.enter_context(Inputs(session.device, row.fusion, work.sizes))
        bound = stack.enter_context(BoundWork(session.device, work, inputs))
        issues: dict[str, Callable[[], Any]] = {}
        missing, error = dict.fromkeys(names, reason), None
        if not reason:
            stack.enter_context(on_stream(session.device))
            stack.callback(forget)
            function, arguments = row.torch_function(), arguments_of(row.fusion, inputs)
            error = _error(row, bound, function, arguments)
            offer, missing = peers.Offer(row, function, arguments), {}
            for name in names:
                missing[name] = prepared.get((row.name, name), "")
                if missing[name]:
                    continue
                issue, missing[name] = peers.found(name, offer)
                if issue is not None:
                    issues[name] = issue
        contenders = [Contender(OWN, bound.issue)]
        contenders += [Contender(name, issue) for name, issue in issues.items()]
        own, *others = session.timer.race(contenders, repeats, WARM_UP)
    shape = _shape(row)
    ratios = {t.name: round(t.seconds / own.seconds, 4) for t in others}
    whole = [r for n, r in ratios.items() if n in COMPARED]
    flops = 2.0 * shape[0] * shape[1] * shape[2] / own.seconds / 1e12
    found = {
        "name": row.name, "shape": shape, "compulsory_bytes": work.compulsory_bytes,
        "ms": round(own.seconds * 1e3, 6), "tflops": round(flops, 1),
        "contenders": {t.name: runs_of(t) for t in (own, *others)},
        "ratios": ratios, "best": min(whole, default=None),
        "missing": {n: why for n, why in missing.items() if why},
        "launches": bound.launches, **kernels_of(work),
        "error": None if error is None else {"norm": error.norm, "worst": error.worst},
    }  # fmt: skip
    plan = " ".join(_plan(s) for s in found["segments"])
    cells = [f"{own.seconds * 1e6:.2f} us", f"{flops:.0f} TFLOP/s"]
    cells += [f"{n} {r:.2f}" for n, r in ratios.items()]
    cells += ["-" if error is None else f"{error.norm:.1e} {error.worst:.1e}", plan]
    return {**found, "line": (row.name, *cells)}


def _plan(segment: Mapping[str, Any]) -> str:
    values = (f"{n}={v}" for n, v in segment["schedule"].items())
    return f"{segment['scheduler']}({' '.join(values)})"


def _shape(row: Row) -> Shape:
    m, n, k = row.name.split("_")[1].split("x")
    return int(m), int(n), int(k)


def _error(
    row: Row, bound: BoundWork, function: Callable[..., Any], arguments: Sequence[Any]
) -> Error:
    """Return the error of some rows of the result, against fp64."""
    import torch

    from benchmarks.torch_side import error_of, view_of

    bound.issue()
    bound.device.synchronise("running the kernels")
    (output,) = (view_of(tensor) for tensor in bound.outputs.values())
    count = output.shape[0]
    every = torch.arange(min(count, CHECKED_ROWS), device="cuda")
    picked = every * count // len(every)
    given = dict(zip((i.value.name for i in row.fusion.inputs), arguments, strict=True))
    given["a"] = given["a"].index_select(int(row.function == "product_tn"), picked)
    if "r" in given:
        given["r"] = given["r"][picked]
    return error_of([output[picked]], [function(**given, f=torch.float64)])


def summary(measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return, by the kind of row and its epilogue, the ratios to the best peer.

    Of drawn rows by seed, too, where there are several, and the worst of the seeds.
    """
    groups: dict[str, list[float]] = {}
    for row in measured:
        kind, _, *rest = row["name"].split("_")
        if kind.startswith("drawn"):
            kind = " ".join(["drawn", *kind[len("drawn00") :].split()])
        epilogue = "_".join(r for r in rest if r not in LAYOUTS)
        if row["best"] is not None:
            groups.setdefault(f"{kind} {epilogue}".strip(), []).append(row["best"])
    found = {name: _of_ratios(ratios) for name, ratios in groups.items()}
    seeds = [each for name, each in found.items() if name.startswith("drawn s")]
    if seeds:
        worst = {key: min(s[key] for s in seeds) for key in ("rows", "mean", "least")}
        most = {key: max(s[key] for s in seeds) for key in seeds[0] if key not in worst}
        found["drawn, worst seed"] = {**worst, **most}
    return found


def _of_ratios(ratios: Sequence[float]) -> dict[str, float]:
    counts = {f"under_{limit}": sum(r < limit for r in ratios) for limit in LIMITS}
    mean = round(exp(sum(map(log, ratios)) / len(ratios)), 4)
    return {"rows": len(ratios), "mean": mean, "least": min(ratios), **counts}
