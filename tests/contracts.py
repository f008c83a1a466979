"""What operations return for special operands, as NumPy and PyTorch document or compute it.

PyTorch's values count where the two disagree. Nothing here is computed by fusec: a reference that
shares a kernel's mistake is found, too. `tests/codegen/test_contracts.py` applies the rows to
kernels (on the host) and to the reference; each operation has rows, or a reason for having none.
"""

from __future__ import annotations

from math import e, inf, nan, pi

MAX, LOWEST, STEP = "max", "lowest", "step"
"""The largest and the lowest number of the type, and its smallest positive one."""

Row = tuple[object, ...]
"""The operands, then the result."""

NUMPY = "NumPy: the function's documentation and C99 annex F, which it follows"
TORCH = "PyTorch: the function's documentation and its CPU kernels (2.14)"
CUDA = "CUDA C++ Programming Guide, and PTX ISA `cvt`"
OWN = "the operation's page: neither NumPy nor PyTorch defines it"

_EXPONENTIAL: tuple[Row, ...] = (
    (-inf, 0.0), (inf, inf), (nan, nan), (0.0, 1.0), (-0.0, 1.0), (MAX, inf), (LOWEST, 0.0),
)  # fmt: skip
_LOGARITHM: tuple[Row, ...] = (
    (0.0, -inf), (-0.0, -inf), (-1.0, nan), (-inf, nan), (inf, inf), (nan, nan), (1.0, 0.0),
)  # fmt: skip
_ODD: tuple[Row, ...] = ((0.0, 0.0), (-0.0, -0.0), (nan, nan))
_PERIODIC: tuple[Row, ...] = ((inf, nan), (-inf, nan), (nan, nan))
_WHOLE: tuple[Row, ...] = ((inf, inf), (-inf, -inf), (nan, nan), (-0.0, -0.0), (0.0, 0.0))
_QUOTIENT: tuple[Row, ...] = (
    (1.0, 0.0, inf), (-1.0, 0.0, -inf), (1.0, -0.0, -inf), (0.0, 0.0, nan), (inf, inf, nan),
    (1.0, inf, 0.0), (-1.0, inf, -0.0), (inf, 2.0, inf), (nan, 1.0, nan), (1.0, nan, nan),
)  # fmt: skip
_C_REMAINDER: tuple[Row, ...] = (
    (inf, 1.0, nan), (1.0, 0.0, nan), (5.0, inf, 5.0), (-0.0, 1.0, -0.0), (-7.0, 3.0, -1.0),
    (7.0, -3.0, 1.0), (nan, 1.0, nan), (1.0, nan, nan),
)  # fmt: skip
_EXTREMUM: tuple[Row, ...] = ((nan, 1.0, nan), (1.0, nan, nan), (nan, inf, nan), (nan, nan, nan))
_SIGMOID: tuple[Row, ...] = (
    (inf, 1.0), (-inf, 0.0), (0.0, 0.5), (nan, nan), (MAX, 1.0), (LOWEST, 0.0),
)  # fmt: skip
_TANH: tuple[Row, ...] = (*_ODD, (inf, 1.0), (-inf, -1.0), (MAX, 1.0))
_SILU: tuple[Row, ...] = ((inf, inf), (nan, nan), (0.0, 0.0), (-0.0, -0.0), (-inf, nan))

