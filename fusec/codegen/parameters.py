"""The parameters of kernels as declared in their sources."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.dataclasses import dataclass
from fusec.kernel.ctext import identifier, storage_type
from fusec.kernel.nodes import I64, INT, Type
from fusec.schedule.plan import (
    Argument,
    Kernel,
    MailboxArgument,
    ScalarArgument,
    SizeArgument,
    TensorArgument,
    WorkspaceArgument,
)


@dataclass(frozen=True)
class Parameter:
    """A kernel's parameter: the argument, and its name in the source."""

    argument: Argument
    name: str

    @property
    def type(self) -> Type:
        """Return its type without qualifiers; for a pointer, the type of an element."""
        argument = self.argument
        if isinstance(argument, TensorArgument | WorkspaceArgument | ScalarArgument):
            return storage_type(argument.dtype)
        if isinstance(argument, SizeArgument):
            return I64 if argument.wide else INT
        mailboxes = isinstance(argument, MailboxArgument)
        return Type("fusec::PushSum" if mailboxes else "fusec::TensorMap")

    def __str__(self) -> str:
        argument = self.argument
        if isinstance(argument, TensorArgument):
            const = "" if argument.written else "const "
            restrict = " __restrict__" if argument.restrict else ""
            return f"{const}{self.type}*{restrict} {self.name}"
        if isinstance(argument, WorkspaceArgument):
            return f"{self.type}* {self.name}"
        if isinstance(argument, SizeArgument | ScalarArgument):
            return f"{self.type} {self.name}"
        return f"const __grid_constant__ {self.type} {self.name}"


def parameters(kernel: Kernel, names: Mapping[str, str] | None = None) -> tuple[Parameter, ...]:
    """Return the parameters for a kernel's arguments; names: C names by theirs."""
    known = names or {}
    return tuple(Parameter(a, identifier(known.get(a.name, a.name))) for a in kernel.arguments)
