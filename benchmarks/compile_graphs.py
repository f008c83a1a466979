"""Graphs whose kernels would keep NVRTC busy for minutes, if nothing bounded what one holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fusec.ir.graph import Fusion
from fusec.parse import read_text

SQUARE = "f32[1024, 1024]"


def _fusion(name: str, inputs: Iterable[str], ops: Iterable[str], outputs: Iterable[str]) -> Fusion:
    declared = "".join(f"  {line}\n" for line in inputs)
    lines = "".join(f"  - {line}\n" for line in ops)
    text = f"fusion: {name}\ninputs:\n{declared}ops:\n{lines}outputs: [{', '.join(outputs)}]\n"
    return read_text(text, f"{name}.yaml")


def row_maxima(count: int = 100, kind: str = "bf16[4096, 8192]") -> Fusion:
    """Return the maximum of each row taken off it, again and again: phases of one kernel."""
    ops = ["v0 = cast(x, f32)"]
    ops += [f"v{k + 1} = sub(v{k}, max(v{k}, dims=[1], keepdim=true))" for k in range(count)]
    return _fusion("row_maxima", [f"x: {kind}"], ops, [f"v{count}"])


def alternating_sums(count: int = 350) -> Fusion:
    """Return a chain of sums along rows, then columns, then rows, each taken off."""
    ops = ["v0 = add(x, 1.0)"]
    ops += [f"v{k + 1} = sub(v{k}, sum(v{k}, dims=[{k % 2}], keepdim=true))" for k in range(count)]
    return _fusion("alternating_sums", [f"x: {SQUARE}"], ops, [f"v{count}"])


def own_sums(count: int = 350) -> Fusion:
    """Return sums of rows, each of an input of its own."""
    inputs = [f"x{k}: {SQUARE}" for k in range(count)]
    ops = [f"v{k} = sum(x{k}, dims=[1])" for k in range(count)]
    return _fusion("own_sums", inputs, ops, [f"v{k}" for k in range(count)])


def fan(count: int = 350, along: str = "1", kind: str = SQUARE) -> Fusion:
    """Return sums of one input, each scaled by itself; along: the dims of them in turn."""
    ops = ["y = cast(x, f32)"]
    ops += [
        f"v{k} = sum(mul(y, {1 + k / 64}), dims=[{along[k % len(along)]}])" for k in range(count)
    ]
    return _fusion("fan", [f"x: {kind}"], ops, [f"v{k}" for k in range(count)])


def shifts(count: int = 12) -> Fusion:
    """Return a row added to itself shifted, again and again: each value at twice as many places."""
    ops: list[str] = ["v0 = add(x, 0.0)"]
    for k in range(count):
        ops.append(f"p{k} = pad(v{k}, [{2**k}, 0])")
        ops.append(f"q{k} = slice(p{k}, start_indices=[0], end_indices=[65536])")
        ops.append(f"v{k + 1} = add(q{k}, exp(v{k}))")
    return _fusion("shifts", ["x: f32[65536]"], ops, [f"v{count}"])


GRAPHS: dict[str, Callable[[], Fusion]] = {
    "100 row maxima": row_maxima,
    "100 row maxima, short rows": lambda: row_maxima(kind="f32[128, 64]"),
    "100 row maxima, long rows": lambda: row_maxima(kind="bf16[1024, 65536]"),
    "350 alternating sums": alternating_sums,
    "350 sums of an input each": own_sums,
    "350 sums of one input": fan,
    "350 sums of one input, alternating": lambda: fan(along="01"),
    "12 shifts": shifts,
}
