"""Windows of pointwise kernels: loaded by one wide access, of which each lane picks an element."""

from __future__ import annotations

from fusec.index.windows import Pick, Window
from fusec.kernel.ctext import storage_type
from fusec.kernel.emit import Emitter
from fusec.kernel.nodes import Statement
from fusec.schedule.pointwise_loads import Loads

LOADS = "loads"
"""The lines of a phase ahead that load, behind those of their addresses."""


def load_windows(emitter: Emitter, loads: Loads, phase: int) -> tuple[Statement, ...]:
    """Emit the loads of all windows, and return the arrays of those that are loaded ahead.

    phase: the one in which each turn loads, where that is not 0 into an array of all turns.
    """
    arrays: list[str] = []
    names: dict[Window, str] = {}
    for window in loads.once_windows:
        names[window] = _load(emitter, window, 0)
    for window in loads.windows:
        if phase == 0:
            names[window] = _load(emitter, window, 0)
            continue
        name = emitter.fresh(f"{window.buffer}_ahead", "ahead", phase, 0)
        kind = f"fusec::Vec<{storage_type(window.dtype)}, {_width(emitter, window)}>"
        arrays.append(f"{kind} {name}[kUnroll];")
        emitter.add(phase, LOADS, f"{name}[u] = {_text(emitter, window, phase)};")
        names[window] = f"{name}[u]"
    for load, pick in loads.picks.items():
        emitter.cached[load] = f"{names[pick.window]}[{_place(emitter, pick)}]"
    return tuple(arrays)


def _load(emitter: Emitter, window: Window, phase: int) -> str:
    """Emit the load of a window in the outermost scope that binds it, and return its name."""
    tested = (c.position.variables for c in window.conditions)
    number = emitter.scope_of(window.base.variables.union(*tested))
    number = min(number, len(emitter.scopes) - 2)
    name = emitter.fresh(f"{window.buffer}_vec", "vec", phase, number)
    line = f"const auto {name} = {_text(emitter, window, phase)};"
    emitter.add(phase, emitter.scopes[number].name, line)
    return name


def _text(emitter: Emitter, window: Window, phase: int) -> str:
    """Return the expression that loads a window, zeros where it is not needed."""
    width, base = _width(emitter, window), window.base
    text = f"fusec::load_readonly<{width}>({emitter.pointer(window.buffer, base, phase)})"
    test = emitter.load_test(window.buffer, base.variables, window.conditions, phase)
    if test is None:
        return text
    kind = f"fusec::Vec<{storage_type(window.dtype)}, {width}>"
    return f"{test.at_least(3)} ? {text} : {kind}{{}}"


def _width(emitter: Emitter, window: Window) -> str:
    return emitter.width_name if window.width == emitter.width else str(window.width)


def _place(emitter: Emitter, pick: Pick) -> str:
    """Return the element of the window that a lane takes."""
    text = emitter.index(pick.offset, 0)
    return f"{text.at_least(13)} & {pick.window.width - 1}" if pick.wraps else text.text
