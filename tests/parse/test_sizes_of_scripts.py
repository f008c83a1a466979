"""Arithmetic of a script's dims: as in files, `D // 2` is a size and `D ** -0.5` a number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_tools import fusec

from fusec import DataType, FusionDefinition
from fusec.ir.dim import Dim
from fusec.reference.evaluate import evaluate

VALUES = {
    "x * D**-0.5": lambda x: x * 6**-0.5,
    "x / D**0.5": lambda x: x / 6**0.5,
    "x * (1 / D)": lambda x: x / 6,
    "x + D / 4": lambda x: x + 1.5,
    "x + 0.5 * D": lambda x: x + 3,
    "x + (D - 1.5)": lambda x: x + 4.5,
    "D * x": lambda x: x * 6,
    "x * 2**D": lambda x: x * 64,
    "x + -D % 4 + D**2 // T": lambda x: x + 2 + 9,
    "x[:, : D // 2].sum(-1, keepdim=True) + x": lambda x: x[:, :3].sum(-1, keepdims=True) + x,
}


@pytest.mark.parametrize("text", VALUES)
def test_dims_are_numbers_in_arithmetic(text: str) -> None:
    with FusionDefinition() as fd:
        T, D = fd.define_dim("T", 4), fd.define_dim("D", 6)
        x = fd.define_tensor(shape=[T, D], contiguity=True, dtype=DataType.Double)
        y = eval(text, {"x": x, "D": D, "T": T})
        fd.add_output(y)
    fusion, given = fd.fusion(), np.arange(24.0).reshape(4, 6)
    (found,) = evaluate(fusion, {"x": given}, {"T": 4, "D": 6}).values()
    np.testing.assert_allclose(found, VALUES[text](given))
    # The graph holds plain sizes, never the definition.
    assert all(type(d) is Dim for v in fusion.values for d in v.shape)


SAID = {
    "x[:, : D / 2]": "`D // 2` is half of the size `D`",
    "x * float(D)": "write `y = x * D`",
    "x / D.sqrt()": "write `fd.ops.sqrt(D)`",
    "x * math.sqrt(D)": "write `y = x * fd.ops.sqrt(D)`",
    "fd.ops.add_output(x)": "write `y = fd.add_output(x)`",
}


@pytest.mark.parametrize("text", SAID)
def test_scripts_are_told_how_sizes_are_written(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "s.py"
    script.write_text(
        "import math\nfrom fusec import DataType, FusionDefinition\n\n"
        'with FusionDefinition("t") as fd:\n    D = fd.define_dim("D", 16)\n'
        "    x = fd.define_tensor(shape=[4, D], contiguity=True, dtype=DataType.Float)\n"
        f"    y = {text}\n    fd.add_output(y)\n"
    )
    result = fusec(capsys, "check", script)
    assert result.code == 2
    assert SAID[text] in result.err
