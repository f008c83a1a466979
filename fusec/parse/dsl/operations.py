"""`fd.ops`: the operations of the table as methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from fusec.ops import TABLE
from fusec.parse.dsl.foreign import function_named
from fusec.parse.dsl.place import placed
from fusec.parse.dsl.pytorch_calls import as_pytorch
from fusec.parse.dsl.refused import find_method, of_definition
from fusec.parse.dsl.running import UPDATING, call_updating

if TYPE_CHECKING:
    from fusec.parse.dsl.definition import FusionDefinition
    from fusec.parse.dsl.typed import Functions
else:
    Functions = object  # the types of operations are only in typed.pyi

RETURNED = {
    "shape": "Vector", "size": "Scalar", "scaled_mm": "tuple[Tensor, None, None]",
    "grouped_mm": "Any",
}  # fmt: skip
"""Result types of methods, where these do not return one tensor for each result."""


class Operations(Functions):
    """One method for every operation of the table."""

    def __init__(self, definition: FusionDefinition) -> None:
        """Offer the operations on `definition`."""
        self._definition = definition

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        known = name if name in TABLE else name.rstrip("_")
        if known not in TABLE and hasattr(type(self._definition), name):
            with placed() as place:
                raise of_definition(name, place)
        if known not in TABLE:
            with placed():
                function = function_named(self, name)
            if function is not None:
                return function
        with placed():
            op = find_method(known)

        def method(*args: Any, **options: Any) -> Any:
            if op.name in UPDATING:
                return call_updating(self._definition, op, args, options)
            with placed():
                other = as_pytorch(self, op, args, options)
            if other is not None:
                return other()
            result = self._definition.call(op.name, args, options)
            # nvFuser returns the scales of a result along with it; fusec has results without
            # scales.
            several = op.name == "scaled_mm" or (op.name == "grouped_mm" and "scale1" in options)
            several = several or (op.name == "grouped_mm" and len(args) > 3)
            return (result, None, None) if several else result

        method.__name__, method.__doc__ = op.name, op.doc
        return method

    def __dir__(self) -> Iterable[str]:
        return sorted(TABLE)
