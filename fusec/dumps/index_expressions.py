"""Indexing, scans, sorts and random numbers as nvFuser prints them."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.ir.graph import Node

SCANS = {"cumsum": "add", "cumprod": "mul", "cummax": "fmax", "cummin": "fmin"}
RANDOM = {"uniform": "rng_uniform_range", "normal": "rng_normal_general"}


def index_text(node: Node, results: str, operands: Sequence[str], shape: str) -> str | None:
    """Return the text of such an operation; None for any other.

    `results` and `operands` are printed already, `shape` has the result's extents.
    """
    name, attributes = node.op.name, node.attributes
    body: str | None = None
    match name:
        case "index_select":
            body = f"indexSelect( {operands[0]}, dim = {attributes['dim']}, {operands[1]} )"
        case "select":
            body = f"select( {operands[0]}, axis = {attributes['dim']}, index = {operands[1]} )"
        case "gather":
            body = f"torchGather( {operands[0]}, dim = {attributes['dim']}, {operands[1]} )"
        case "take_along_axis":
            body = f"takeAlongAxis( {operands[0]}, {operands[1]}, dim = {attributes['dim']} )"
        case "scatter" | "scatter_add" | "index_add":
            tail = "" if name == "scatter" else ", accumulate = add"
            body = (
                f"scatter(in = {operands[0]}, dim = {attributes['dim']}, src = {operands[2]}, "
                f"idx = {operands[1]}{tail} )"
            )
        case "argsort":
            flags = f"descending = {attributes['descending']}, stable = {attributes['stable']}"
            return f"{results} = argsort( {operands[0]}, dim = {attributes['dim']}, {flags} )\n"
        case "topk":
            flags = f"largest = {attributes['largest']}, sorted = {attributes['sorted']}"
            count = f"{attributes['k']}, dim = {attributes['dim']}"
            return f"{results} = topk( {operands[0]}, {count}, {flags} )\n"
        case _ if name in SCANS:
            start = operands[1] if len(operands) > 1 else "none"
            kind = f"dim={attributes['dim']},\n op_type={SCANS[name]},\n init={start}"
            return f"{results}\n = scan({operands[0]},\n {kind})\n"
        case _ if name in RANDOM:
            parts = [shape, *operands[:2], node.output.dtype.printed, *operands[2:]]
            body = f"{RANDOM[name]}({', '.join(parts)});"
        case _:
            return None
    return f"{results}\n   = {body}\n"
