"""The C variables of an emitted program: buffer addresses, tensor maps, and sizes."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.emit.code import Code, code, variable
from fusec.emit.expressions import Sizes
from fusec.emit.names import FieldNames
from fusec.hostir.program import HostProgram
from fusec.ir.dim import Dim


class Variables:
    """Names C variables after what they hold, and prints sizes in terms of them."""

    def __init__(self, program: HostProgram, sizes: Sizes, local: Iterable[str] = ()) -> None:
        """Name the symbols that are bound at run time."""
        self.program, self.sizes = program, sizes
        self._names = FieldNames()
        sizes.fields |= {symbol: variable(self._names.add(symbol, "of")) for symbol in local}

    def symbol(self, name: str) -> Code:
        """Return the variable of a symbol that is bound at run time."""
        return self.sizes.fields[name]

    def ranks_memory(self, buffer: str) -> str:
        """Return the variable with the address of all ranks' parts of a shared buffer."""
        return self._names.add(f"room_{buffer}", "of")

    def own(self, number: int) -> str:
        """Return the variable that is true if a rank would send a slice to itself."""
        return self._names.add(f"own_{number}", "of")

    def text(self, value: Dim) -> Code:
        """Return a size as an expression."""
        return self.sizes.text(value)

    def at(self, buffer: str) -> str:
        """Return the variable with a buffer's address."""
        return self._names.add(f"at_{buffer}", "of")

    def map(self, name: str) -> str:
        """Return the variable of a tensor map."""
        return self._names.add(f"map_{name}", "of")

    def bytes(self, name: str) -> Code:
        """Return how many bytes the elements of a buffer take."""
        return self.sizes.text(self.program.buffer[name].dense_bytes)

    def part(self, whole: str, offset: Dim) -> Code:
        """Return the address at a byte offset from another one."""
        if offset.is_const:
            return Code(whole if offset == 0 else f"{whole} + {offset}")
        self.sizes.called.add("part")
        return code("part({}, {})", whole, self.text(offset))

    def cast(self, value: Dim, kind: str) -> Code:
        """Return a size as a factor of a C type."""
        if value.is_const:
            return self.sizes.factor(value)
        return code("({})({})", kind, self.sizes.text(value))
