"""Errors of a file as a whole: YAML, fields, and the form of op lines."""

from __future__ import annotations

from fusec.codes.code import Code, file_of, op_line

GOOD = file_of("y = relu(x)")

INVALID_YAML = Code(
    "E0101", "the file is not valid YAML",
    "The YAML parser cannot read the file: a bracket or quote is not closed, a tab indents a line, "
    "or a line is neither `key: value` nor `- item`.",
    GOOD.replace("H: 8}", "H: 8"), GOOD,
)  # fmt: skip
DUPLICATE_KEY = Code(
    "E0102", "a key is given twice",
    "A YAML mapping has each key once; YAML itself would silently take the last one.",
    file_of("y = relu(x)", inputs=("x: f32[B, H]", "x: f32[B]")), GOOD,
)  # fmt: skip
UNKNOWN_FIELD = Code(
    "E0103", "unknown field",
    "The file, a dim, an input, an output or a segment has a key that the format does not define; "
    "most are misspelled.",
    GOOD.replace("ops:", "op:"), GOOD,
)  # fmt: skip
MISSING_FIELD = Code(
    "E0104", "a required field is missing",
    "Every file has `fusion` and `outputs`, every dim a size, every input a type, every segment "
    "`values`.",
    GOOD.replace("outputs: [y]\n", ""), GOOD,
)  # fmt: skip
MISSING_DASH = Code(
    "E0105", "an op line lacks its dash",
    "`ops:` is a list: each line begins with `- `.",
    GOOD.replace("  - y", "  y"), GOOD,
)  # fmt: skip
SPLIT_OP_LINES = Code(
    "E0106", "op lines in brackets",
    "In `[...]` YAML splits at every comma, also at those between arguments.",
    GOOD.replace("ops:\n  - y = relu(x)", "ops: [y = add(x, w)]"), file_of("y = add(x, w)"),
)  # fmt: skip
COLON_IN_OP_LINE = op_line(
    "E0107", "a colon inside an op line",
    "`: ` makes a YAML mapping of the line; keyword arguments are written with `=`.",
    "y = pad(x, [1, 1], value: 1)", "y = pad(x, [1, 1], value=1)",
)  # fmt: skip
WRONG_NODE = Code(
    "E0108", "another kind of YAML value is expected",
    "The format wants a mapping, a list, a number or a bool here, and the file has something else.",
    GOOD.replace("outputs: [y]", "outputs: y"), GOOD,
)  # fmt: skip
UNNAMED_RESULT = Code(
    "E0109", "an op line does not name its result",
    "Each line assigns: `name = op(...)`.",
    file_of("relu(x)", outputs="[x]"), GOOD,
)  # fmt: skip
NOT_A_CALL = op_line(
    "E0110", "an op line computes nothing",
    "The right side is a call, an expression or a number. A copy is an operation: `set`.",
    "y = x", "y = set(x)",
)  # fmt: skip
UNEXPECTED_TOKEN = op_line(
    "E0111", "unexpected text in an op line, type or size",
    "The text at the mark does not continue the text before it: a comma or bracket is "
    "missing, a name is quoted, or an operator is Python's alone.",
    "y = add(x w)", "y = add(x, w)",
)  # fmt: skip
