"""Names of kernels, parameters and locals: the user's own, made unique by a word, then a digit."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain, count

from fusec.kernel.ctext import C_NAMES, TEMPLATE_NAMES, identifier
from fusec.kernel.ctext import word as c_word
from fusec.ops import names as ops

KEYWORDS = ops.KEYWORDS | {"INFINITY", "NAN"}
"""Forbidden names: words of C++ and CUDA, which are forbidden for users, too, and macros."""


def camel(name: str) -> str:
    """Return a name in the form of a type's: `sum_1` as `Sum1`."""
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


_MADE: ContextVar[set[str] | None] = ContextVar("made", default=None)


@contextmanager
def names_made() -> Generator[set[str]]:
    """Collect the names allocated inside the block: those derived from names of a fusion."""
    made: set[str] = set()
    token = _MADE.set(made)
    try:
        yield made
    finally:
        _MADE.reset(token)


class Names:
    """Allocates C identifiers, each unique in a block and in its enclosing blocks.

    A block is a loop body: its names are available again in the next one. No name shadows another.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        """Start with names that are already in use everywhere."""
        self.taken = {*KEYWORDS, *C_NAMES, *taken}
        self._inside: dict[int, set[str]] = {}

    def fresh(self, base: str, word: str = "value", block: int | None = None) -> str:
        """Return `base`, or `base_word`, or `base_word2` ..., whichever is available first.

        block: the number of the loop body that is the name's scope; without one it is the kernel.
        """
        root = c_word(base)
        if root[0].isdigit():
            root = f"v{root}"
        longer = root if root.endswith(f"_{word}") else f"{root}_{word}"
        numbered = (f"{longer}{number}" for number in count(2))
        name = next(n for n in chain((root, longer), numbered) if self._is_free(n, block))
        (self.taken if block is None else self._inside.setdefault(block, set())).add(name)
        made = _MADE.get()
        if made is not None:
            made.add(name)
        return name

    def _is_free(self, name: str, block: int | None) -> bool:
        inside = self._inside.values() if block is None else [self._inside.get(block, set())]
        return name not in self.taken and not any(name in names for names in inside)


def parameter_names(parameters: Iterable[str]) -> Names:
    """Return a name allocator that knows a kernel's parameters and the templates' own names."""
    taken = map(identifier, parameters)
    return Names([*taken, *sorted(TEMPLATE_NAMES)])
