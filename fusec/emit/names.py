"""Names and comments in emitted C: the user's own names, unless they are reserved."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fusec.diagnostics import Unsupported
from fusec.escape import c_comment, visible
from fusec.hostir.program import Buffer, HostProgram, dense_strides
from fusec.ir.dim import shape_text
from fusec.kernel.names import Names

C_TYPES = {
    "f64": "double", "f32": "float", "i64": "int64_t", "i32": "int32_t", "i16": "int16_t",
    "i8": "int8_t", "u64": "uint64_t", "u32": "uint32_t", "u16": "uint16_t", "u8": "uint8_t",
    "bool": "bool",
}  # fmt: skip
"""C types of scalars by value; floats of 16 and 8 bits are passed as their bits."""

_RESERVED = (
    "restrict", "typeof", "NULL", "EOF", "errno", "linux", "unix", "sizes", "ranks", "_Bool",
    "_Complex", "_Imaginary", "_Alignas", "_Atomic", "_Generic", "_Noreturn", "_Static_assert",
)  # fmt: skip
_HEADERS = frozenset(
    ["cuda", "nccl", "pthread", "stdbool", "stddef", "stdint", "stdlib", "stdio", "string"]
)


def check_fusion_name(name: str) -> None:
    """Raise Unsupported where a fusion's C files would have the names of others."""
    if name.lower() in _HEADERS or name == "example":
        raise Unsupported(
            f"fusion `{name}` cannot be emitted as C: `{name}.h` and `{name}.c` would hide other "
            "files",
            help="rename the fusion",
        )


class FieldNames:
    """Unique names of fields: `x.stride0` is `x_stride0`."""

    def __init__(self) -> None:
        """Start with the reserved words of C and the names used by the templates."""
        self._names = Names(_RESERVED)
        self.of: dict[str, str] = {}

    def add(self, name: str, word: str) -> str:
        """Return the name of a field for a dim, tensor or scalar."""
        if name not in self.of:
            self.of[name] = self._names.fresh(name, word)
        return self.of[name]


def literal(text: str) -> str:
    """Return a text as a C string literal."""
    return json.dumps(visible(text)).replace("??", '?""?')


def about(buffer: Buffer) -> str:
    """Return a tensor's type, layout and alignment for a comment."""
    text = f"{buffer.dtype}{shape_text(buffer.shape)}"
    if buffer.strides != dense_strides(buffer.shape):
        text += f", strides {shape_text(buffer.strides)}"
    return c_comment(f"{text}, at a multiple of {buffer.alignment} bytes")


def check_agree(programs: Sequence[HostProgram]) -> None:
    """Raise Unsupported where the plans for different targets have different arguments."""
    first = programs[0]
    for other in programs[1:]:
        if views_of(other) != views_of(first) or other.aliases != first.aliases:
            raise Unsupported(
                f"`{first.name}` cannot be emitted as C for these targets: only some return an "
                "output as a view",
                help="compile for one target",
            )


def views_of(program: HostProgram) -> tuple[str, ...]:
    """Return the outputs that are parts of other memory, without being written in place."""
    from fusec.hostir.instructions import Alias

    in_place = {output for output, _ in program.aliases}
    aliases = (i.buffer for i in program.instructions if isinstance(i, Alias))
    return tuple(a for a in aliases if a in program.outputs and a not in in_place)
