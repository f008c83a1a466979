"""What a kind of error is: its number, cause, and a file that has it next to one that has not."""

from __future__ import annotations

import re

from fusec.dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """A kind of errors that users meet.

    number: `E0201`, which is never given to another kind. cause: one or two sentences. wrong:
    a fusion file with this error; right: the same without it. wrong_arguments, right_arguments:
    what `fusec check` is called with besides the file.
    """

    number: str
    title: str
    cause: str
    wrong: str
    right: str
    wrong_arguments: tuple[str, ...] = ()
    right_arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.number


X, W = "x: f32[B, H]", "w: f32[H]"


def file_of(
    *lines: str,
    dims: str = "{B: 4, H: 8}",
    inputs: tuple[str, ...] | None = None,
    outputs: str = "[y]",
    rest: str = "",
) -> str:
    """Return a fusion file with these op lines; rest: what follows the outputs.

    Its inputs are `x: f32[B, H]` and, where a line reads it, `w: f32[H]`, unless others are given.
    """
    if inputs is None:
        inputs = (X, W) if any(re.search(r"\bw\b", line) for line in lines) else (X,)
    declared = "".join(f"  {line}\n" for line in inputs)
    ops = "".join(f"  - {line}\n" for line in lines)
    return (
        f"fusion: example\ndims: {dims}\ninputs:\n{declared}ops:\n{ops}outputs: {outputs}\n{rest}"
    )


def op_line(number: str, title: str, cause: str, wrong: str, right: str) -> Code:
    """Return a code whose example differs from the right file in one op line."""
    return Code(number, title, cause, file_of(wrong), file_of(right))
