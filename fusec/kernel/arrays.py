"""Arrays of a kernel: in a thread's registers, and in shared memory."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.ir.dtype import DType
from fusec.kernel.ctext import storage_type
from fusec.kernel.names import Names, camel
from fusec.kernel.nodes import Type, vector_of


@dataclass(frozen=True)
class RegisterArray:
    """An array in a thread's registers: name and element type."""

    name: str
    type: Type


@dataclass(frozen=True)
class SharedArray:
    """A staged array in shared memory: name, element type, the constant of its first byte.

    vectors: whether its elements are vectors.
    """

    name: str
    type: Type
    place: str
    offset: int
    vectors: bool = True

    @property
    def each(self) -> Type:
        """Return the C type of its elements."""
        return vector_of(self.type) if self.vectors else self.type


def shared_array(names: Names, name: str, dtype: DType, offset: int) -> SharedArray:
    """Return an array of vectors that begins `offset` bytes after the first one."""
    place = names.fresh(f"k{camel(name)}", "offset")
    return SharedArray(name, storage_type(dtype), place, offset)
