"""Dataclasses as in the standard library, but without compiling methods on import.

The standard decorator compiles the source of six methods for each class, which took two fifths of
the time of `fusec check`; half of the classes have no instance. Here `__init__` is compiled for the
first instance of a class, and the other methods are closures over its fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, asdict, field, fields
from functools import cache, partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["MISSING", "asdict", "dataclass", "field", "fields", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass, replace
else:

    def replace(record, /, **changes):
        """Return a record with other values of some fields, as `dataclasses.replace` does."""
        for name in _init_names(type(record)):
            if name not in changes:
                changes[name] = getattr(record, name)
        return type(record)(**changes)

    def dataclass(kind=None, /, *, frozen=False, eq=True, kw_only=False):
        """Make a class a dataclass; the parameters are those of `dataclasses.dataclass`."""
        decorate = partial(_decorated, frozen=frozen, eq=eq, kw_only=kw_only)
        return decorate if kind is None else decorate(kind)


def _decorated(kind: type[Any], *, frozen: bool, eq: bool, kw_only: bool) -> type[Any]:
    """Return a class with fields, and with the methods that it does not define itself."""
    own = {name for name in ("__init__", "__repr__", "__eq__", "__hash__") if vars(kind).get(name)}
    dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(kind)
    methods: dict[str, Any] = {"__init__": _first_init(kind, frozen), "__repr__": _repr(kind)}
    if eq:
        compared = _values_of([f.name for f in fields(kind) if f.compare])
        hashed = [f.name for f in fields(kind) if (f.compare if f.hash is None else f.hash)]
        methods["__eq__"] = _eq(compared)
        methods["__hash__"] = _hash(_values_of(hashed)) if frozen else None
    if frozen:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    for name in methods.keys() - own:
        setattr(kind, name, methods[name])
    return kind


@cache
def _init_names(kind: type[Any]) -> tuple[str, ...]:
    """Return the fields that `__init__` takes."""
    return tuple(f.name for f in fields(kind) if f.init)


def _values_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns the values of some attributes."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _eq(values: Callable[[Any], object]) -> Callable[[Any, object], bool]:
    def __eq__(self: Any, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return self is other or values(self) == values(other)

    return __eq__


def _hash(values: Callable[[Any], object]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _repr(kind: type[Any]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:
        values = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(kind) if f.repr)
        return f"{type(self).__qualname__}({', '.join(values)})"

    return __repr__


def _refuse_to_set(record: Any, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(record: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _first_init(kind: type[Any], frozen: bool) -> Callable[..., None]:
    """Return an `__init__` that is replaced by a compiled one at its first call."""

    def __init__(self: Any, *given: Any, **named: Any) -> None:
        kind.__init__ = _compiled_init(kind, frozen)
        kind.__init__(self, *given, **named)

    return __init__


def _compiled_init(kind: type[Any], frozen: bool) -> Callable[..., None]:
    """Return an `__init__` of a parameter for each field, in whose text each value has a name."""
    names: dict[str, object] = {"__missing": MISSING, "__put": object.__setattr__}
    plain, by_name = ["self"], ["*"]
    lines: list[str] = []
    for f in fields(kind):
        value = f.name
        if f.default_factory is not MISSING:
            names[f"__make_{f.name}"] = f.default_factory
            value = f"__make_{f.name}()"
        if f.init:
            (by_name if f.kw_only else plain).append(_parameter(f, names))
            if f.default_factory is not MISSING:
                value = f"{value} if {f.name} is __missing else {f.name}"
        elif f.default_factory is MISSING:
            continue
        lines.append(f"__put(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
    if hasattr(kind, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = plain + (by_name if len(by_name) > 1 else [])
    text = f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"])
    exec(text, names)
    init: Any = names["__init__"]
    init.__qualname__ = f"{kind.__qualname__}.__init__"
    return init


def _parameter(f: Field[Any], names: dict[str, object]) -> str:
    """Return a field's parameter; its default gets a name."""
    if f.default_factory is not MISSING:
        return f"{f.name}=__missing"
    if f.default is MISSING:
        return f.name
    names[f"__default_{f.name}"] = f.default
    return f"{f.name}=__default_{f.name}"