FLOATS: dict[str, tuple[str, tuple[Row, ...]]] = {
    "add": (NUMPY, ((inf, -inf, nan), (MAX, MAX, inf), (-0.0, -0.0, -0.0), (0.0, -0.0, 0.0))),
    "sub": (NUMPY, ((inf, inf, nan), (LOWEST, MAX, -inf), (0.0, 0.0, 0.0), (-0.0, 0.0, -0.0))),
    "mul": (NUMPY, ((0.0, inf, nan), (-0.0, 5.0, -0.0), (MAX, 2.0, inf), (inf, -1.0, -inf))),
    "div": (NUMPY, _QUOTIENT),
    "truediv": (NUMPY, _QUOTIENT),
    "fmod": (NUMPY, _C_REMAINDER),
    "mod": ("nvFuser: C's %", _C_REMAINDER),
    "remainder": (TORCH + "; a remainder of 0 has the sign of a, in NumPy that of b", (
        (-7.0, 3.0, 2.0), (7.0, -3.0, -2.0), (1.0, 0.0, nan), (inf, 1.0, nan), (5.0, inf, 5.0),
        (-5.0, inf, inf), (6.0, -3.0, 0.0), (-6.0, 3.0, -0.0), (nan, 1.0, nan),
    )),
    "pow": (NUMPY, (
        (nan, 0.0, 1.0), (inf, 0.0, 1.0), (1.0, nan, 1.0), (-1.0, inf, 1.0), (0.0, -1.0, inf),
        (-0.0, -1.0, -inf), (-0.0, -2.0, inf), (-8.0, 1 / 3, nan), (-inf, 3.0, -inf),
        (-inf, 2.0, inf), (-inf, -1.0, -0.0), (2.0, inf, inf), (0.5, inf, 0.0), (inf, -1.0, 0.0),
        (-inf, 0.5, inf), (-0.0, 0.5, 0.0), (-0.0, 3.0, -0.0), (nan, 2.0, nan), (2.0, nan, nan),
    )),
    "atan2": (NUMPY, (
        (0.0, -0.0, pi), (-0.0, -0.0, -pi), (0.0, 0.0, 0.0), (-0.0, 0.0, -0.0),
        (inf, inf, pi / 4), (inf, -inf, 3 * pi / 4), (-1.0, -inf, -pi), (1.0, inf, 0.0),
        (nan, 1.0, nan), (1.0, nan, nan), (-inf, 1.0, -pi / 2),
    )),
    "minimum": (TORCH, (*_EXTREMUM, (inf, -inf, -inf))),
    "maximum": (TORCH, (*_EXTREMUM, (inf, -inf, inf))),
    "isfinite": (NUMPY, ((inf, False), (-inf, False), (nan, False), (MAX, True), (-0.0, True))),
    "isinf": (NUMPY, ((inf, True), (-inf, True), (nan, False), (MAX, False))),
    "isnan": (NUMPY, ((inf, False), (nan, True), (0.0, False))),
    "isneginf": (NUMPY, ((inf, False), (-inf, True), (nan, False), (LOWEST, False))),
    "isposinf": (NUMPY, ((inf, True), (-inf, False), (nan, False), (MAX, False))),
    "isreal": (NUMPY, ((inf, True), (nan, True))),
    "signbit": (NUMPY, ((-0.0, True), (0.0, False), (-inf, True), (inf, False))),
    "eq": (NUMPY, ((nan, nan, False), (0.0, -0.0, True), (inf, inf, True))),
    "ne": (NUMPY, ((nan, nan, True), (0.0, -0.0, False), (nan, 1.0, True))),
    "lt": (NUMPY, ((nan, 1.0, False), (1.0, nan, False), (-inf, LOWEST, True))),
    "le": (NUMPY, ((nan, nan, False), (0.0, -0.0, True))),
    "gt": (NUMPY, ((nan, 1.0, False), (1.0, nan, False), (inf, MAX, True))),
    "ge": (NUMPY, ((nan, nan, False), (-0.0, 0.0, True))),
    "logical_and": (NUMPY, ((nan, 1.0, True), (-0.0, 1.0, False), (STEP, inf, True))),
    "logical_or": (NUMPY, ((0.0, -0.0, False), (nan, 0.0, True))),
    "logical_not": (NUMPY, ((nan, False), (-0.0, True), (STEP, False))),
    "exp": (NUMPY, _EXPONENTIAL),
    "exp_approx": (NUMPY, _EXPONENTIAL),
    "exp2": (NUMPY, _EXPONENTIAL),
    "exp2_approx": (NUMPY, _EXPONENTIAL),
    "expm1": (NUMPY, (*_ODD, (-inf, -1.0), (inf, inf), (MAX, inf), (LOWEST, -1.0))),
    "log": (NUMPY, _LOGARITHM),
    "log10": (NUMPY, _LOGARITHM),
    "log2": (NUMPY, _LOGARITHM),
    "log1p": (NUMPY, (*_ODD, (-1.0, -inf), (-2.0, nan), (inf, inf), (-inf, nan))),
    "sqrt": (NUMPY, (*_ODD, (-1.0, nan), (inf, inf), (-inf, nan))),
    "rsqrt": (TORCH, ((0.0, inf), (-0.0, -inf), (inf, 0.0), (-1.0, nan), (-inf, nan), (nan, nan))),
    "sigmoid": (TORCH, _SIGMOID),
    "sigmoid_approx": (TORCH, _SIGMOID),
    "silu": (TORCH, _SILU),
    "silu_approx": (TORCH, _SILU),
    "erf": (TORCH, (*_ODD, (inf, 1.0), (-inf, -1.0))),
    "erfc": (TORCH, ((inf, 0.0), (-inf, 2.0), (0.0, 1.0), (nan, nan))),
    "erfinv": (TORCH, (*_ODD, (1.0, inf), (-1.0, -inf), (2.0, nan), (-2.0, nan))),
    "erfcinv": (CUDA, ((0.0, inf), (2.0, -inf), (1.0, 0.0), (3.0, nan), (-1.0, nan), (nan, nan))),
    "lgamma": (TORCH, (
        (0.0, inf), (-1.0, inf), (-2.0, inf), (inf, inf), (-inf, inf), (1.0, 0.0), (2.0, 0.0),
        (nan, nan),
    )),
    "gelu_approx": (TORCH + "; the sign of 0 is not kept", ((inf, inf), (nan, nan), (0.0, 0.0))),
    "where": (NUMPY, ((True, nan, 1.0, nan), (False, nan, 1.0, 1.0), (True, -0.0, inf, -0.0))),
    "lerp": (TORCH, (
        (1.0, 3.0, 0.0, 1.0), (1.0, 3.0, 1.0, 3.0), (1.0, 3.0, 0.5, 2.0), (1.0, inf, 0.0, nan),
        (1.0, inf, 0.75, nan), (nan, 1.0, 0.5, nan), (1.0, 3.0, nan, nan),
    )),
    "clamp": (TORCH, (
        (nan, 0.0, 1.0, nan), (5.0, 3.0, 1.0, 1.0), (0.0, nan, 1.0, nan), (0.0, 0.0, nan, nan),
        (-inf, LOWEST, MAX, LOWEST),
    )),
    "threshold": (TORCH, ((nan, 1.0, 5.0, nan), (1.0, 1.0, 5.0, 5.0), (inf, 1.0, 5.0, inf))),
    "addcmul": (TORCH, ((0.0, inf, 0.0, 1.0, nan), (inf, 1.0, -inf, 1.0, nan))),
    "acos": (NUMPY, ((2.0, nan), (1.0, 0.0), (-1.0, pi), (nan, nan), (-inf, nan))),
    "acosh": (NUMPY, ((0.5, nan), (1.0, 0.0), (inf, inf), (-inf, nan), (nan, nan))),
    "asin": (NUMPY, (*_ODD, (2.0, nan), (-2.0, nan), (1.0, pi / 2))),
    "asinh": (NUMPY, (*_ODD, (inf, inf), (-inf, -inf))),
    "atan": (NUMPY, (*_ODD, (inf, pi / 2), (-inf, -pi / 2))),
    "atanh": (NUMPY, (*_ODD, (1.0, inf), (-1.0, -inf), (2.0, nan), (inf, nan))),
    "cos": (NUMPY, (*_PERIODIC, (0.0, 1.0))),
    "sin": (NUMPY, (*_PERIODIC, *_ODD)),
    "tan": (NUMPY, (*_PERIODIC, *_ODD)),
    "cosh": (NUMPY, ((inf, inf), (-inf, inf), (nan, nan), (0.0, 1.0), (MAX, inf))),
    "sinh": (NUMPY, (*_ODD, (inf, inf), (-inf, -inf), (LOWEST, -inf))),
    "tanh": (NUMPY, _TANH),
    "tanh_approx": (NUMPY, _TANH),
    "abs": (NUMPY, ((-0.0, 0.0), (-inf, inf), (nan, nan), (LOWEST, MAX))),
    "neg": (NUMPY, ((0.0, -0.0), (-inf, inf), (nan, nan), (LOWEST, MAX))),
    "sign": (TORCH + "; 0 for NaN, where NumPy has NaN", (
        (nan, 0.0), (-0.0, 0.0), (inf, 1.0), (-inf, -1.0), (STEP, 1.0),
    )),
    "reciprocal": (NUMPY, ((0.0, inf), (-0.0, -inf), (inf, 0.0), (-inf, -0.0), (nan, nan))),
    "relu": (TORCH, ((nan, nan), (-1.0, 0.0), (inf, inf), (-inf, 0.0))),
    "ceil": (NUMPY, (*_WHOLE, (-0.5, -0.0), (0.5, 1.0), (MAX, MAX))),
    "floor": (NUMPY, (*_WHOLE, (-0.5, -1.0), (0.5, 0.0), (LOWEST, LOWEST))),
    "round": (NUMPY, (*_WHOLE, (0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-0.5, -0.0), (-1.5, -2.0))),
    "trunc": (NUMPY, (*_WHOLE, (-0.5, -0.0), (1.5, 1.0), (-1.5, -1.0))),
    "frac": (TORCH, ((inf, nan), (-inf, nan), (nan, nan), (-1.5, -0.5), (-2.0, 0.0), (0.5, 0.5))),
}  # fmt: skip
"""Of floats, in f16, bf16, f32 and f64."""

