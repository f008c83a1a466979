"""A command line run in this process, and the small fusions that the tests of commands use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from paths import ROOT

from fusec.cli import run_main

EXAMPLES = ROOT / "examples"

SMALL = """\
fusion: small
doc: The exponential of a sum.
dims: {B: 8, H: {default: 16, multiple_of: 4}}
inputs:
  x: bf16[B, H]
  w: f32[H]
  s: f32 = 2.0
ops:
  - z = exp(add(cast(x, f32), w))
  - y = cast(mul(z, s), bf16)
outputs: [y]
"""

SCRIPT = """\
import numpy as np
from nvfuser import DataType, FusionDefinition

def make(op):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float)
        fd.add_output(op(fd, x))
    return fd

first = make(lambda fd, x: fd.ops.exp(x))
second = make(lambda fd, x: fd.ops.sum(x, dims=[1]))
"""
EXECUTED = (
    SCRIPT
    + """
a = np.linspace(0, 1, 24, dtype=np.float32).reshape(4, 6)
(y,) = first.execute([a])
assert np.allclose(y, np.exp(a)), y
(s,) = second.execute([y])
assert s.shape == (4,)
print("the script is done")
"""
)


@dataclass(frozen=True)
class Result:
    """What a command line did."""

    code: int
    out: str
    err: str

    def says(self, code: int, *parts: str) -> None:
        """Assert the exit code, and that stderr has every part and no Python traceback."""
        assert self.code == code, self.out + self.err
        assert "Traceback" not in self.err
        for part in parts:
            assert part in self.err, self.err


def fusec(capsys: pytest.CaptureFixture[str], *arguments: object) -> Result:
    """Run a command line in this process."""
    capsys.readouterr()
    code = run_main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return Result(code, out, err)


def small(folder: Path, text: str = SMALL, name: str = "small.yaml") -> Path:
    """Write a fusion file and return its path."""
    path = folder / name
    path.write_text(text)
    return path
