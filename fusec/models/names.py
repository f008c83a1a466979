"""Names of values: the path of the module, and the operation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from fusec.models.graph import ModelGraph, ModelNode
from fusec.ops.names import fresh_name, is_name
from fusec.ops.table import TABLE
from fusec.parse.sizes import FUNCTIONS

_FOREIGN = re.compile(r"[^A-Za-z0-9]+")
MOST_LETTERS = 200


class Namer:
    """Assigns a unique name to each value of a graph."""

    def __init__(self, graph: ModelGraph) -> None:
        """Name the inputs; dims, operations and reserved words of fusion files are taken."""
        self.taken = {*TABLE, *FUNCTIONS, *graph.symbols}
        paths = [n.module for n in graph.nodes] + [i.key.rpartition(".")[0] for i in graph.inputs]
        self._prefix = _common([p.split(".") for p in paths if p])
        self._lines = Counter(n.module for n in graph.nodes)
        self.inputs = {i.name: self._fresh(self._words(i.key)) for i in graph.inputs}

    def result(self, node: ModelNode, number: int) -> str:
        """Return a name for a result of a node."""
        alone = self._lines[node.module] == 1 and self._words(node.module)
        word = [] if alone else [_short(node.operation)]
        several = [str(number)] if len(node.results) > 1 else []
        return self._fresh([*self._words(node.module), *word, *several])

    def inner(self, node: ModelNode, word: str) -> str:
        """Return a name for an intermediate value of a node."""
        return self._fresh([*self._words(node.module), _short(node.operation), word])

    def _words(self, path: str) -> list[str]:
        parts = path.split(".") if path else []
        rest = parts[len(self._prefix) :] if parts[: len(self._prefix)] == self._prefix else parts
        return rest or parts[-1:]

    def _fresh(self, words: Iterable[str]) -> str:
        plain = "_".join(filter(None, (_FOREIGN.sub("_", w).strip("_") for w in words)))
        plain = plain[:MOST_LETTERS].strip("_") or "value"
        if not is_name(plain) or plain[0].isdigit():
            plain = f"v_{plain}" if plain[0].isdigit() else f"{plain}_"
        return fresh_name(self.taken, plain)


def _short(operation: str) -> str:
    """Return the name of an operation's results."""
    return operation if len(operation) < _LONG else _SHORT.get(operation[:_LONG], operation)


_SHORT = {"_scaled_dot_product_": "attention", "scaled_dot_product_a": "attention"}
_LONG = 20


def _common(paths: Sequence[Sequence[str]]) -> list[str]:
    """Return the common prefix of all paths."""
    if not paths:
        return []
    listed = sorted(map(list, paths))
    first, last = listed[0], listed[-1]
    differ = (k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    return first[: next(differ, min(len(first), len(last)))]
