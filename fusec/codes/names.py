"""Errors of names: of values, dims, operations and dtypes."""

from __future__ import annotations

from fusec.codes.code import Code, file_of, op_line

UNDEFINED_NAME = op_line(
    "E0201", "undefined name",
    "No dim, input or earlier line has this name.",
    "y = relu(z)", "y = relu(x)",
)  # fmt: skip
DEFINED_TWICE = Code(
    "E0202", "a name is defined twice",
    "Dims, inputs and results share one namespace, in which each name is defined once.",
    file_of("y = relu(x)", "y = exp(y)"), file_of("r = relu(x)", "y = exp(r)"),
)  # fmt: skip
USED_BEFORE_DEFINITION = Code(
    "E0203", "a name is used before it is defined",
    "Files are read from top to bottom.",
    file_of("y = exp(r)", "r = relu(x)"), file_of("r = relu(x)", "y = exp(r)"),
)  # fmt: skip
INVALID_NAME = Code(
    "E0204", "a name is not allowed",
    "Names reach the generated CUDA: they are identifiers, no keywords of CUDA C++, no words of "
    "the fusion language, and do not begin with `__` or `_X`.",
    file_of("float = relu(x)", outputs="[float]"), file_of("y = relu(x)"),
)  # fmt: skip
UNKNOWN_OPERATION = op_line(
    "E0205", "unknown operation",
    "`fusec ops` lists the operations; `fusec ops NAME` knows the names of other frameworks.",
    "y = reluu(x)", "y = relu(x)",
)  # fmt: skip
DTYPE_CALLED = op_line(
    "E0206", "a dtype is called like an operation",
    "A tensor is converted by `cast`.",
    "y = f64(x)", "y = cast(x, f64)",
)  # fmt: skip
UNKNOWN_DTYPE = op_line(
    "E0207", "unknown dtype",
    "fusec has bool, integers of 8 to 64 bits, and floats by their short names, as bf16 and f32.",
    "y = cast(x, f23)", "y = cast(x, f32)",
)  # fmt: skip
METHOD_CALL = op_line(
    "E0208", "a method or attribute of a tensor",
    "Methods of PyTorch's tensors are accepted if they have an exact equivalent here.",
    "y = x.max(1)", "y = max(x, 1)",
)  # fmt: skip
FOREIGN_NAME = op_line(
    "E0209", "the name of another framework",
    "The name has no exact equivalent here, or is written without its prefix (`torch.`, `F.`, "
    "`np.`); the help says what to write.",
    "y = erfcx(x)", "y = exp(x * x) * erfc(x)",
)  # fmt: skip
