"""Emitted C does what fusec's own launcher does, on a stand-in for libcuda that checks calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from emitted import Called, Emitted, FakeCuda, compiled
from emulated import emulated

from fusec.ir.graph import Fusion
from fusec.parse import read_text
from fusec.run.execute import execute
from fusec.run.inputs import choose_sizes, random_inputs

FUSIONS = {
    "one_kernel": """\
fusion: one_kernel
dims: {B: 5, H: 64}
inputs:
  x: bf16[B, H]
  w: f32[H]
  eps: f32 = 1e-5
ops:
  - y = cast(add(mul(cast(x, f32), w), eps), bf16)
outputs: [y]
""",
    "several": """\
fusion: several
dims: {B: 6, H: 256}
inputs:
  x: f32[B, H]
ops:
  - a = sum(x, dims=[1])
  - s = sum(x, dims=[0])
  - n = softmax(x, dim=0)
  - t, i = sort(n, dim=1)
  - y = add(t, reshape(a, [B, 1]))
outputs: [y, s]
""",
    "strided": """\
fusion: strided
dims: {M: 40, N: 24}
inputs:
  x:
    type: f32[M, N]
    contiguity: [false, true]
  y: f32[M, N]
ops:
  - z = add(x, y)
outputs: [z]
""",
    "in_place": """\
fusion: in_place
dims: {B: 6, H: 40}
inputs:
  p: f32[B, H]
  g: f32[B, H]
  k: i64 = 3
ops:
  - q = sub(p, mul(g, 0.5))
  - m = max(q, dims=[1])
  - r = mul(m, cast(k, f32))
outputs:
  - q: {alias: p}
  - r
""",
    "scalars": """\
fusion: scalars
dims: {H: 32}
inputs:
  x: f64[H]
  a: f64 = 0.1
  b: f32 = 0.1
  c: f16 = 0.1
  d: bf16 = 0.1
  e: i64 = -5
  f: i32 = -6
  g: bool = true
  z: c64
ops:
  - s = add(add(cast(a, f64), cast(b, f64)), add(cast(c, f64), cast(d, f64)))
  - i = add(cast(e, f64), cast(f, f64))
  - u = where(g, s, i)
  - y = add(mul(x, u), cast(real(z), f64))
  - w = sub(y, mul(cast(imag(z), f64), i))
outputs: [w]
""",
    "complex": """\
fusion: complex
dims: {B: 4, H: 6}
inputs:
  z: c64[B, H]
ops:
  - y = mul(z, z)
outputs: [y]
""",
    "views": """\
fusion: views
dims: {B: 4, H: 6}
inputs:
  x: f32[B, H]
ops:
  - y = permute(x, [1, 0])
  - e = exp(x)
outputs: [y, e]
""",
    "once": """\
fusion: once
dims: {B: 4096, H: 64}
inputs:
  x: f32[B, H]
ops:
  - m = sum(x, dims=[0])
outputs: [m]
""",
}


def fusion_of(name: str) -> Fusion:
    return read_text(FUSIONS[name], f"{name}.yaml")


def as_plain(value: object) -> object:
    return complex(value) if isinstance(value, np.complexfloating) else value  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FUSIONS)
def test_runs_as_fusec_does(name: str, tmp_path: Path) -> None:
    fusion = fusion_of(name)
    emitted = Emitted(compiled(fusion), tmp_path)
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes)
    cuda = FakeCuda(80)
    program = emitted.create()
    workspace = emitted.workspace(cuda, program, sizes)
    called = Called(emitted, cuda, inputs, folder=tmp_path)
    device = emulated(emitted.program, tmp_path)
    cubins = dict.fromkeys(device.kernels, b"")
    expected = execute(device, emitted.program.host, cubins, inputs, sizes)
    kernels = [x.kernel for x in emitted.program.host.launches]
    assert called.run(program, workspace) == 0
    assert called.launched == kernels
    assert cuda.count("launches") == len(kernels)
    for output in emitted.program.host.outputs:
        assert np.array_equal(called.output(output), expected[output], equal_nan=True), output
    if not emitted.program.host.aliases:
        assert called.run(program, workspace) == 0
        for output in emitted.program.host.outputs:
            assert np.array_equal(called.output(output), expected[output], equal_nan=True), output
    blocks = cuda.count("blocks")
    assert emitted.function("destroy")(program) == 0
    assert cuda.count("modules") == 0
    assert cuda.count("blocks") == blocks
