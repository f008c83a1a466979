"""Names of kernels, parameters and locals: the user's own, made unique by a word, then a digit."""

from __future__ import annotations

from collections.abc import Iterable

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
    """Hands out C identifiers, each once in a kernel."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        """Start with names that are already in use."""
        self.taken = {*KEYWORDS, *C_NAMES, *taken}

    def fresh(self, base: str, word: str = "value") -> str:
        """Return `base`, or `base_word`, or `base_word2` ..., whichever is free first."""
        root = c_word(base)
        if root[0].isdigit():
            root = f"v{root}"
        candidates = [root, root if root.endswith(f"_{word}") else f"{root}_{word}"]
        for name in candidates:
            if name not in self.taken:
                self.taken.add(name)
                return name
        number = 2
        while f"{candidates[-1]}{number}" in self.taken:
            number += 1
        self.taken.add(f"{candidates[-1]}{number}")
        return f"{candidates[-1]}{number}"
