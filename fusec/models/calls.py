"""External calls: operations that fusec does not compile, implemented by the caller's functions.

A model is partitioned around them: `fusec.models.parts`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from fusec.dataclasses import dataclass
from fusec.models.graph import Argument, Ref, items_of


@dataclass(frozen=True)
class Call:
    """An external call. target: `aten.conv2d.default`; module and source: as of a node.

    positional and named: its arguments: a Ref to a tensor of the model, a number, a string, None,
    or a list of these. results: the names of its results, None for those that are not read; types:
    of these, as text.
    """

    name: str
    target: str
    positional: tuple[Argument, ...]
    named: Mapping[str, Argument]
    results: tuple[str | None, ...]
    types: tuple[str, ...] = ()
    module: str = ""
    source: str = ""

    @property
    def reads(self) -> list[str]:
        """Return the names of the tensors that it reads."""
        return list(dict.fromkeys(_names((*self.positional, *self.named.values()))))

    def bind(self, tensor: Callable[[str], Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and named arguments with arrays in place of tensor names."""

        def of(argument: Argument) -> Any:
            if isinstance(argument, Ref):
                return tensor(argument.name)
            items = items_of(argument)
            return argument if items is None else [of(item) for item in items]

        return [of(a) for a in self.positional], {n: of(a) for n, a in self.named.items()}


def _names(arguments: Collection[Argument]) -> Iterator[str]:
    for argument in arguments:
        if isinstance(argument, Ref):
            yield argument.name
        yield from _names(items_of(argument) or ())


def as_data(call: Call) -> dict[str, Any]:
    """Return a call as data of JSON; tensors are `{"tensor": NAME}`."""
    return {
        "call": call.target, "name": call.name, "module": call.module, "source": call.source,
        "positional": [_data(a) for a in call.positional],
        "named": {n: _data(a) for n, a in call.named.items()},
        "results": list(call.results), "types": list(call.types),
    }  # fmt: skip


def _data(argument: Argument) -> Any:
    items = items_of(argument)
    if items is not None:
        return [_data(item) for item in items]
    if isinstance(argument, Ref):
        return {"tensor": argument.name}
    if isinstance(argument, float):
        return {"float": repr(argument)}
    return argument


def from_data(data: Mapping[str, Any]) -> Call:
    """Return a call from its data; ValueError, TypeError and KeyError mean damaged data."""
    words = [data[key] for key in ("name", "call", "module", "source")]
    results, types = data["results"], data["types"]
    texts = (*words, *types, *(r for r in results if r is not None))
    if not all(isinstance(t, str) for t in texts) or len(types) != len(results):
        raise ValueError("a name is not text")
    positional = tuple(_from(a) for a in data["positional"])
    named = {str(n): _from(a) for n, a in data["named"].items()}
    name, target, module, source = words
    return Call(name, target, positional, named, tuple(results), tuple(types), module, source)


def _from(data: Any) -> Argument:
    if isinstance(data, list):
        return [_from(each) for each in data]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(data, dict):
        ((kind, value),) = data.items()  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(value, str) or kind not in ("tensor", "float"):
            raise ValueError("an argument is neither a tensor nor a number")
        return Ref(value) if kind == "tensor" else float(value)
    return data
