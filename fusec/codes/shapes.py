"""Errors of shapes and dtypes."""

from __future__ import annotations

from fusec.codes.code import Code, file_of, op_line

NO_BROADCAST = Code(
    "E0501", "operands do not broadcast",
    "Aligned at the last dim, extents are equal or literally 1. Dims of two names are two sizes, "
    "also where their defaults agree. After a reduction `keepdim=true` keeps the dim.",
    file_of("m = mean(x, dims=[1])", "y = sub(x, m)"),
    file_of("m = mean(x, dims=[1], keepdim=true)", "y = sub(x, m)"),
)  # fmt: skip
AXIS_RANGE = op_line(
    "E0502", "a dim is out of range",
    "Dims are numbered from 0, or from -1 backwards.",
    "y = sum(x, dims=[2])", "y = sum(x, dims=[1])",
)  # fmt: skip
AXIS_TWICE = op_line(
    "E0503", "a dim is named twice",
    "Each dim is in the list once.",
    "y = sum(x, dims=[1, -1])", "y = sum(x, dims=[0, 1])",
)  # fmt: skip
RANK = op_line(
    "E0504", "a list has another number of entries than the tensor has dims",
    "The argument says something of each dim.",
    "y = permute(x, [0])", "y = permute(x, [1, 0])",
)  # fmt: skip
EXTENTS_DIFFER = Code(
    "E0505", "two extents that must agree differ",
    "As the inner dims of a matmul, or the other dims of concatenated tensors.",
    file_of("y = matmul(x, k)", inputs=("x: f32[B, H]", "k: f32[B, H]")),
    file_of("y = linear(x, k)", inputs=("x: f32[B, H]", "k: f32[B, H]")),
)  # fmt: skip
ELEMENTS_DIFFER = op_line(
    "E0506", "a reshape changes the number of elements",
    "The products of the extents before and after must be equal.",
    "y = reshape(x, [B, H, 2])", "y = reshape(x, [B, H // 2, 2])",
)  # fmt: skip
NOT_A_SIZE = op_line(
    "E0507", "a size is expected",
    "Sizes are dims, integers, and arithmetic on them: `//`, not `/`.",
    "y = reshape(x, [B, H / 2, 2])", "y = reshape(x, [B, H // 2, 2])",
)  # fmt: skip
ZERO_DIVISION = op_line(
    "E0508", "division by zero",
    "A size or constant is divided by zero, literally or at the default sizes.",
    "y = reshape(x, [B, H // 0])", "y = reshape(x, [B, H // 1])",
)  # fmt: skip
TOO_LARGE = Code(
    "E0509", "a tensor is too large",
    "Its bytes at the default sizes do not fit into 64 bits.",
    file_of("y = relu(x)", dims="{B: 4, H: 9223372036854775807}"), file_of("y = relu(x)"),
)  # fmt: skip
EMPTY_EXTREMUM = Code(
    "E0510", "a maximum or minimum of no elements",
    "As in PyTorch and NumPy, it is undefined over a dim of extent 0.",
    file_of("y = max(x, dims=[1])", dims="{B: 4, H: 0}"), file_of("y = max(x, dims=[1])"),
)  # fmt: skip
NEEDS_INTEGERS = op_line(
    "E0601", "integers are needed",
    "The operation is defined for integers (or bools) only; `cast` converts.",
    "y = bitwise_and(x, 3)", "y = bitwise_and(cast(x, i32), 3)",
)  # fmt: skip
NOT_FOR_BOOL = op_line(
    "E0602", "not defined for bools",
    "Cast the operand to a number first.",
    "y = neg(gt(x, 0.0))", "y = neg(cast(gt(x, 0.0), f32))",
)  # fmt: skip
CONDITION = op_line(
    "E0603", "a condition is not bool",
    "`where` selects by bools; compare first.",
    "y = where(x, x, 0.0)", "y = where(gt(x, 0.0), x, 0.0)",
)  # fmt: skip
NEEDS_COMPLEX = op_line(
    "E0604", "complex numbers are needed",
    "Only complex tensors have a real and an imaginary part.",
    "y = real(x)", "y = real(cast(x, c64))",
)  # fmt: skip