INTS: dict[str, tuple[str, tuple[Row, ...]]] = {
    "add": (NUMPY, ((MAX, 1, LOWEST), (LOWEST, LOWEST, 0))),
    "sub": (NUMPY, ((LOWEST, 1, MAX), (0, LOWEST, LOWEST))),
    "mul": (NUMPY, ((LOWEST, LOWEST, 0), (MAX, MAX, 1), (MAX, 2, -2))),
    "div": (TORCH + ", rounding_mode='trunc'; " + OWN + " by 0", (
        (-7, 2, -3), (7, -2, -3), (LOWEST, -1, LOWEST), (7, 0, 0), (0, 0, 0), (MAX, LOWEST, 0),
    )),
    "fmod": (NUMPY, ((-7, 3, -1), (7, -3, 1), (LOWEST, -1, 0), (7, 0, 0))),
    "mod": ("nvFuser: C's %", ((-7, 3, -1), (7, -3, 1), (LOWEST, -1, 0), (7, 0, 0))),
    "remainder": (NUMPY, ((-7, 3, 2), (7, -3, -2), (LOWEST, -1, 0), (7, 0, 0), (6, -3, 0))),
    "ceilDiv": ("nvFuser: ceilDiv", ((7, 2, 4), (0, 3, 0), (6, 3, 2), (5, 0, 0), (1, MAX, 1))),
    "pow": (TORCH, ((2, -1, 0), (-1, -3, -1), (-1, -2, 1), (1, LOWEST, 1), (0, 0, 1), (0, -1, 0),
                    (2, MAX, 0), (LOWEST, 2, 0), (-1, MAX, -1))),
    "minimum": (NUMPY, ((LOWEST, MAX, LOWEST), (MAX, MAX, MAX))),
    "maximum": (NUMPY, ((LOWEST, MAX, MAX), (LOWEST, LOWEST, LOWEST))),
    "gcd": (NUMPY, ((0, 0, 0), (0, -5, 5), (12, -18, 6), (LOWEST, 1, 1), (MAX, MAX, MAX))),
    "bitwise_and": (NUMPY, ((-1, MAX, MAX), (LOWEST, MAX, 0))),
    "bitwise_or": (NUMPY, ((LOWEST, MAX, -1), (0, LOWEST, LOWEST))),
    "bitwise_xor": (NUMPY, ((LOWEST, -1, MAX), (MAX, MAX, 0))),
    "bitwise_not": (NUMPY, ((0, -1), (LOWEST, MAX))),
    "bitwise_left_shift": (TORCH, ((1, 64, 0), (1, -1, 0), (-1, MAX, 0), (LOWEST, 1, 0))),
    "bitwise_right_shift": (TORCH, ((-1, 64, -1), (5, -1, 0), (-5, -1, -1), (LOWEST, MAX, -1))),
    "logical_right_shift": ("nvFuser: logical_right_shift", (
        (-1, 64, 0), (5, -1, 0), (LOWEST, MAX, 0), (-1, 1, MAX),
    )),
    "eq": (NUMPY, ((LOWEST, MAX, False), (LOWEST, LOWEST, True))),
    "lt": (NUMPY, ((LOWEST, MAX, True), (MAX, LOWEST, False))),
    "logical_and": (NUMPY, ((LOWEST, 1, True), (0, MAX, False))),
    "logical_not": (NUMPY, ((LOWEST, False), (0, True))),
    "where": (NUMPY, ((True, LOWEST, MAX, LOWEST), (False, LOWEST, MAX, MAX))),
    "clamp": (TORCH, ((5, 3, 1, 1), (LOWEST, -1, 1, -1), (MAX, LOWEST, 0, 0))),
    "threshold": (TORCH, ((LOWEST, LOWEST, 7, 7), (MAX, LOWEST, 7, MAX))),
    "addcmul": (TORCH, ((MAX, 1, 1, 1, LOWEST), (0, LOWEST, LOWEST, 1, 0))),
    "abs": (NUMPY, ((LOWEST, LOWEST), (-5, 5))),
    "neg": (NUMPY, ((LOWEST, LOWEST), (-1, 1))),
    "sign": (NUMPY, ((LOWEST, -1), (0, 0), (MAX, 1))),
    "relu": (TORCH, ((LOWEST, 0), (MAX, MAX))),
    "ceil": (NUMPY, ((LOWEST, LOWEST), (MAX, MAX))),
    "floor": (NUMPY, ((LOWEST, LOWEST), (MAX, MAX))),
    "round": (NUMPY, ((LOWEST, LOWEST), (MAX, MAX))),
    "trunc": (NUMPY, ((LOWEST, LOWEST), (MAX, MAX))),
    "isfinite": (NUMPY, ((LOWEST, True),)),
    "isnan": (NUMPY, ((MAX, False),)),
    "signbit": (TORCH, ((LOWEST, True), (0, False))),
    "truediv": (NUMPY, ((1, 0, inf), (-1, 0, -inf), (0, 0, nan), (0, -5, -0.0))),
    "reciprocal": (TORCH, ((0, inf), (-1, -1.0))),
    "sqrt": (NUMPY, ((-1, nan), (4, 2.0))),
    "log": (NUMPY, ((0, -inf), (-1, nan))),
}  # fmt: skip
"""Of integers with a sign."""

