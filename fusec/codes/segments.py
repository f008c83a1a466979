"""Errors of segments, schedules and meshes."""

from __future__ import annotations

from fusec.codes.code import Code, file_of

SHARDED = 'x: {type: "f32[B, H]", shard: {0: mesh}}'


def _rest(number: str, title: str, cause: str, wrong: str, right: str) -> Code:
    files = [file_of("r = relu(x)", "y = exp(r)", rest=f"{rest}\n") for rest in (wrong, right)]
    return Code(number, title, cause, files[0], files[1])


SEGMENT_VALUE = _rest(
    "E0701", "a segment names an undefined value",
    "Segments list results of op lines.",
    "segments: {a: [z]}", "segments: {a: [r, y]}",
)  # fmt: skip
SEGMENT_TWICE = _rest(
    "E0702", "a value is listed twice",
    "Each value is in one segment.",
    "segments: {a: [r, y], b: [y]}", "segments: {a: [r], b: [y]}",
)  # fmt: skip
SEGMENT_INPUT = _rest(
    "E0703", "a segment names an input",
    "Segments list what they compute, not what they read.",
    "segments: {a: [x, r]}", "segments: {a: [r]}",
)  # fmt: skip
UNKNOWN_SCHEDULER = _rest(
    "E0704", "unknown scheduler",
    "`scheduler` names a kind of kernel.",
    "segments: {a: {values: [r, y], scheduler: pointwize}}",
    "segments: {a: {values: [r, y], scheduler: pointwise}}",
)  # fmt: skip
SEGMENT_CYCLE = Code(
    "E0705", "two segments need each other's results",
    "Kernels run one after the other, so no value may leave a segment and come back into it.",
    file_of("a = relu(x)", "b = exp(a)", "y = add(a, b)", rest="segments: {p: [a, y], q: [b]}\n"),
    file_of("a = relu(x)", "b = exp(a)", "y = add(a, b)", rest="segments: {p: [a], q: [b, y]}\n"),
)  # fmt: skip
SCHEDULE_FIELD = _rest(
    "E0706", "a schedule sets an unknown field",
    "`fusec dump --schedule-space` lists the fields of each segment.",
    "schedules: {y: {vektor_width: 4}}", "schedules: {y: {vector_width: 4}}",
)  # fmt: skip
SCHEDULE_VALUE = _rest(
    "E0707", "a schedule gives a field a value of another kind",
    "`fusec dump --schedule-space` lists the values of each field.",
    "schedules: {y: {vector_width: true}}", "schedules: {y: {vector_width: 4}}",
)  # fmt: skip
NO_MESH = Code(
    "E0708", "a tensor is sharded without a mesh",
    "`mesh:` declares the ranks over which dims are divided.",
    file_of("y = relu(x)", inputs=(SHARDED,)),
    file_of("y = relu(x)", inputs=(SHARDED,), rest="mesh: [2]\n"),
)  # fmt: skip
