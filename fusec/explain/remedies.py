"""What an author of a model can do about a rule that prevents fusion."""

from __future__ import annotations

from collections.abc import Mapping

ATTENTION = ("attention", "attention_decode", "attention_backward")

OF_ATTENTION: Mapping[str, str] = {
    "dtype": "compute attention in bf16 or f16: `model.bfloat16()` before the export",
    "features": "use heads with a multiple of 16 features, at most 256",
    "queries": "use fewer queries for each key head, or the attention of a prefill",
    "softmax": "write softmax(q @ k.T * scale + mask) @ v, or call "
    "`scaled_dot_product_attention`",
    "outputs": "do not return the attention weights",
    "domain": "do not reshape or permute the attention weights",
    "operation": "compute masks and biases before the attention, as tensors",
    "operand": "store the keys and values before the attention reads them",
}  # fmt: skip

OF_ALL: Mapping[str, str] = {
    "kernel": "compute in bf16 or f16 (`model.bfloat16()`), or apply `tf32` to the operands of f32 "
    "GEMMs",
    "dtype": "compute in bf16, f16 or f32",
    "access": "make the innermost extents multiples of 8 elements",
    "shared memory": "make the rows shorter: they have to fit in the shared memory of an SM",
    "registers": "make the rows shorter: they have to fit in the registers of a block",
    "reduction_axes": "reduce over the same dims",
    "in_place": "write into a new tensor",
    "alias": "write into a new tensor",
    "store_map": "read the value in the layout in which it is computed",
    "arms": "concatenate fewer tensors at once",
    "empty": "remove the empty tensors",
    "target": "compile for a newer GPU with `--target`",
}  # fmt: skip


def remedy(scheduler: str, rule: str) -> str:
    """Return how to avoid a scheduler's refusal by a rule; empty if there is no way."""
    return (OF_ATTENTION if scheduler in ATTENTION else OF_ALL).get(rule, "")