UNSIGNED: dict[str, tuple[str, tuple[Row, ...]]] = {
    "add": (NUMPY, ((MAX, 1, 0),)),
    "sub": (NUMPY, ((0, 1, MAX),)),
    "mul": (NUMPY, ((MAX, MAX, 1),)),
    "div": (TORCH, ((MAX, 0, 0), (7, 2, 3))),
    "remainder": (NUMPY, ((7, 0, 0), (MAX, MAX, 0))),
    "pow": (TORCH, ((2, MAX, 0), (0, 0, 1), (MAX, 2, 1))),
    "gcd": (NUMPY, ((0, MAX, MAX), (12, 18, 6))),
    "maximum": (NUMPY, ((0, MAX, MAX),)),
    "bitwise_not": (NUMPY, ((0, MAX),)),
    "bitwise_left_shift": (TORCH, ((1, 64, 0), (MAX, MAX, 0))),
    "bitwise_right_shift": (TORCH, ((MAX, 64, 0), (MAX, MAX, 0))),
    "logical_right_shift": ("nvFuser: logical_right_shift", ((MAX, 64, 0),)),
    "neg": (TORCH, ((1, MAX), (0, 0))),
    "abs": (NUMPY, ((MAX, MAX),)),
    "sign": (NUMPY, ((MAX, 1), (0, 0))),
    "lt": (NUMPY, ((0, MAX, True), (MAX, 0, False))),
}  # fmt: skip

