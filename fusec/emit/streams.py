"""Assigns the steps of an emitted program to streams, with the waits between them."""

from __future__ import annotations

from fusec.emit.code import Code, code, variable
from fusec.emit.variables import Variables
from fusec.emit.view import Call, Statement, Step
from fusec.hostir.instructions import For, SetStream, Synchronize
from fusec.ir.dim import Dim, dim

CALLER = dim(0)
STREAMS = variable("streams")


class StreamPrinter:
    """Tracks the current stream from instruction to instruction.

    A stream is entered where work is put on it, not where it is set: a stream that is set without
    work is not printed. If the first work on a stream waits for nothing, it waits for the caller's.
    """

    def __init__(self, variables: Variables, count: int) -> None:
        """Start on the caller's stream; count: of the others."""
        self.variables, self.count = variables, count
        self.current = CALLER
        self._shown: Dim | None = CALLER
        self._begun = {CALLER}
        self._around: list[set[Dim]] = []
        self._names: dict[str, Dim] = {}

    def get(self, name: str) -> None:
        """Bind the current stream to a name."""
        self._names[name] = self.current

    def set(self, stream: Dim) -> None:
        """Set the current stream."""
        self.current = self._number(stream)

    def enter(self) -> tuple[list[Step], str]:
        """Return the steps before work on the current stream, and the expression of that stream."""
        if not self.count:
            return [], "stream"
        steps = self._show()
        if self.current not in self._begun:
            steps.append(self._follow("on", CALLER))
            self._begun.add(self.current)
        return steps, "on"

    def synchronize(self, stream: Dim, comment: str) -> list[Step]:
        """Return the steps that make the current stream wait for all work of another one."""
        other = self._number(stream)
        if other == self.current:
            return []
        steps = [*self._show(), self._follow("on", other, comment)]
        if other in self._begun:
            self._begun.add(self.current)
        return steps

    def fork(self, number: int) -> list[Step]:
        """Return the steps that make a stream wait for the work of the current one."""
        steps, _ = self.enter()
        self._called("use")
        return [*steps, self._follow(code("use({}, {})", STREAMS, number), self.current)]

    def begin_loop(self, loop: For) -> list[Step]:
        """Return the steps before a loop; `on` may differ from one iteration to the next."""
        self._around.append(set(self._begun))
        if any(isinstance(i, SetStream) for i in loop.body):
            self._shown = None
            return []
        waits = any(isinstance(i, Synchronize) for i in loop.body)
        return self._show() if waits else []

    def end_loop(self, loop: For) -> None:
        """Drop the state from inside the iterations: there may be none."""
        self._begun = self._around.pop()
        if any(isinstance(i, SetStream) for i in loop.body):
            self._shown = None

    def _number(self, stream: Dim) -> Dim:
        return stream.substitute(self._names)

    def _show(self) -> list[Step]:
        if self._shown == self.current:
            return []
        self._shown = self.current
        if self.current == CALLER:
            return [Statement(Code("on = stream;"))]
        self._called("use")
        return [Statement(code("on = use({}, {});", STREAMS, self.variables.text(self.current)))]

    def _follow(self, stream: Code | str, other: Dim, comment: str = "") -> Step:
        self._called("follow")
        ends = stream, self.variables.text(other)
        return Call(code("follow({}, {}, {})", STREAMS, *ends), comment)

    def _called(self, helper: str) -> None:
        self.variables.sizes.called.add(helper)
