"""Dataclasses as in the standard library, but without compiling methods on import.

The standard decorator compiles the text of six methods for each class, and half of the classes make
no instance. Here fields are found without evaluating annotations, `__init__` is compiled for
classes with many instances, and the other methods are closures over the fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import MISSING, Field, FrozenInstanceError, asdict, field, fields
from functools import cache, partial
from itertools import count
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["MISSING", "asdict", "dataclass", "field", "fields", "replace"]

FEW_FIELDS = 3
"""Fields up to which `__init__` of a frozen class sets attributes one by one.

More are stored in `__dict__`: of seven in 0.4 us rather than 1.2, while each later read takes 20 ns
rather than 5 (Python 3.11).
"""

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


@dataclasses.dataclass(init=False, repr=False, eq=False)
class _Standard:
    """What the standard decorator marks classes and fields with."""

    x: int


_PARAMETERS: Any = vars(_Standard)["__dataclass_params__"]
_FIELD_TYPE: Any = vars(_Standard)["__dataclass_fields__"]["x"]._field_type


def _decorated(kind: type[Any], *, frozen: bool, eq: bool, kw_only: bool) -> type[Any]:
    """Return a class with fields, and with the methods that it does not define itself."""
    own = {name for name in ("__init__", "__repr__", "__eq__", "__hash__") if vars(kind).get(name)}
    found = _fields_of(kind, kw_only)
    methods: dict[str, Any] = {"__init__": _counting_init(kind, frozen), "__repr__": _repr}
    if eq:
        compared = _values_of([f.name for f in found if f.compare])
        hashed = [f.name for f in found if (f.compare if f.hash is None else f.hash)]
        methods["__eq__"] = _eq(compared)
        methods["__hash__"] = _hash(_values_of(hashed)) if frozen else None
    if frozen:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    for name in methods.keys() - own:
        setattr(kind, name, methods[name])
    return kind


def _fields_of(kind: type[Any], kw_only: bool) -> Collection[Field[Any]]:
    """Find the fields of a class, and mark it as the standard decorator does."""
    found: dict[str, Field[Any]] = {}
    for base in kind.__mro__[-1:0:-1]:
        found |= vars(base).get("__dataclass_fields__", {})
    for name, annotation in kind.__annotations__.items():
        said = annotation if isinstance(annotation, str) else repr(annotation)
        if said.removeprefix("typing.").startswith("ClassVar"):
            continue
        if said.removeprefix("dataclasses.").startswith(("InitVar", "KW_ONLY")):
            raise TypeError(f"{kind.__qualname__}.{name}: {said} is not supported")
        found[name] = _field_of(kind, name, annotation, kw_only)
    kind.__dataclass_fields__, kind.__dataclass_params__ = found, _PARAMETERS
    kind.__match_args__ = tuple(n for n, f in found.items() if f.init and not f.kw_only)
    return found.values()


def _field_of(kind: type[Any], name: str, annotation: Any, kw_only: bool) -> Field[Any]:
    """Return the field of an annotation; the class's attribute becomes its default."""
    default = getattr(kind, name, MISSING)
    found: Any = default
    if not isinstance(default, Field):
        found = field(default=default)
    elif found.default is MISSING:
        delattr(kind, name)
    else:
        setattr(kind, name, found.default)
    if found.default.__class__.__hash__ is None:
        raise ValueError(f"mutable default of {kind.__qualname__}.{name}: use default_factory")
    if found.kw_only is MISSING:
        found.kw_only = kw_only
    found.name, found.type, found._field_type = name, annotation, _FIELD_TYPE
    return found


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


@recursive_repr()
def _repr(self: Any) -> str:
    values = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(values)})"


def _refuse_to_set(record: Any, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(record: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


COMPILE_AT = 24
"""The instance at which `__init__` is compiled: compiling takes as long as 24 loops over fields."""


def _counting_init(kind: type[Any], frozen: bool) -> Callable[..., None]:
    """Return an `__init__` that loops over the fields until a compiled one replaces it.

    That happens after many instances, or for wrong arguments, which then have Python's own message.
    """
    instances, put = count(1), object.__setattr__ if frozen else setattr

    def __init__(self: Any, *given: Any, **named: Any) -> None:
        known = _parameters_of(kind)
        arguments = dict(zip(known.positional, given, strict=False)) | named
        values = known.defaults | arguments
        if (
            next(instances) >= COMPILE_AT
            or len(arguments) < len(given) + len(named)
            or len(values) > len(known.defaults)
            or not known.required <= arguments.keys()
            or not known.hidden.isdisjoint(named)
        ):
            kind.__init__ = _compiled_init(kind, frozen)
            return kind.__init__(self, *given, **named)
        for name, make in known.factories:
            if values[name] is MISSING:
                values[name] = make()
        for name, value in values.items():
            put(self, name, value)
        if known.has_post_init:
            self.__post_init__()
        return None

    return __init__


class _Parameters:
    """What `__init__` of a class gives values: by default, and by position.

    required: those without a default; hidden: those that no argument gives.
    """

    def __init__(self, kind: type[Any]) -> None:
        found = [f for f in fields(kind) if f.init or f.default_factory is not MISSING]
        made = {f.name: f.default_factory for f in found if f.default_factory is not MISSING}
        self.defaults = {f.name: f.default for f in found}
        self.positional = [f.name for f in found if f.init and not f.kw_only]
        self.required = {n for n, d in self.defaults.items() if d is MISSING} - made.keys()
        self.hidden = {f.name for f in found if not f.init}
        self.factories = [*made.items()]
        self.has_post_init = hasattr(kind, "__post_init__")


_parameters_of = cache(_Parameters)


def _compiled_init(kind: type[Any], frozen: bool) -> Callable[..., None]:
    """Return an `__init__` of a parameter for each field, in whose text each value has a name."""
    names: dict[str, object] = {"__missing": MISSING, "__put": object.__setattr__}
    plain, by_name = ["self"], ["*"]
    store = "self.{} = {}"
    lines: list[str] = []
    if frozen:
        store = "__put(self, {!r}, {})"
        if len(fields(kind)) > FEW_FIELDS:
            store = "__at[{!r}] = {}"
            lines.append("__at = self.__dict__")
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
        lines.append(store.format(f.name, value))
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
