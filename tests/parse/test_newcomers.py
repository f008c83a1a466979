"""What readers wrote who had not seen fusec before, and the help that they get."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from cli_tools import fusec

FILE = """
fusion: file
dims: {B: 64, H: 256}
inputs: {x: "f32[B, H]", dy: "f32[B, H]"}
ops:
  - y = relu(x)
  - z = dy * y
outputs: [y, z]
"""
CASES = {
    "sizes with `=`": ("{B: 64, H", "{B=64, H", "a value is written after a colon: `B: 64`"),
    "a comment of C": ("relu(x)", "relu(x)  // the activation", "a comment begins with `#`"),
    "fp8": ("f32[B, H]", "fp8[B, H]", "`f8e4m3`, with more precision, and `f8e5m2`, with more"),
    "a comprehension": (
        "relu(x)", "cat([relu(x) for i in range(4)], 0)", "op lines have no comprehensions",
    ),
    "a loop": ("- y = relu(x)", "- for i in range(3):\n    - y = relu(x)", "have no blocks"),
    "a chunk that is not whole": (
        "y = relu(x)", "y, u, v = chunk(x, 3, dim=-1)",
        "declare `H: {default: 258, multiple_of: 3}` under `dims:`",
    ),
    "a section again": (
        "outputs:", "ops:\n  - w = z + 1\noutputs:",
        "move its entries under the first `ops:` and remove this line",
    ),
    "a section within another": (
        "dims: {B: 64, H: 256}\ninputs: {x:", "dims:\n  B: 64\n  H: 256\n  inputs: {x:",
        "`inputs:` is indented under `dims:`",
    ),
    "a computed size below 0": (
        "H: 256}", "H: 256, W: H - 512}", "the size of dim `W` is negative: -256 at H = 256",
    ),
    "a comment of C on its own": ("ops:", "// the ops\nops:", "write `# the ops`"),
    "a type of MLIR": (
        '{x: "f32[B, H]"', '{x: "tensor<64x256xf32>"', "write `x: f32[64, 256]`",
    ),
    "a type of jaxtyping": (
        """{x: "f32[B, H]", dy: "f32[B, H]"}""", "\n  x: Float[Tensor, 'B H']\n  dy: f32[B, H]",
        "write `x: f32[B, H]`",
    ),
    "a default after a colon": (
        """{x: "f32[B, H]", dy: "f32[B, H]"}""",
        "\n  x: f32[B, H]\n  dy: f32[B, H]\n  eps: f32: 1e-5", "write `eps: f32 = 1e-5`",
    ),
    "RTF": ("\nfusion", "{\\rtf1\\ansi\nfusion", "this is an RTF file"),
    "HTML": ("\nfusion", "<!DOCTYPE html>\nfusion", "this is an HTML or XML file"),
    "PDF": ("\nfusion", "%PDF-1.7\nfusion", "this is a PDF file"),
    "Word": ("\nfusion", "PK\x03\x04\0fusion", "this is a Word file or another archive"),
    "a notebook": ("\nfusion", '{\n "cells": [\n  {}\n ]\n}\nfusion', "this is a notebook"),
    "an op line beside its section": (
        "ops:\n  - y = relu(x)\n  - z = dy * y\n", "ops: z = dy * x\n",
        "write `ops:` on a line of its own, and below it `- z = dy * x`",
    ),
    "the long form of a name": ("dy * y", "dyscale * y", "did you mean `dy`?"),
    "a field without an equal": ("outputs:", "version: 1\noutputs:", "known: fusion, doc, mesh"),
    "Markdown": ("outputs: [y, z]\n", "outputs: [y, z]\n```\n", "this is Markdown, not YAML"),
    "a copy along a dim": (
        "relu(x)", "cat([x, unsqueeze(dy, 0)], -1)",
        "write `y = cat([expand(unsqueeze(x, 0), [1, B, H]), unsqueeze(dy, 0)], 2)`",
    ),
    "an output without a phase": (
        "outputs: [y, z]\n",
        "outputs: [y, z]\nphases: {forward: [y], backward: {inputs: [dy], outputs: []}}\n",
        "as in `backward: {inputs: [dy], outputs: [z]}`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_help_says_what_to_write(name: str, tmp_path: Path, capsys) -> None:
    old, new, help = CASES[name]
    assert old in FILE
    path = tmp_path / "file.yaml"
    path.write_text(FILE.replace(old, new, 1))
    done = fusec(capsys, "check", path)
    assert done.code == 2
    assert help in done.err


def test_a_dtype_may_stand_second_in_define_tensor(tmp_path: Path, capsys) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        dedent("""
            from fusec import DataType, FusionDefinition

            with FusionDefinition() as fd:
                x = fd.define_tensor([4, 32], DataType.BFloat16)
                fd.add_output(fd.ops.relu(x))
        """)
    )
    done = fusec(capsys, "check", script)
    assert (done.code, "bf16[4, 32]" in done.out) == (0, True)


def test_sizes_are_set_by_another_option(tmp_path: Path, capsys) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(FILE)
    done = fusec(capsys, "run", path, "--shape", "B=8")
    assert done.code == 2
    assert "sizes are set with `--set`, as in `--set B=8`" in done.err


def test_an_output_of_a_changed_input_is_the_new_value(tmp_path: Path, capsys) -> None:
    """After `dy.add_(x)` the name is that of the result, under `outputs:` too."""
    path = tmp_path / "file.yaml"
    changed = FILE.replace("- y = relu(x)", "- dy.add_(x)").replace("dy * y", "dy * x")
    path.write_text(changed.replace("[y, z]", "[z, dy: {alias: dy}]"))
    done = fusec(capsys, "check", path)
    assert done.code == 2
    assert done.err.count("error[") == 1
    assert "is not an input" not in done.err
