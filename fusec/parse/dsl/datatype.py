"""nvFuser's DataType, and every spelling of an element type that a script may use."""

from __future__ import annotations

from enum import Enum, EnumMeta
from typing import Any

from fusec.diagnostics import FusecError
from fusec.ir import dtype as dtypes
from fusec.ir.dtype import DType
from fusec.ops.find import nearest
from fusec.parse.dsl.place import placed
from fusec.parse.dsl.refused import MissingName


class _Names(EnumMeta):
    """Suggests the nearest element type if a script uses an unknown name."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        names = [n for n in DataType.__members__ if n != "Null"]
        try:
            found = dtypes.find(name.lower())
            meant = next((n for n in names if DataType[n].value == found.name), None)
        except FusecError:
            meant = nearest(name, names)
        help = f"did you mean `DataType.{meant}`?" if meant else f"one of {', '.join(names)}"
        with placed():
            raise MissingName(f"DataType has no `{name}`", help=help)


class DataType(Enum, metaclass=_Names):
    """The element types by nvFuser's names; Null means none."""

    Double = "f64"
    Float = "f32"
    Half = "f16"
    BFloat16 = "bf16"
    Float8_e4m3fn = "f8e4m3"
    Float8_e5m2 = "f8e5m2"
    Float8_e8m0fnu = "f8e8m0"
    Float4_e2m1fn = "f4e2m1"
    Float4_e2m1fn_x2 = "f4e2m1 x2"
    Int = "i64"
    Int32 = "i32"
    Short = "i16"
    Char = "i8"
    UInt64 = "u64"
    UInt32 = "u32"
    UInt16 = "u16"
    Byte = "u8"
    Index = "i64 index"
    Bool = "bool"
    ComplexFloat = "c64"
    ComplexDouble = "c128"
    Null = ""

    def __call__(self) -> DataType:
        """Return the type itself: nvFuser spells a tensor's type `t.dtype()`, others `t.dtype`."""
        return self

    def __repr__(self) -> str:
        return f"DataType.{self.name}"

    __str__ = __repr__


def of_dtype(dtype: DType) -> DataType:
    """Return the DataType of an element type."""
    return DataType(dtype.name)


_PYTHON = {bool: dtypes.BOOL, int: dtypes.I64, float: dtypes.F64, complex: dtypes.C128}


def as_dtype(value: Any) -> DType | None:
    """Return the element type of a DataType, a name, a NumPy or PyTorch dtype."""
    if value is None or value is DataType.Null:
        return None
    if isinstance(value, DType):
        return value
    if isinstance(value, DataType):
        return dtypes.find(value.value.split()[0])
    if isinstance(value, type) and value in _PYTHON:
        return _PYTHON[value]
    own = getattr(value, "fusec_dtype", None)
    if isinstance(own, DType):
        return own
    text = str(value) if not isinstance(value, type) else value.__name__
    if "." in text:
        text = text.rsplit(".", 1)[1]
    try:
        return dtypes.find(text)
    except FusecError as error:
        raise FusecError(f"{value!r} is not an element type", help=error.diagnostic.help) from None


def need_dtype(value: Any) -> DType:
    """Return the element type that a script specifies; raise FusecError if there is none."""
    dtype = as_dtype(value)
    if dtype is None:
        raise FusecError("expected an element type, not DataType.Null")
    return dtype


def is_device(value: Any) -> bool:
    """Return whether a value is a device of PyTorch, or the name of one."""
    if isinstance(value, str):
        return value.partition(":")[0] in ("cuda", "cpu")
    return type(value).__name__ == "device"