SOME: dict[str, tuple[str, tuple[tuple[str, Row], ...]]] = {
    "nextafter": (NUMPY, (
        ("f32", (1.0, 1.0, 1.0)), ("f32", (nan, 1.0, nan)), ("f32", (1.0, nan, nan)),
        ("f64", (0.0, 1.0, STEP)), ("f64", (inf, 0.0, MAX)), ("f64", (MAX, inf, inf)),
    )),
    "tf32": (CUDA, (
        ("f32", (inf, inf)), ("f32", (-inf, -inf)), ("f32", (nan, nan)), ("f32", (-0.0, -0.0)),
    )),
    "abs": (NUMPY, (
        ("c64", (complex(inf, nan), inf)), ("c64", (complex(nan, -inf), inf)),
        ("c64", (complex(-0.0, 0.0), 0.0)), ("c128", (complex(nan, 1.0), nan)),
    )),
    "log": (NUMPY, (
        ("c64", (complex(inf, nan), complex(inf, nan))),
        ("c64", (complex(nan, inf), complex(inf, nan))),
        ("c64", (complex(-inf, nan), complex(inf, nan))),
        ("c64", (complex(-inf, 1.0), complex(inf, pi))),
        ("c64", (complex(-0.0, 0.0), complex(-inf, pi))),
        ("c128", (complex(nan, -inf), complex(inf, nan))),
        ("c128", (complex(inf, -inf), complex(inf, -pi / 4))),
        ("c128", (complex(nan, 1.0), complex(nan, nan))),
    )),
    "log2": (TORCH, (("c64", (complex(inf, nan), complex(inf, nan))),)),
    "log10": (NUMPY, (("c64", (complex(nan, inf), complex(inf, nan))),)),
    "exp": (NUMPY, (
        ("c64", (complex(inf, nan), complex(inf, nan))),
        ("c64", (complex(inf, inf), complex(inf, nan))),
        ("c64", (complex(-inf, nan), complex(0.0, 0.0))),
        ("c64", (complex(-inf, inf), complex(0.0, 0.0))),
        ("c64", (complex(inf, 0.0), complex(inf, 0.0))),
        ("c128", (complex(nan, 0.0), complex(nan, 0.0))),
        ("c128", (complex(1.0, 0.0), complex(e, 0.0))),
        ("c128", (complex(1.0, inf), complex(nan, nan))),
    )),
    "sqrt": (NUMPY, (
        ("c64", (complex(inf, nan), complex(inf, nan))),
        ("c64", (complex(-inf, nan), complex(nan, inf))),
        ("c64", (complex(nan, inf), complex(inf, inf))),
        ("c64", (complex(1.0, -inf), complex(inf, -inf))),
        ("c64", (complex(-inf, 1.0), complex(0.0, inf))),
        ("c128", (complex(inf, -1.0), complex(inf, -0.0))),
        ("c128", (complex(-4.0, -0.0), complex(0.0, -2.0))),
        ("c128", (complex(nan, 1.0), complex(nan, nan))),
    )),
    "eq": (NUMPY, (("c64", (complex(nan, 0.0), complex(nan, 0.0), False)),)),
    "ne": (NUMPY, (("c64", (complex(0.0, nan), complex(0.0, nan), True)),)),
    "isnan": (NUMPY, (("c64", (complex(inf, nan), True)), ("c64", (complex(inf, 0.0), False)))),
    "isinf": (NUMPY, (("c64", (complex(nan, inf), True)),)),
    "isfinite": (NUMPY, (("c64", (complex(0.0, nan), False)),)),
    "isreal": (NUMPY, (("c64", (complex(nan, -0.0), True)), ("c64", (complex(1.0, nan), False)))),
    "real": (NUMPY, (("c64", (complex(-0.0, nan), -0.0)), ("c128", (complex(nan, inf), nan)))),
    "imag": (NUMPY, (("c64", (complex(nan, -0.0), -0.0)), ("c128", (complex(inf, inf), inf)))),
    "complex": (NUMPY, (("f32", (inf, nan, complex(inf, nan))),)),
    "add": (TORCH, (("bool", (True, True, True)), ("bool", (False, False, False)))),
    "mul": (TORCH, (("bool", (True, False, False)),)),
    "maximum": (NUMPY, (("bool", (True, False, True)),)),
    "bitwise_not": (NUMPY, (("bool", (True, False)),)),
}  # fmt: skip
"""Of other types."""

