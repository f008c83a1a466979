"""Windows of pointwise kernels: one wide load from which each lane picks its elements."""

from __future__ import annotations

from fusec.index.windows import Pick, Window
from fusec.kernel.ctext import storage_type
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.nodes import (
    AUTO,
    Assign,
    Binary,
    Braced,
    Declare,
    Expression,
    Grouped,
    Let,
    Name,
    Operand,
    Select,
    Statement,
    Sum,
    call,
    item,
    operand,
    vector_of,
)
from fusec.schedule.pointwise.loads import Loads

LOADS = "loads"
"""The lines of a prefetch phase that load, after those of their addresses."""


def load_windows(emitter: Emitter, loads: Loads, phase: int) -> tuple[Statement, ...]:
    """Emit the loads of all windows, and return the arrays of those that are prefetched.

    phase: the one in which each iteration loads, if it is not 0, into an array for all iterations.
    """
    arrays: list[Statement] = []
    held: dict[Window, Expression] = {}
    for window in loads.once_windows:
        held[window] = _load(emitter, window, 0)
    for window in loads.windows:
        if phase == 0:
            held[window] = _load(emitter, window, 0)
            continue
        name = emitter.fresh(f"{window.buffer}_ahead", "ahead", phase, 0)
        kind = vector_of(storage_type(window.dtype), _width(emitter, window))
        arrays.append(Declare(kind, name, (Name("kUnroll"),)))
        held[window] = item(name, "u")
        emitter.add(phase, LOADS, Assign(held[window], _loaded(emitter, window, phase)))
    for load, pick in loads.picks.items():
        emitter.cached[load] = item(held[pick.window], _place(emitter, pick))
    return tuple(arrays)


def _load(emitter: Emitter, window: Window, phase: int) -> Expression:
    """Emit the load of a window in the outermost scope that binds it, and return its name."""
    tested = (c.position.variables for c in window.conditions)
    number = emitter.scope_of(window.base.variables.union(*tested))
    number = min(number, len(emitter.scopes) - 2)
    name = emitter.fresh(f"{window.buffer}_vec", "vec", phase, number)
    line = Let(AUTO, name, _loaded(emitter, window, phase))
    emitter.add(phase, emitter.scopes[number].name, line)
    return Name(name)


def _loaded(emitter: Emitter, window: Window, phase: int) -> Expression:
    """Return the expression that loads a window, zeros if it is not needed."""
    width, base = _width(emitter, window), window.base
    pointer = emitter.pointer(window.buffer, base, phase)
    found = call("fusec::load_readonly", pointer, about=[width])
    test = emitter.load_test(window.buffer, base.variables, window.conditions, phase)
    if test is None:
        return found
    return Select(test, found, Braced(vector_of(storage_type(window.dtype), width)))


def _width(emitter: Emitter, window: Window) -> Operand:
    return emitter.width_name if window.width == emitter.width else window.width


def _place(emitter: Emitter, pick: Pick) -> Expression:
    """Return the index of the window's element that a lane picks."""
    at = emitter.index(pick.offset, 0)
    if not pick.wraps:
        return at
    at = Grouped(at) if isinstance(at, Sum) else at
    return Binary("&", at, operand(pick.window.width - 1))
