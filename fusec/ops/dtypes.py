"""Rules for the types of results and for the types in which operations compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusec.codes.shapes import CONDITION, NEEDS_COMPLEX, NEEDS_INTEGERS, NOT_FOR_BOOL
from fusec.codes.unsupported import NOT_IN_HALF
from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError, Instead, Unsupported
from fusec.ir.dtype import BOOL, F32, F64, DType, category, complex_of, promote, result_type
from fusec.ir.graph import Const, Operand, Value

Operands = tuple[Operand, ...]


def dtype_of(operand: Operand) -> DType:
    """Return the element type of an operand."""
    return operand.type.dtype


def common_type(name: str, operands: Sequence[Operand]) -> DType:
    """Return the type to which operands promote: scalars and 0-dim tensors are weak, as in PyTorch.

    Among scalars, a literal is weaker than a value, so that `eps * 2` keeps the type of eps.
    """
    tensors = [dtype_of(o) for o in operands if o.type.shape]
    zero_dim = [dtype_of(o) for o in operands if o.type.shape == ()]
    scalars = [dtype_of(o) for o in operands if o.type.shape is None]
    if tensors or zero_dim:
        return result_type(tensors, zero_dim, scalars)
    values = [dtype_of(o) for o in operands if isinstance(o, Value)]
    literals = [dtype_of(o) for o in operands if not isinstance(o, Value)]
    best = _fold(values)
    weak = _fold(literals)
    if best is None or (weak is not None and category(weak) > category(best)):
        best = weak
    assert best is not None
    return best


def _fold(dtypes: Sequence[DType]) -> DType | None:
    best: DType | None = None
    for dtype in dtypes:
        best = dtype if best is None else promote(best, dtype)
    return best


def as_float(dtype: DType, *, scalar: bool) -> DType:
    """Return `dtype` if it is a float or complex; else f32, or f64 for a scalar."""
    if dtype.is_rounded:
        return dtype
    return F64 if scalar else F32


def is_scalar_call(operands: Sequence[Operand]) -> bool:
    """Return whether all operands are scalars, so that the result is one, too."""
    return all(o.type.shape is None for o in operands)


@dataclass(frozen=True)
class DTypeRule:
    """How an elementwise operation types its result and its computation.

    result: the result's type from the operation's name and operands.
    compute: the type in which every operand that takes part in promotion is computed.
    fixed: operands with a type of their own (the condition of where).
    """

    result: Callable[[str, Operands], DType]
    compute: Callable[[Operands, DType], DType]
    fixed: tuple[DType | None, ...] = ()

    def computes(self, operands: Operands, result: DType) -> tuple[DType, ...]:
        """Return the type that each operand is converted to."""
        shared = self.compute(operands, result)
        fixed = (*self.fixed, *(None,) * (len(operands) - len(self.fixed)))
        return tuple(shared if own is None else own for own in fixed)

    def promoted(self, operands: Sequence[Operand]) -> Operands:
        """Return the operands that take part in promotion."""
        fixed = (*self.fixed, *(None,) * (len(operands) - len(self.fixed)))
        return tuple(o for o, own in zip(operands, fixed, strict=True) if own is None)


def _in_result(operands: Operands, result: DType) -> DType:
    return result.compute


def _in_common(operands: Operands, result: DType) -> DType:
    return common_type("", operands).compute


def _in_float(operands: Operands, result: DType) -> DType:
    shared = common_type("", operands)
    return as_float(shared, scalar=is_scalar_call(operands)).compute


def _promoted(name: str, operands: Operands) -> DType:
    return common_type(name, operands)


def _floating(name: str, operands: Operands) -> DType:
    return as_float(common_type(name, operands), scalar=is_scalar_call(operands))


_OF_BOOLS = {
    "neg": Instead("~{x}", why="the opposite of a bool is `~`"),
    "sub": Instead("{a} & ~{b}", why="bools have no difference: true where `a` is and `b` is not"),
}


def _number(name: str, operands: Operands) -> DType:
    dtype = common_type(name, operands)
    if dtype == BOOL:
        raise FusecError(
            f"`{name}` is not defined for bool",
            help="cast the operands to i32, or use `&`, `|`, `^` and `~`",
            code=NOT_FOR_BOOL,
            instead=_OF_BOOLS.get(name),
        )
    return dtype


def _full_width(name: str, operands: Operands) -> DType:
    dtype = _floating(name, operands)
    if dtype.is_half:
        raise Unsupported(
            f"`{name}` of {dtype}: 16-bit floats are computed in f32, where the spacing of "
            "values differs",
            code=NOT_IN_HALF,
        )
    return dtype


def _single(name: str, operands: Operands) -> DType:
    dtype = _floating(name, operands)
    if dtype.compute != F32:
        raise Unsupported(f"`{name}` of {dtype}: expected f32 or a 16-bit float")
    return dtype


_BITS = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}


def _of_bits(name: str, operands: Operands) -> Instead | None:
    """Return the likely meaning of a bitwise operation on floats: a condition or a power."""
    if name not in _BITS or len(operands) != 2:
        return None
    types = [dtype_of(o) for o in operands]
    if types.count(BOOL) == 1:
        a, b = ("{a}", "({b} != 0)") if types[0] == BOOL else ("({a} != 0)", "{b}")
        place = 1 if types[0] == BOOL else 0
        if types[place].is_float and not isinstance(operands[place], Const):
            why = f"`{_BITS[name]}` takes two bools or two integers, and one operand is a float"
            return Instead(f"{a} {_BITS[name]} {b}", why=why)
    places = [k for k, o in enumerate(operands) if isinstance(o, Const)]
    if name != "bitwise_xor" and len(places) == 1 and BOOL not in types:
        sides = ["cast({a}, i32)", "cast({b}, i32)"]
        sides[places[0]] = "{b}" if places[0] else "{a}"
        if not types[places[0]].is_float:
            return Instead(
                f" {_BITS[name]} ".join(sides), why="bits are of integers, so cast the float"
            )
    if name == "bitwise_xor" and BOOL not in types:
        return Instead("{a} ** {b}", why="`^` is exclusive or, as in Python; a power is `a ** b`")
    return None


def _whole(name: str, operands: Operands) -> DType:
    dtype = common_type(name, operands)
    if dtype.is_float:
        raise FusecError(
            f"`{name}` needs integers or bools, got {dtype}",
            help="cast the operand",
            code=NEEDS_INTEGERS,
            instead=_of_bits(name, operands),
        )
    return dtype


def _integer(name: str, operands: Operands) -> DType:
    dtype = common_type(name, operands)
    if not dtype.is_integer:
        raise FusecError(
            f"`{name}` needs integers, got {dtype}",
            help="cast the operand first",
            code=NEEDS_INTEGERS,
        )
    return dtype


def _boolean(name: str, operands: Operands) -> DType:
    common_type(name, operands)
    return BOOL


def _real(name: str, operands: Operands) -> DType:
    return _number(name, operands).part


def _part(name: str, operands: Operands) -> DType:
    dtype = dtype_of(operands[0])
    if not dtype.is_complex:
        raise FusecError(f"`{name}` needs complex numbers, got {dtype}", code=NEEDS_COMPLEX)
    return dtype.part


def _joined(name: str, operands: Operands) -> DType:
    dtype = _floating(name, operands)
    if dtype.is_complex:
        raise FusecError(f"`{name}` joins real numbers, got {dtype}")
    return complex_of(dtype)


PROMOTE = DTypeRule(_promoted, _in_result)
"""The promoted type, bool included."""
NUMBER = DTypeRule(_number, _in_result)
"""The promoted type; bool is rejected."""
FLOAT = DTypeRule(_floating, _in_result)
"""The promoted type; integers and bools become floats."""
FULL_WIDTH = DTypeRule(_full_width, _in_result)
"""As FLOAT; 16-bit floats are rejected."""
SINGLE = DTypeRule(_single, _in_result)
"""As FLOAT; types not computed in f32 are rejected."""
WHOLE = DTypeRule(_whole, _in_result)
"""The promoted type; floats are rejected."""
INTEGER = DTypeRule(_integer, _in_result)
"""The promoted type; floats and bool are rejected."""
COMPARE = DTypeRule(_boolean, _in_common)
"""Bool, computed in the promoted type."""
CLASSIFY = DTypeRule(_boolean, _in_float)
"""Bool, computed in the promoted type as a float."""
MAGNITUDE = DTypeRule(_real, lambda operands, result: common_type("", operands).compute)
"""The promoted type, for complex numbers that of their parts; bool is rejected."""
PART = DTypeRule(_part, lambda operands, result: dtype_of(operands[0]))
"""The type of a part; only complex numbers have parts."""
JOIN = DTypeRule(_joined, lambda operands, result: result.part)
"""The complex type whose parts are of the promoted type as a float."""
LOGICAL = DTypeRule(_boolean, lambda operands, result: BOOL)
"""Bool, computed from the operands as bools: nonzero is true."""


def _selected(name: str, operands: Operands) -> DType:
    return common_type(name, operands[1:])


def _with_condition(operands: Operands) -> Instead | None:
    """Return a `where` with a bool condition: the operand that is one, or a comparison."""
    places = [k for k in (1, 2) if dtype_of(operands[k]) == BOOL]
    if len(places) == 1:
        names = ["condition", "x", "y"]
        order = [places[0], *(k for k in range(3) if k != places[0])]
        changed = {n: f"{{{names[k]}}}" for n, k in zip(names, order, strict=True) if n != names[k]}
        return Instead(arguments=changed, why="the condition comes first")
    if isinstance(operands[0], Const):
        return None
    return Instead(
        arguments={"condition": "{condition} != 0"}, why="compare it, or cast it to bool"
    )


def _condition_checked(name: str, operands: Operands) -> DType:
    if dtype_of(operands[0]) != BOOL:
        found = dtype_of(operands[0])
        raise FusecError(
            f"the condition of `{name}` must be bool, got {found}",
            help="compare it, as in `mask != 0`, or cast it to bool",
            code=CONDITION,
            instead=_with_condition(operands) if name == "where" else None,
        )
    return _selected(name, operands)


SELECT = DTypeRule(_condition_checked, _in_result, fixed=(BOOL,))
"""The promoted type of all operands but the first, which is a bool."""