CASTS: tuple[tuple[str, str, str, Row], ...] = (
    ("f32", "f8e5m2", TORCH, (inf, inf)), ("f32", "f8e5m2", TORCH, (-inf, -inf)),
    ("f32", "f8e5m2", TORCH, (65000.0, inf)), ("f32", "f8e5m2", TORCH, (-61440.0, -inf)),
    ("f32", "f8e5m2", TORCH, (61439.0, 57344.0)), ("f32", "f8e5m2", TORCH, (nan, nan)),
    ("f64", "f8e5m2", TORCH, (61440.0, inf)), ("f64", "f8e5m2", TORCH, (61439.99999999, 57344.0)),
    ("f16", "f8e5m2", TORCH, (65504.0, inf)), ("bf16", "f8e5m2", TORCH, (-inf, -inf)),
    ("f32", "f8e4m3", CUDA, (inf, 448.0)), ("f32", "f8e4m3", CUDA, (-1e9, -448.0)),
    ("f32", "f8e4m3", CUDA, (nan, nan)), ("f32", "f8e4m3", CUDA, (-0.0, -0.0)),
    ("i32", "f8e5m2", TORCH, (70000, inf)), ("i64", "f16", NUMPY, (65520, inf)),
    ("f32", "f16", NUMPY, (65520.0, inf)), ("f32", "f16", NUMPY, (65519.0, 65504.0)),
    ("f64", "f32", NUMPY, (1e300, inf)), ("f32", "bf16", TORCH, (MAX, inf)),
    ("f64", "bf16", TORCH, (-1e39, -inf)), ("f32", "bool", NUMPY, (nan, True)),
    ("f32", "bool", NUMPY, (-0.0, False)), ("i64", "bool", NUMPY, (LOWEST, True)),
    ("i64", "i32", NUMPY, (2**32 + 5, 5)), ("i32", "u8", NUMPY, (-1, 255)),
    ("i32", "u64", NUMPY, (-1, 2**64 - 1)), ("u64", "i64", NUMPY, (2**64 - 1, -1)),
    ("i64", "f32", NUMPY, (2**24 + 1, 2.0**24)), ("f32", "i32", OWN, (nan, 0)),
    ("f32", "i32", OWN, (1e30, 2**31 - 1)), ("f32", "i64", OWN, (-inf, -(2**63))),
    ("f32", "i32", NUMPY, (-1.9, -1)), ("f32", "u8", OWN, (-1.0, 255)),
    ("bool", "f8e5m2", NUMPY, (True, 1.0)), ("c64", "f32", TORCH, (complex(-0.0, nan), -0.0)),
)  # fmt: skip
"""Of `cast`: from, to, the source, (operand, result)."""
