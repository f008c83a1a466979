"""The suite `operands`: products of 8 bits or 10, and two that share an operand, beside peers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from math import exp, log
from typing import Any

from benchmarks.measure import forget, has_torch
from benchmarks.rows import Row
from fusec.bench.bound import BoundWork
from fusec.bench.data import Inputs
from fusec.bench.figures import kernels_of, runs_of
from fusec.bench.session import OWN, Session
from fusec.bench.timer import Contender
from fusec.bench.work import Work, build
from fusec.ir.annotations import Pin
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions

FP8 = ((8192, 8192, 8192), (4096, 7168, 16384), (4096, 4096, 4096), (128, 7168, 2048))
"""M, N and K."""
JOINED = (
    (8192, 14336, 4096), (4096, 11008, 4096), (2048, 8192, 2048), (1024, 11008, 4096),
    (512, 14336, 4096), (128, 14336, 4096), (16, 14336, 4096),
)  # fmt: skip
BLOCKS = ((128, 7168, 2048), (4096, 7168, 2048))
"""The same, of 8-bit floats with scales of 1 x 128 of A and of 128 x 128 of B."""
WEIGHTED = tuple((m, n, 8192) for n in (8192, 28672) for m in (1, 16, 64, 256))
"""The same, of weights of 8 bits with a scale for each column; of 4 bits, with one for 128 of K."""
ACROSS = tuple((m, 8192, 8192) for m in (1, 16, 64, 256))
"""The same, of weights of 4 bits along N, with a zero point and a scale for 128 of K."""
FEW_BITS = (
    (8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048), (5000, 4104, 2056),
    (16, 8192, 8192),
)  # fmt: skip
"""The same, of floats of which 10 bits count; the first three with B across K, too."""
GROUP = 128
"""Neighbours that share a scale."""
CHECKED_ROWS = 64
"""Rows of the result that are compared with fp64."""
WARM_UP = 0.012
"""Seconds a contender; the products before have raised the clocks."""
PEERS = {
    "fp8": "scaled_mm", "blocks": "scaled_mm", "joined": "two_kernels", "weighted": "half",
    "packed": "half", "across": "half", "tf32": "matmul", "tf32across": "matmul",
}  # fmt: skip
"""The peer that the summary compares with: cublasLt's product of the same operands, fusec's own two
kernels, or cuBLAS on weights that are halves already, or with `allow_tf32`."""
_TEXTS = {
    "fp8": (
        "  a: f8e4m3[{m}, {k}]\n  b: f8e4m3[{n}, {k}]\n  s: f32[{m}, 1]\n  t: f32[1, {n}]\nops:\n"
        "  - p = linear(cast(a, f32), cast(b, f32))\n  - y = cast(mul(mul(p, s), t), bf16)\n"
    ),
    "blocks": (
        "  a: f8e4m3[{m}, {k}]\n  b: f8e4m3[{n}, {k}]\n  s: f32[{m}, {parts}]\n"
        "  t: f32[{blocks}, {parts}]\nops:\n"
        "  - u = mul(reshape(cast(a, f32), [{m}, {parts}, 128]), "
        "broadcast(s, [false, false, true]))\n"
        "  - v = mul(reshape(cast(b, f32), [{blocks}, 128, {parts}, 128]), "
        "broadcast(t, [false, true, false, true]))\n"
        "  - y = cast(linear(reshape(u, [{m}, {k}]), reshape(v, [{n}, {k}])), bf16)\n"
    ),
    "joined": (
        "  a: bf16[{m}, {k}]\n  v: bf16[{n}, {k}]\n  w: bf16[{n}, {k}]\nops:\n"
        "  - g = linear(a, v)\n  - u = linear(a, w)\n  - y = mul(silu(g), u)\n"
    ),
    "weighted": (
        "  a: bf16[{m}, {k}]\n  w: i8[{n}, {k}]\n  t: bf16[{n}, 1]\nops:\n"
        "  - y = linear(a, mul(cast(w, bf16), t))\n"
    ),
    "packed": (
        "  a: bf16[{m}, {k}]\n  w: u8[{n}, {bytes}]\n  t: bf16[{n}, {parts}]\nops:\n"
        "  - low = broadcast(bitwise_and(w, 15), [false, false, true])\n"
        "  - high = broadcast(bitwise_right_shift(w, 4), [false, false, true])\n"
        "  - q = cast(sub(cast(cat([low, high], dim=2), i32), 8), bf16)\n"
        "  - v = mul(reshape(q, [{n}, {parts}, 128]), broadcast(t, [false, false, true]))\n"
        "  - y = linear(a, reshape(v, [{n}, {k}]))\n"
    ),
    "across": (
        "  a: bf16[{m}, {k}]\n  w: u8[{k}, {halves}]\n  z: u8[{parts}, {halves}]\n"
        "  t: bf16[{parts}, {n}]\nops:\n"
        "  - low = broadcast(bitwise_and(w, 15), [false, false, true])\n"
        "  - high = broadcast(bitwise_right_shift(w, 4), [false, false, true])\n"
        "  - q = reshape(cast(cat([low, high], dim=2), i32), [{parts}, 128, {n}])\n"
        "  - first = broadcast(bitwise_and(z, 15), [false, false, true])\n"
        "  - second = broadcast(bitwise_right_shift(z, 4), [false, false, true])\n"
        "  - zero = reshape(cast(cat([first, second], dim=2), i32), [{parts}, 1, {n}])\n"
        "  - v = mul(cast(sub(q, zero), bf16), broadcast(t, [false, true, false]))\n"
        "  - y = matmul(a, reshape(v, [{k}, {n}]))\n"
    ),
    "tf32": "  a: f32[{m}, {k}]\n  b: f32[{n}, {k}]\nops:\n  - y = linear(tf32(a), tf32(b))\n",
    "tf32across": (
        "  a: f32[{m}, {k}]\n  b: f32[{k}, {n}]\nops:\n  - y = matmul(tf32(a), tf32(b))\n"
    ),
}


def rows() -> tuple[Row, ...]:
    """Return the rows, by kind and then by shape; nothing is drawn."""
    kinds = (
        ("fp8", FP8), ("blocks", BLOCKS), ("joined", JOINED), ("weighted", WEIGHTED),
        ("packed", WEIGHTED), ("across", ACROSS), ("tf32", FEW_BITS), ("tf32across", FEW_BITS[:3]),
    )  # fmt: skip
    return tuple(row_of(kind, shape) for kind, shapes in kinds for shape in shapes)


def row_of(kind: str, shape: tuple[int, int, int]) -> Row:
    """Return a row of one kind."""
    m, n, k = shape
    name = f"{kind}_{m}x{n}x{k}"
    return Row(name, name, text=text_of(kind, shape), function=f"operands_{kind}")


def text_of(kind: str, shape: tuple[int, int, int]) -> str:
    """Return the fusion of a product of M, N and K, of one kind."""
    m, n, k = shape
    sizes = {"m": m, "n": n, "k": k, "bytes": k // 2, "halves": n // 2}
    sizes |= {"parts": k // GROUP, "blocks": n // GROUP}
    return f"fusion: product\ninputs:\n{_TEXTS[kind].format(**sizes)}outputs: [y]\n"


def apart(fusion: Fusion) -> Fusion:
    """Return two joined products in a kernel each, the second of which joins them."""
    rest = tuple(v.name for n in fusion.nodes for v in n.outputs if v.name != "u")
    return replace(fusion, pins=(Pin("first", ("u",), "matmul"), Pin("rest", rest, "matmul")))


def measure(session: Session, row: Row, work: Work, repeats: int) -> dict[str, Any]:
    """Return what is measured of a row, as docs/bench.md has it."""
    from benchmarks.torch_side import arguments_of, on_stream

    kind, reason, error = row.name.split("_")[0], has_torch(), None
    with ExitStack() as stack:
        inputs = stack.enter_context(Inputs(session.device, row.fusion, work.sizes))
        bound = stack.enter_context(BoundWork(session.device, work, inputs))
        contenders = [Contender(OWN, bound.issue)]
        if kind == "joined":
            options = CompileOptions(targets=(work.target,), targets_given=True)
            two = build(apart(row.fusion), options)
            issue = stack.enter_context(BoundWork(session.device, two, inputs)).issue
            contenders.append(Contender(PEERS[kind], issue))
        if not reason:
            stack.enter_context(on_stream(session.device))
            stack.callback(forget)
            names = (i.value.name for i in row.fusion.inputs)
            given = dict(zip(names, arguments_of(row.fusion, inputs), strict=True))
            error = _error(row, bound, given)
            contenders += [Contender(n, f) for n, f in peers_of(kind, given).items()]
        own, *others = session.timer.race(contenders, repeats, WARM_UP)
    m, n, k = map(int, row.name.split("_")[1].split("x"))
    flops = (4.0 if kind == "joined" else 2.0) * m * n * k / own.seconds / 1e12
    ratios = {t.name: round(t.seconds / own.seconds, 4) for t in others}
    found = {
        "name": row.name, "shape": (m, n, k), "compulsory_bytes": work.compulsory_bytes,
        "ms": round(own.seconds * 1e3, 6), "tflops": round(flops, 1),
        "contenders": {t.name: runs_of(t) for t in (own, *others)},
        "ratios": ratios, "best": ratios.get(PEERS[kind]),
        "missing": dict.fromkeys(["torch"], reason) if reason else {},
        "launches": bound.launches, **kernels_of(work),
        "error": None if error is None else {"norm": error.norm, "worst": error.worst},
    }  # fmt: skip
    cells = [f"{own.seconds * 1e6:.2f} us", f"{flops:.0f} TFLOP/s"]
    cells += [f"{name} {ratio:.2f}" for name, ratio in ratios.items()]
    cells.append("-" if error is None else f"{error.norm:.1e} {error.worst:.1e}")
    return {**found, "line": (row.name, *cells)}


def peers_of(kind: str, given: Mapping[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return what PyTorch has for a kind of row, its operands made ready before."""
    import torch

    a = given["a"]
    if kind in ("fp8", "blocks"):
        factors = {"scale_a": given["s"], "scale_b": given["t"], "out_dtype": torch.bfloat16}
        b = given["b"].t()
        one = {"scale_a": a.new_ones((), dtype=torch.float32), "out_dtype": torch.bfloat16}
        one["scale_b"] = one["scale_a"]
        if kind == "blocks":
            return {"scaled_mm": lambda: torch._scaled_mm(a, b, **one)}
        return {
            "scaled_mm": lambda: torch._scaled_mm(a, b, **one),
            "scaled_mm_fast": lambda: torch._scaled_mm(a, b, **one, use_fast_accum=True),
            "scaled_mm_rows": lambda: torch._scaled_mm(a, b, **factors),
        }
    if kind == "joined":
        both = torch.nn.functional
        v, w = given["v"], given["w"]
        return {"eager": lambda: both.silu(both.linear(a, v)) * both.linear(a, w)}
    if kind in ("tf32", "tf32across"):
        b = given["b"].t() if kind == "tf32" else given["b"]
        return {"matmul": lambda: _multiplied(a, b)}
    if kind == "packed":
        from benchmarks.workloads.operands import unpacked

        weights = unpacked(given["w"], given["t"]).to(a.dtype)
    elif kind == "across":
        from benchmarks.workloads.operands import unpacked_across

        weights = unpacked_across(given["w"], given["z"], given["t"]).to(a.dtype).t()
    else:
        weights = given["w"].to(a.dtype) * given["t"]
    return {"half": lambda: torch.matmul(a, weights.t())}


def _multiplied(a: Any, b: Any) -> Any:
    """Return PyTorch's product of floats of which 10 bits count."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return torch.matmul(a, b)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def _error(row: Row, bound: BoundWork, given: Mapping[str, Any]) -> Any:
    """Return the error of the first rows of the result, against fp64."""
    from benchmarks.torch_side import error_of, view_of

    bound.issue()
    bound.device.synchronise("running the kernels")
    (output,) = (view_of(tensor) for tensor in bound.outputs.values())
    count = min(output.shape[0], CHECKED_ROWS)
    first = {n: x[:count] if n in ("a", "s") else x for n, x in given.items()}
    return error_of([output[:count]], [row.torch_function()(**first)])


def summary(measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return, by the kind of row, the ratios to its peer."""
    groups: dict[str, list[float]] = {}
    for row in measured:
        if row["best"] is not None:
            groups.setdefault(row["name"].split("_")[0], []).append(row["best"])
    return {
        kind: {"rows": len(r), "mean": round(exp(sum(map(log, r)) / len(r)), 4), "least": min(r)}
        for kind, r in groups.items()
    }
