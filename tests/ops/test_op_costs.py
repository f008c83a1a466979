"""Costs of operations against machine code: instructions per element, counted by nvdisasm."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from fusec.diagnostics import EnvironmentProblem
from fusec.ops import TABLE
from fusec.parse import read_text
from fusec.run.binary.headers import device_headers
from fusec.run.binary.nvrtc import compile_cuda
from fusec.run.binary.sass import find_tool, sass
from fusec.segment.traffic import work

ELEMENTS = 8
"""Of a thread: what they share, as constants, counts little."""
OPCODE = re.compile(r"^\s+/\*[0-9a-f]{4,5}\*/\s+(?:@!?U?P\w+ )?([A-Z][A-Z0-9_]*)", re.MULTILINE)
HELD = (
    "add", "sub", "mul", "div", "minimum", "maximum", "eq", "lt", "exp", "exp_approx", "exp2",
    "exp2_approx", "expm1", "log", "log1p", "log2", "sqrt", "rsqrt", "sigmoid", "sigmoid_approx",
    "silu", "silu_approx", "erf", "erfc", "gelu_approx", "tanh", "tanh_approx", "abs", "neg",
    "relu", "reciprocal", "floor", "round",
)  # fmt: skip
"""What fusions mostly consist of. Where a function branches for rare operands (sin, pow, fmod), the
code says little of what is run."""
TOLERANCE = 0.2
DRAWS = """
extern "C" __global__ void op_uniform(float* out, fusec::u64 seed, fusec::u64 offset, int first) {
  const auto words = fusec::random_words<8>(seed, offset, fusec::u64(first + threadIdx.x * 8));
#pragma unroll
  for (int i = 0; i < 8; ++i) out[32 * i + threadIdx.x] = fusec::uniform_f32(0.0f, 1.0f, words, i);
}
extern "C" __global__ void none_0(float* out, float value) {
#pragma unroll
  for (int i = 0; i < 8; ++i) out[32 * i + threadIdx.x] = value;
}
"""


def kernel(name: str, expression: str, operands: int) -> str:
    """Return a kernel that computes an expression of `a` and `b` for the elements of a thread."""
    names = "ab"[:operands]
    pointers = "".join(f"const float* {n}_in, " for n in names)
    loads = " ".join(f"const float {n} = {n}_in[at];" for n in names)
    return (
        f'extern "C" __global__ void {name}({pointers}float* out) {{\n#pragma unroll\n'
        f"  for (int i = 0; i < {ELEMENTS}; ++i) {{\n    const int at = threadIdx.x + 32 * i;\n"
        f"    {loads}\n    out[at] = {expression};\n  }}\n}}\n"
    )


def counted(texts: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Return (instructions on the way to the end, of these special functions) of each kernel."""
    headers = ("fast_math", "math", "philox", "types")
    source = "".join(f'#include "{name}.cuh"\n' for name in headers) + "\n".join(texts.values())
    built = compile_cuda(source, name="costs.cu", arch="sm_90a", headers=device_headers())
    found: dict[str, tuple[int, int]] = {}
    for part in sass(built.cubin).split("//--------------------- .text.")[1:]:
        codes = OPCODE.findall(part)
        codes = codes[: codes.index("EXIT") + 1]
        found[part.split()[0]] = len(codes), codes.count("MUFU")
    return found


@pytest.fixture(scope="module")
def costs() -> dict[str, tuple[float, float]]:
    """Return (other instructions, special functions) per element of each operation, in f32."""
    pytest.importorskip("cuda.bindings.nvrtc")
    try:
        find_tool("nvdisasm")
    except EnvironmentProblem as missing:
        pytest.skip(str(missing))
    texts = {"draws": DRAWS, **{f"none_{n}": kernel(f"none_{n}", "ab"[n - 1], n) for n in (1, 2)}}
    for name in HELD:
        op = TABLE[name]
        cuda = next(op.cuda[key] for key in ("f32", "float", "default") if key in op.cuda)
        names = [p.name for p in op.operands]
        text = cuda.format(**dict(zip(names, "ab", strict=False)))
        texts[name] = kernel(f"op_{name}", text, len(names))
    texts["none_2"] = kernel("none_2", "__int_as_float(__float_as_int(a) ^ __float_as_int(b))", 2)
    found = counted(texts)
    result: dict[str, tuple[float, float]] = {}
    for name in (*HELD, "uniform"):
        count = len(TABLE[name].operands) if name in HELD else 0
        total, special = found[f"op_{name}"]
        # What takes two operands is compared with another operation of one instruction.
        plain = found[f"none_{count}"][0] - ELEMENTS * (count == 2)
        result[name] = ((total - special - plain) / ELEMENTS, special / ELEMENTS)
    return result


@pytest.mark.parametrize("name", [*HELD, "uniform"])
def test_costs_are_those_of_machine_code(name: str, costs: dict[str, tuple[float, float]]) -> None:
    cost, (flops, special) = TABLE[name].cost, costs[name]
    assert cost.sfu == special
    assert cost.flops == pytest.approx(flops, rel=TOLERANCE, abs=0.5)


@pytest.mark.parametrize(
    ("dtype", "weight"), [("f32", 1), ("bf16", 1), ("f64", 2), ("i32", 2), ("u8", 2), ("i64", 4)]
)
def test_integers_take_twice_as_long_as_floats_of_their_width(dtype: str, weight: int) -> None:
    text = f"fusion: squares\ninputs: {{x: '{dtype}[64]'}}\nops:\n  - y = mul(x, x)\noutputs: [y]\n"
    assert work(read_text(text)) == (64 * weight, 0)
