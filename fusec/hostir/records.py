"""Frozen dataclasses to JSON and back: keys and types are checked, errors name the place.

Where one of several classes is expected, the class is written as a tag in `is`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from fusec.diagnostics import FusecError
from fusec.hostir.sizes import parse_dim
from fusec.ir import dtype as dtypes
from fusec.ir.dim import Dim
from fusec.ir.dtype import DType

OMITTED: Mapping[str, Any] = MappingProxyType({"omitted": True})
"""Metadata of a field that is omitted where it has its default."""
INTEGERS = range(-(2**63), 2**64)
_SHOWN = 40
_NAMES = {str: "a text", int: "an integer", float: "a number", bool: "true or false"}


class Records:
    """Writes and reads records; `tags` names the classes in unions."""

    def __init__(self, tags: Mapping[type, str]) -> None:
        """Store the tags."""
        self._tags = tags
        self._tagged = {tag: kind for kind, tag in tags.items()}

    def encode(self, value: Any) -> Any:
        """Return a value as plain data for json.dumps."""
        if isinstance(value, Dim):
            return value.value if value.is_const else str(value)
        if isinstance(value, DType):
            return value.name
        if isinstance(value, Mapping):
            items = cast("Mapping[str, Any]", value).items()
            return {key: self.encode(entry) for key, entry in items}
        if isinstance(value, (tuple, list)):
            return [self.encode(entry) for entry in cast("tuple[Any, ...]", value)]
        if not is_dataclass(value) or isinstance(value, type):
            return value
        tag = self._tags.get(type(value))
        record: dict[str, Any] = {} if tag is None else {"is": tag}
        for field in _written(type(value)):
            own = getattr(value, field.name)
            if not (_may_lack(field) and own == _default(field)):
                record[_key(field)] = self.encode(own)
        return record

    def decode(
        self, kind: Any, data: Any, place: str, scalars: frozenset[str] = frozenset()
    ) -> Any:
        """Return the `kind` that data describes; FusecError names the place of an error.

        Sizes in scalar inputs, named in `scalars`, may be less than 1.
        """
        if kind is Any:
            return data
        if kind is Dim:
            return _dim(data, place, scalars)
        if kind is DType:
            return _dtype(data, place)
        if kind in _NAMES:
            return _plain(kind, data, place)
        origin, inner = get_origin(kind), get_args(kind)
        if origin in (Union, UnionType):
            return self._one_of(inner, data, place, scalars)
        if origin is tuple:
            return self._tuple(inner, data, place, scalars)
        if origin is Mapping:
            given = _object(data, place)
            return {
                key: self.decode(inner[1], entry, f"{place}[{key}]", scalars)
                for key, entry in given.items()
            }
        return self._record(kind, data, place, scalars)

    def _one_of(
        self, kinds: tuple[Any, ...], data: Any, place: str, scalars: frozenset[str]
    ) -> Any:
        if data is None and NoneType in kinds:
            return None
        records = [k for k in kinds if k in self._tags]
        if records:
            tag = _object(data, place).get("is")
            kind = self._tagged.get(tag) if isinstance(tag, str) else None
            if kind not in records:
                names = ", ".join(self._tags[k] for k in records)
                raise wrong(f"{place}.is", f"one of {names}", tag)
            return self._record(kind, data, place, scalars)
        others = [k for k in kinds if k is not NoneType]
        for kind in others:
            try:
                return self.decode(kind, data, place, scalars)
            except FusecError:
                if kind is others[-1]:
                    raise
        raise wrong(place, "nothing", data)

    def _tuple(
        self, inner: tuple[Any, ...], data: Any, place: str, scalars: frozenset[str]
    ) -> tuple[Any, ...]:
        if not isinstance(data, list):
            raise wrong(place, "a list", data)
        items = cast("list[Any]", data)
        kinds = (inner[0],) * len(items) if inner[-1] is Ellipsis else inner
        if len(items) != len(kinds):
            raise FusecError(f"{place}: expected {len(kinds)} entries, found {len(items)}")
        pairs = enumerate(zip(kinds, items, strict=True))
        return tuple(self.decode(k, item, f"{place}[{n}]", scalars) for n, (k, item) in pairs)

    def _record(self, kind: Any, data: Any, place: str, scalars: frozenset[str]) -> Any:
        given = dict(_object(data, place))
        dot = f"{place}." if place else ""
        tag = self._tags.get(kind)
        if tag is not None and given.pop("is", None) != tag:
            raise wrong(f"{dot}is", tag, _object(data, place).get("is"))
        values: dict[str, Any] = {}
        for field in _written(kind):
            key = _key(field)
            if key in given:
                hint = _hints(kind)[field.name]
                values[field.name] = self.decode(hint, given.pop(key), f"{dot}{key}", scalars)
            elif not _may_lack(field):
                raise FusecError(f"{place or 'it'} has no `{key}`")
        for key in given:
            raise FusecError(f"{place or 'it'} has an unknown key `{key}`")
        return kind(**values)


def wrong(place: str, expected: str, found: Any) -> FusecError:
    """Return the error about a value that is not what was expected."""
    text = json.dumps(found)
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return FusecError(f"{place}: expected {expected}, found {shown}")


@cache
def _written(kind: Any) -> tuple[Field[Any], ...]:
    """Return the fields of a record that are written: those that take part in comparison."""
    return tuple(f for f in fields(kind) if f.compare)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _key(field: Field[Any]) -> str:
    """Return a field's key: `from_` is written as `from`, a keyword of Python."""
    return field.name.rstrip("_")


def _may_lack(field: Field[Any]) -> bool:
    return bool(field.metadata.get("omitted"))


def _default(field: Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _object(data: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise wrong(place or "it", "an object", data)
    return cast("dict[str, Any]", data)


def _plain(kind: Any, data: Any, place: str) -> Any:
    if type(data) is not kind:
        raise wrong(place, _NAMES[kind], data)
    if kind is int and data not in INTEGERS:
        raise FusecError(f"{place}: the number does not fit in 64 bits")
    return data


def _dim(data: Any, place: str, scalars: frozenset[str]) -> Dim:
    if isinstance(data, bool) or not isinstance(data, (int, str)):
        raise wrong(place, "a size", data)
    if isinstance(data, int) and data not in INTEGERS:
        raise FusecError(f"{place}: the number does not fit in 64 bits")
    try:
        return parse_dim(data, scalars)
    except FusecError as error:
        raise FusecError(f"{place}: {error.diagnostic.message}") from None


def _dtype(data: Any, place: str) -> DType:
    if not isinstance(data, str) or data not in dtypes.DTYPES:
        raise wrong(place, "an element type", data)
    return dtypes.DTYPES[data]
