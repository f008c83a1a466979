"""Names of kernels, parameters and locals: the user's own, made unique by a word, then a digit."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, count

from fusec.codegen.ctext import C_NAMES
from fusec.codegen.ctext import word as c_word

KEYWORDS = frozenset(
    [
        "alignas",
        "alignof",
        "and",
        "asm",
        "auto",
        "bool",
        "break",
        "case",
        "catch",
        "char",
        "class",
        "const",
        "constexpr",
        "const_cast",
        "continue",
        "decltype",
        "default",
        "delete",
        "do",
        "double",
        "dynamic_cast",
        "else",
        "enum",
        "explicit",
        "export",
        "extern",
        "false",
        "float",
        "for",
        "friend",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "mutable",
        "namespace",
        "new",
        "noexcept",
        "not",
        "nullptr",
        "operator",
        "or",
        "private",
        "protected",
        "public",
        "register",
        "reinterpret_cast",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "static_assert",
        "static_cast",
        "struct",
        "switch",
        "template",
        "this",
        "throw",
        "true",
        "try",
        "typedef",
        "typeid",
        "typename",
        "union",
        "unsigned",
        "using",
        "virtual",
        "void",
        "volatile",
        "wchar_t",
        "while",
        "xor",
        "fusec",
        "threadIdx",
        "blockIdx",
        "blockDim",
        "gridDim",
        "warpSize",
        "INFINITY",
        "NAN",
    ]
)


class Names:
    """Hands out C identifiers, each once in a block and in the blocks around it.

    A block is a loop body: names of one are free again in the next. No name hides another.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        """Start with names that are already in use everywhere."""
        self.taken = {*KEYWORDS, *C_NAMES, *taken}
        self._inside: dict[int, set[str]] = {}

    def fresh(self, base: str, word: str = "value", block: int | None = None) -> str:
        """Return `base`, or `base_word`, or `base_word2` ..., whichever is free first.

        block: the number of the loop body that alone sees the name; without one the kernel does.
        """
        root = c_word(base)
        if root[0].isdigit():
            root = f"v{root}"
        longer = root if root.endswith(f"_{word}") else f"{root}_{word}"
        numbered = (f"{longer}{number}" for number in count(2))
        name = next(n for n in chain((root, longer), numbered) if self._is_free(n, block))
        (self.taken if block is None else self._inside.setdefault(block, set())).add(name)
        return name

    def _is_free(self, name: str, block: int | None) -> bool:
        inside = self._inside.values() if block is None else [self._inside.get(block, set())]
        return name not in self.taken and not any(name in names for names in inside)
