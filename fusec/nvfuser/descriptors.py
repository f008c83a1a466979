"""The memory layout of a tensor, in nvFuser's terms."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.parse.dsl.tensors import describe


def compute_tensor_descriptor(
    sizes: Sequence[int], strides: Sequence[int]
) -> tuple[list[bool | None], list[int]]:
    """Return contiguity, slowest dim first, and each dim's position in memory, 0 the fastest."""
    contiguity, order = describe(sizes, strides)
    return list(contiguity), list(order or range(len(sizes) - 1, -1, -1))


def compute_contiguity(sizes: Sequence[int], strides: Sequence[int]) -> list[bool | None]:
    """Return for each dim of the shape whether it is contiguous with the next faster one."""
    flags: list[bool | None] = []
    expected = 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if size == 1 or stride == 0:
            flags.append(None)
            continue
        flags.append(stride == expected)
        expected = size * stride
    return flags[::-1]
