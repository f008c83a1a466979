"""Errors of dims, inputs and outputs."""

from __future__ import annotations

from fusec.codes.code import Code, X, file_of

GOOD = file_of("y = relu(x)")


def _dims(number: str, title: str, cause: str, wrong: str, right: str) -> Code:
    return Code(
        number, title, cause, file_of("y = relu(x)", dims=wrong), file_of("y = relu(x)", dims=right)
    )


def _input(number: str, title: str, cause: str, wrong: str, right: str) -> Code:
    files = [file_of("y = relu(x)", inputs=(X, line)) for line in (wrong, right)]
    return Code(number, title, cause, files[0], files[1])


def _outputs(number: str, title: str, cause: str, wrong: str, right: str) -> Code:
    files = [file_of("y = relu(x)", outputs=outputs) for outputs in (wrong, right)]
    return Code(number, title, cause, files[0], files[1])


INVALID_SIZE = _dims(
    "E0401", "a size is negative or too large",
    "Sizes are integers from 0 to 2^63 - 1.",
    "{B: 4, H: -8}", "{B: 4, H: 8}",
)  # fmt: skip
NOT_A_MULTIPLE = _dims(
    "E0402", "a default size is not the multiple that the file declares",
    "`multiple_of` promises a divisor of every size of the dim, also of its default.",
    "{B: 4, H: {default: 510, multiple_of: 8}}", "{B: 4, H: {default: 512, multiple_of: 8}}",
)  # fmt: skip
TENSOR_DEFAULT = _input(
    "E0403", "a tensor has a default value",
    "Only scalar inputs have defaults.",
    "w: f32[H] = 3.0", "w: f32 = 3.0",
)  # fmt: skip
LAYOUT_ENTRIES = _input(
    "E0404", "a layout has another number of entries than the tensor has dims",
    "`strides`, `contiguity` and `stride_order` have one entry for each dim.",
    'w: {type: "f32[H]", strides: [1, 2]}', 'w: {type: "f32[H]", strides: [2]}',
)  # fmt: skip
STRIDE_ORDER = _input(
    "E0405", "stride_order is not a permutation",
    "It has each number from 0 (the fastest dim) to rank - 1 once.",
    'w: {type: "f32[B, H]", stride_order: [0, 0]}', 'w: {type: "f32[B, H]", stride_order: [0, 1]}',
)  # fmt: skip
LAYOUT_TWICE = _input(
    "E0406", "the layout is given twice",
    "`strides` fix the layout; `contiguity` and `stride_order` would say it again.",
    'w: {type: "f32[H]", strides: [1], contiguity: [true]}', 'w: {type: "f32[H]", strides: [1]}',
)  # fmt: skip
SCALAR_LAYOUT = _input(
    "E0407", "a scalar has a layout",
    "A scalar is not a tensor; a 0-dim tensor is written `f32[]`.",
    "w: {type: f32, strides: [1]}", "w: {type: f32}",
)  # fmt: skip
NO_OUTPUTS = _outputs(
    "E0408", "there are no outputs",
    "A fusion writes at least one tensor.",
    "[]", "[y]",
)  # fmt: skip
ALIAS_NOT_AN_INPUT = _outputs(
    "E0409", "an output is written into something else than an input",
    "`alias` names the input whose memory the output overwrites.",
    "[{y: {alias: y}}]", "[{y: {alias: x}}]",
)  # fmt: skip
ALIAS_TYPE = Code(
    "E0410", "an output does not fit in the input that it is written into",
    "Both have the same shape and dtype.",
    file_of("y = add(x, w)", outputs="[{y: {alias: w}}]"),
    file_of("y = add(x, w)", outputs="[{y: {alias: x}}]"),
)  # fmt: skip
DIM_AS_VALUE = _outputs(
    "E0411", "a dim where a value is expected",
    "Outputs and aliases are tensors.",
    "[B]", "[y]",
)  # fmt: skip
