"""Errors of calls: arguments, results and numbers."""

from __future__ import annotations

from fusec.codes.code import Code, file_of, op_line

MISSING_ARGUMENT = op_line(
    "E0301", "a required argument is missing",
    "The call lacks an argument that has no default.",
    "y = add(x)", "y = add(x, w)",
)  # fmt: skip
TOO_MANY_ARGUMENTS = op_line(
    "E0302", "too many arguments",
    "The call has more positional arguments than the operation has parameters.",
    "y = relu(x, w)", "y = relu(x)",
)  # fmt: skip
UNKNOWN_ARGUMENT = op_line(
    "E0303", "unknown argument",
    "The operation has no parameter of this name.",
    "y = sum(x, dmis=[1])", "y = sum(x, dims=[1])",
)  # fmt: skip
ARGUMENT_TWICE = op_line(
    "E0304", "an argument is given twice",
    "By position and by name, or by name twice.",
    "y = sum(x, [1], dims=[0])", "y = sum(x, dims=[0, 1])",
)  # fmt: skip
POSITIONAL_AFTER_KEYWORD = op_line(
    "E0305", "a positional argument follows a keyword",
    "As in Python, arguments without a name come first.",
    "y = sum(x, dims=[1], true)", "y = sum(x, dims=[1], keepdim=true)",
)  # fmt: skip
NOT_A_LIST = op_line(
    "E0306", "a list of tensors is expected",
    "The operation takes its tensors as one list.",
    "y = cat(x, x)", "y = cat([x, x])",
)  # fmt: skip
LIST_FOR_TENSOR = op_line(
    "E0307", "a list where one tensor is expected",
    "The parameter is one tensor.",
    "y = relu([x])", "y = relu(x)",
)  # fmt: skip
ARGUMENT_KIND = op_line(
    "E0308", "an argument is of the wrong kind",
    "The parameter wants a bool, a number, a word or a list that is known when the fusion is "
    "compiled.",
    "y = sum(x, dims=[1], keepdim=B)", "y = sum(x, dims=[1], keepdim=true)",
)  # fmt: skip
RESULT_COUNT = op_line(
    "E0309", "the number of names is not that of the results",
    "A line names every result of its call; `_` stands for one that is not wanted.",
    "y = var_mean(x, dims=[1])", "y, _ = var_mean(x, dims=[1])",
)  # fmt: skip
NESTED_RESULTS = Code(
    "E0310", "a nested call has several results",
    "Inside an expression a call stands for its one result.",
    file_of("y = relu(var_mean(x, dims=[1]))"),
    file_of("v, m = var_mean(x, dims=[1])", "y = relu(v)"),
)  # fmt: skip
CHAINED_COMPARISON = op_line(
    "E0311", "comparisons do not chain",
    "Each comparison gives a tensor of bools; `&` joins them.",
    "y = 0.0 < x < 1.0", "y = (0.0 < x) & (x < 1.0)",
)  # fmt: skip
NUMBER_RANGE = op_line(
    "E0312", "a number does not fit in its type",
    "The type cannot hold the number, or the number is of another kind than the type.",
    "y = add(x, i8(300))", "y = add(x, i16(300))",
)  # fmt: skip
