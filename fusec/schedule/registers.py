"""Registers: the live words of a thread, and whether its block leaves it that many."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.index.domain import Domain
from fusec.ir.dtype import F64, DType
from fusec.ir.expression import Var
from fusec.ir.graph import Fusion, Node
from fusec.ir.roles import Combine

SM_REGISTERS = 65536
MOST_REGISTERS = 168
MOST_THREAD_REGISTERS = 255
"""Registers that a thread can address (CUDA programming guide, technical specifications)."""
UNASKED_WORDS = 40
"""Words of rows for which ptxas allocates enough registers without launch bounds."""
UNASKED_IN_LARGE_BLOCKS = 32
"""The same for blocks with two per SM: ptxas spills rather than allow only one."""
OTHER_REGISTERS = 40
"""Registers for addresses, indices, results and rows in flight."""
LEAST_REGISTERS = 8
"""The least of them that any loop needs."""
DOUBLE_WORDS = 40
"""Words in which a special function of doubles is computed, for two elements at a time."""
MOST_ELEMENTS = 16
"""Elements of a vector of bytes in the widest access."""
MOST_DOUBLES = 8
"""The same with doubles, which take two registers per element."""
MOST_EXPENSIVE_DOUBLES = 4
"""The same with special functions of doubles, which the compiler interleaves."""


def words(dtype: DType, count: int = 1) -> int:
    """Return the registers of a vector of `count` elements."""
    return -(-dtype.size * count // 4)


def partial_words(node: Node) -> int:
    """Return how many numbers one partial result of a reduction holds.

    Three for a variance, a value and its position for argmax, a maximum and a sum of exponentials.
    """
    combine = node.op.combine
    if combine is not None and (combine.is_position or combine is Combine.EXPONENTIALS):
        return 2
    return 3 if node.op.combine is Combine.MOMENTS else 1


def sum_words(node: Node, *, wide: bool = True) -> int:
    """Return the registers of one partial result of a reduction.

    wide: whether positions have 64 bits; a position is at least as wide as its value.
    """
    combine, value = node.op.combine, node.inputs[0].dtype.compute
    if combine is not None and combine.is_position and not wide:
        return 2 * words(value)
    wider = max(value, node.output.dtype.compute, key=lambda d: d.size)
    return partial_words(node) * words(wider)


def fits(threads: int, held: int, registers: int) -> bool:
    """Return whether a block with that many threads leaves each registers for `held` words.

    registers: those of an SM that schedules may use.
    """
    return LEAST_REGISTERS + held <= min(part(MOST_REGISTERS, registers), registers // threads)


def part(most: int, registers: int) -> int:
    """Return a limit scaled to the registers per SM that schedules may use."""
    return most * registers // SM_REGISTERS


def least_blocks(threads: int, rows: int, doubles: int, others: int = 0) -> int:
    """Return the blocks per SM in the launch bounds that give a thread enough registers, or 0.

    By default ptxas spills a few registers rather than reduce occupancy.
    """
    unasked = UNASKED_IN_LARGE_BLOCKS if threads >= 512 else UNASKED_WORDS
    if rows <= unasked and not doubles:
        return 0
    needed = -(-(OTHER_REGISTERS + rows + doubles + others) // 8) * 8
    return max(1, SM_REGISTERS // (threads * min(MOST_REGISTERS, needed)))


def double_words(fusion: Fusion, domain: Domain, axes: Iterable[Var]) -> int:
    """Return the words for special functions of doubles that are computed along some axes."""
    along = frozenset(axes)
    for node in fusion.nodes:
        home = domain.homes.get(node.output)
        if home is not None and home.variables & along and _is_expensive(node):
            return DOUBLE_WORDS
    return 0


def blocks_with_doubles(
    fusion: Fusion, domain: Domain, axes: Iterable[Var], width: int, threads: int
) -> int:
    """Return the blocks per SM that leave a thread registers for doubles and vectors, or 0.

    width: the elements of a vector; a thread holds one vector per tensor.
    """
    values = [i.value for i in fusion.inputs] + [o.value for o in fusion.outputs]
    vectors = sum(words(v.dtype, width) for v in values)
    return least_blocks(threads, 0, double_words(fusion, domain, axes), vectors)


def most_elements(fusion: Fusion) -> int:
    """Return the elements of the widest vectors that fit in registers, one per tensor."""
    if any(_is_expensive(n) and not n.output.is_scalar for n in fusion.nodes):
        return MOST_EXPENSIVE_DOUBLES
    doubles = any(v.dtype == F64 and not v.is_scalar for v in fusion.values)
    return MOST_DOUBLES if doubles else MOST_ELEMENTS


def _is_expensive(node: Node) -> bool:
    cost = node.op.cost
    computed = node.op.family == "pointwise" and F64 in node.compute_dtypes
    return computed and (cost.sfu > 0 or cost.flops >= 10)
