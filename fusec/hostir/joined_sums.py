"""All-reduces that the kernel which reads the sum can replace (decision 251)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    Free,
    Instruction,
    Post,
    Pushed,
    Wait,
)
from fusec.schedule.plan import KernelPlan, MailboxArgument, PushedKernel, TensorArgument

_NO_WORK = (Allocate, Alias, Free)


def pushed_of(plan: KernelPlan, launched: Mapping[str, str]) -> Pushed | None:
    """Return the kernel that can replace a plan's launch and the all-reduce before it, if any."""
    kernel = pushed_in(plan)
    if kernel is None:
        return None
    *tensors, mailboxes = kernel.arguments
    if not all(isinstance(a, TensorArgument) for a in tensors):
        return None  # sizes and scalars, which texts rarely read
    assert isinstance(mailboxes, MailboxArgument)
    buffers = tuple(a.name for a in tensors)
    name, threads = launched.get(kernel.name, kernel.name), kernel.block[0]
    return Pushed(
        name, kernel.source, kernel.target, buffers, kernel.columns, threads, kernel.blocks
    )


def pushed_in(plan: KernelPlan) -> PushedKernel | None:
    """Return a plan's kernel that adds its rows over ranks, if it has one."""
    return next((k for k in plan.kernels if isinstance(k, PushedKernel)), None)


def with_sums(
    instructions: Sequence[Instruction], plans: Mapping[str, KernelPlan]
) -> tuple[tuple[Instruction, ...], frozenset[str]]:
    """Return (the instructions, the segments that come right after the sum which they read).

    The operands of all-reduces stay allocated until such a segment has run: its kernel may read
    them.
    """
    found, segments = list(instructions), set[str]()
    for begin, post in _pairs(instructions):
        instruction = instructions[post]
        assert isinstance(instruction, Post)
        kernel, exchange = pushed_in(plans[instruction.segment]), instructions[begin]
        assert isinstance(exchange, Collective)
        if kernel is None or (kernel.source, kernel.target) != (exchange.source, exchange.target):
            continue
        between = instructions[begin : post + 1]
        freed = [i for i in between if isinstance(i, Free)]
        found[begin : post + 1] = [*(i for i in between if i not in freed), *freed]
        segments.add(instruction.segment)
    return tuple(found), frozenset(segments)


def _pairs(instructions: Sequence[Instruction]) -> Iterator[tuple[int, int]]:
    """Yield the indices of immediately awaited all-reduces, and of posts right after them."""
    work = [k for k, i in enumerate(instructions) if not isinstance(i, _NO_WORK)]
    for begin, wait, post in zip(work, work[1:], work[2:], strict=False):
        exchange, waited, after = (instructions[k] for k in (begin, wait, post))
        if not isinstance(exchange, Collective) or exchange.kind != "all_reduce":
            continue
        if waited == Wait(exchange.target) and isinstance(after, Post):
            yield begin, post
