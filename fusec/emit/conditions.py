"""Conditions on sizes that are checked before any launch, as C expressions with messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fusec.emit.code import Code, code, joined
from fusec.emit.expressions import Bounds, Sizes, divisors, largest_terms
from fusec.emit.local import sizes_of
from fusec.emit.scratch import places
from fusec.hostir.instructions import Alias, EncodeTensorMap, Launch
from fusec.hostir.program import HostProgram, every
from fusec.ir.dim import Dim, symbol
from fusec.ir.graph import DimFact
from fusec.run.launch import GRID_LIMITS
from fusec.schedule.plan import Guard, SizeArgument

Held = tuple[Code, str]
"""An expression that must be true, and the error message if it is not."""
_LARGEST = 2**62


def conditions(
    program: HostProgram,
    facts: Iterable[DimFact],
    free: frozenset[str],
    bounds: Bounds,
    print_: Sizes,
) -> Iterator[Held]:
    """Yield the conditions of a program.

    Symbols in `free` may be negative; those in `bounds` are bound at run time, with these upper
    bounds.
    """
    yield from _declared(facts, free, print_)
    computed = tuple(dict.fromkeys(_expressions(program)))
    for product, factor in largest_terms(computed, bounds):
        print_.called.add("magnitude")
        ((atoms, _),) = product.terms
        each = (code("magnitude({})", print_.text(symbol(str(a)))) for a in atoms)
        limit = f"{_LARGEST // factor}.0"
        yield code("{} <= {}", joined(" * ", each), limit), f"`{product}` is too large for 64 bits"
    for divisor in divisors(computed):
        yield code("{} != 0", print_.text(divisor)), f"division by zero: `{divisor}` is 0"
    for guard in program.guards:
        reason = f": {guard.reason}" if guard.reason else ""
        yield _guard(guard, print_), f"`{guard}` does not hold{reason}"
    for check in program.checks:
        if check.index is not None:
            text, extent = print_.text(check.index), print_.text(check.extent)
            yield code("{0} >= 0 && {0} < {1}", text, extent), f"`{check}` does not hold"
    for instruction in every(program.instructions):
        if isinstance(instruction, EncodeTensorMap):
            yield from _strides(instruction, print_)
        elif isinstance(instruction, Launch):
            yield from _launch(instruction, print_)


def _declared(facts: Iterable[DimFact], free: frozenset[str], print_: Sizes) -> Iterator[Held]:
    for fact in facts:
        field = print_.text(symbol(fact.name))
        if fact.name not in free:
            yield code("{} >= 0", field), f"`{fact.name}` is negative"
        if fact.multiple_of > 1:
            text = f"`{fact.name}` is not a multiple of {fact.multiple_of}, as declared"
            yield code("{} % {} == 0", field, fact.multiple_of), text


def _guard(guard: Guard, print_: Sizes) -> Code:
    if guard.relation == "%":
        return code("{} % {} == 0", print_.factor(guard.value), guard.bound)
    return code("{} {} {}", print_.text(guard.value), guard.relation, guard.bound)


def _strides(encode: EncodeTensorMap, print_: Sizes) -> Iterator[Held]:
    for stride in encode.map.strides:
        if not stride.is_const:
            text = f"a stride of `{encode.map.buffer}`, {stride} bytes, is not a multiple of 16"
            yield code("{} % 16 == 0", print_.factor(stride)), text


def _launch(launch: Launch, print_: Sizes) -> Iterator[Held]:
    for axis, blocks, limit in zip("xyz", launch.grid, GRID_LIMITS, strict=True):
        if not blocks.is_const:
            because = f"kernel `{launch.kernel}` needs more blocks in {axis} than {limit}"
            yield code("{} <= {}", print_.text(blocks), limit), because
    for argument in launch.arguments:
        if isinstance(argument, SizeArgument) and not argument.wide and not argument.value.is_const:
            because = f"`{argument.value}` does not fit 32 bits"
            yield code("{} <= INT32_MAX", print_.text(argument.value)), because
            if argument.value.lower_bound() is None:
                yield code("{} >= INT32_MIN", print_.text(argument.value)), because


def _expressions(program: HostProgram) -> Iterator[Dim]:
    """Yield every size that a run computes."""
    yield from (guard.value for guard in program.guards)
    yield from (v for c in program.checks if c.index is not None for v in (c.index, c.extent))
    for buffer in program.buffers:
        if buffer.role in ("input", "output"):
            yield buffer.dense_bytes
    yield from (place.bytes for place in places(program))
    for instruction in every(program.instructions):
        if isinstance(instruction, Alias):
            yield instruction.offset * program.buffer[instruction.buffer].dtype.size
        else:
            yield from sizes_of(instruction)
