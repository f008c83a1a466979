"""Errors of the command line."""

from __future__ import annotations

from fusec.codes.code import Code, file_of

GOOD = file_of("y = relu(x)")
MULTIPLE = file_of("y = relu(x)", dims="{B: 4, H: {default: 8, multiple_of: 8}}")

SET_UNKNOWN_DIM = Code(
    "E0801", "--set names no dim of the file",
    "Dims and scalar inputs of the file can be set.",
    GOOD, GOOD, ("--set", "K=16"), ("--set", "H=16"),
)  # fmt: skip
SET_FORM = Code(
    "E0802", "--set is not NAME=INTEGER",
    "A size is an integer; `fusec compile` also takes several, with commas.",
    GOOD, GOOD, ("--set", "H:16"), ("--set", "H=16"),
)  # fmt: skip
SET_VALUE = Code(
    "E0803", "--set gives a dim a size that the file excludes",
    "The size is negative, or not the multiple that `multiple_of` promises.",
    MULTIPLE, MULTIPLE, ("--set", "H=12"), ("--set", "H=16"),
)  # fmt: skip
UNKNOWN_TARGET = Code(
    "E0804", "unknown target",
    "Targets are architectures, as sm_80 and sm_90a.",
    GOOD, GOOD, ("--target", "sm90"), ("--target", "sm_90a"),
)  # fmt: skip
UNKNOWN_PASS = Code(
    "E0805", "unknown pass",
    "`--without`, `--with` and `--stop-after` take names of passes, which the help lists.",
    GOOD, GOOD, ("--without", "fold"), ("--without", "fold_constants"),
)  # fmt: skip
