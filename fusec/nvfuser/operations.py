"""`fd.ops` of nvFuser's definitions: arguments as in nvFuser, each call recorded as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fusec.nvfuser.arguments import as_taken, without_gradient
from fusec.nvfuser.embedding import embedding_with_norm
from fusec.ops import TABLE
from fusec.parse.dsl.operations import Operations

if TYPE_CHECKING:
    from fusec.nvfuser.definition import FusionDefinition


class RecordedOperations(Operations):
    """The operations of a definition, each call recorded as text."""

    _definition: FusionDefinition

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = super().__getattr__(name)
        noted = self._definition.calls
        if method.__name__ not in TABLE:
            return method  # a name of PyTorch's: the operations that it calls are recorded

        def recorded(*args: Any, **options: Any) -> Any:
            def run() -> Any:
                taken, named = as_taken(self._definition, method.__name__, args, options)
                if named.get("max_norm") is None:
                    return method(*taken, **named)
                return embedding_with_norm(self._definition, **without_gradient(named))

            return noted.take(lambda r: noted.operation(method.__name__, args, options, r), run)

        recorded.__name__, recorded.__doc__ = name, method.__doc__
        return recorded
