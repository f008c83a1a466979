"""What is valid and not supported: exit code 3."""

from __future__ import annotations

from fusec.codes.code import Code, file_of, op_line

STORED_TYPE = Code(
    "E0901", "tensors of this type are not supported",
    "The type is known by name; kernels neither load nor store it.",
    file_of("y = relu(x)", inputs=("x: f32[B, H]", "w: f4e2m1[H]")),
    file_of("y = relu(x)", inputs=("x: f32[B, H]", "w: f8e4m3[H]")),
)  # fmt: skip
NO_SCHEDULER = Code(
    "E0902", "no scheduler takes an operation or a pinned segment",
    "The notes give the reason of each scheduler. A segment that the file pins can often be "
    "divided; an operation may be written by others.",
    file_of(
        "r = sum(x, dims=[1])", "y = relu(x)", outputs="[r, y]",
        rest="segments: {a: {values: [r, y], scheduler: pointwise}}\n",
    ),
    file_of("r = sum(x, dims=[1])", "y = relu(x)", outputs="[r, y]"),
)  # fmt: skip
SCHEDULE_REFUSED = Code(
    "E0903", "the kernel cannot run with a value of the schedule",
    "The field exists, and the scheduler's rule named in the message excludes the value here.",
    file_of("y = relu(x)", rest="schedules: {y: {vector_width: 8}}\n"),
    file_of("y = relu(x)", rest="schedules: {y: {vector_width: 2}}\n"),
)  # fmt: skip
UNSUPPORTED_OPERATION = op_line(
    "E0904", "an operation of another framework is not supported",
    "fusec knows the name and cannot compute it; the message says why.",
    "y = nonzero(x)", "y = ne(x, 0.0)",
)  # fmt: skip
NOT_IN_HALF = Code(
    "E0905", "an operation of 16-bit floats is not supported",
    "16-bit floats are computed in f32, in which the operation means something else.",
    file_of("y = nextafter(x, 1.0)", inputs=("x: bf16[B, H]",)),
    file_of("y = nextafter(cast(x, f32), 1.0)", inputs=("x: bf16[B, H]",)),
)  # fmt: skip
RESERVED_FIELD = Code(
    "E0906", "a field is reserved for a later version",
    "The name is kept for a feature that does not exist yet, so that files which use it will keep "
    "their meaning.",
    file_of("y = sum(x, dims=[1])", rest="order: {y: serial}\n"),
    file_of("y = sum(x, dims=[1])"),
)  # fmt: skip
