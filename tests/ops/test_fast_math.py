"""The forms in fewer instructions: their errors, where they are taken, and what verdicts expect.

On the host ex2 and rcp are off by all that the PTX manual allows (device/ptx_on_cpu.h).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cuda_on_cpu import run_plan
from families import plan_of

from fusec.driver import Compilation, model_of
from fusec.ir.graph import Fusion
from fusec.ops import TABLE
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.passes.half_ends import UNIT
from fusec.reference.verdict import Verdict, compare
from fusec.run.arrays import StridedArray, dense_strides
from fusec.run.inputs import random_inputs

FORMS = [name for name, op in TABLE.items() if op.is_form]
SAMPLES = 1 << 17
OPTIONS = CompileOptions()
PRECISE = replace(OPTIONS, precise=True)


def dense(x: np.ndarray) -> StridedArray:
    return StridedArray(x.ravel(), x.shape, dense_strides(x.shape))


def operands() -> np.ndarray:
    """Return all numbers of bf16, and floats of every size."""
    generator = np.random.default_rng(5)
    bf16 = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(ml_dtypes.bfloat16)
    sizes = np.exp2(generator.uniform(-30, 8, SAMPLES)) * generator.choice([-1.0, 1.0], SAMPLES)
    near = generator.normal(0, 3, SAMPLES)
    with np.errstate(all="ignore"):
        return np.concatenate([bf16, sizes, near], dtype=np.float32)


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> tuple[np.ndarray, dict[str, Any]]:
    """Return operands, and every form of them as its kernel computes it."""
    x = operands()
    lines = "".join(f"  - {name}_y = {name}(x)\n" for name in FORMS)
    outputs = ", ".join(f"{name}_y" for name in FORMS)
    text = f"fusion: forms\ninputs: {{x: 'f32[{len(x)}]'}}\nops:\n{lines}outputs: [{outputs}]\n"
    plan = plan_of("pointwise", read_text(text))
    found = run_plan(plan, {"x": dense(x)}, tmp_path_factory.mktemp("forms"))
    return x, {name: found[f"{name}_y"] for name in FORMS}


@pytest.mark.parametrize("name", FORMS)
def test_errors_are_as_declared(name: str, computed: tuple[np.ndarray, dict[str, Any]]) -> None:
    op, found = TABLE[name], computed[1][name].astype(np.float64)
    with np.errstate(all="ignore"):
        x = computed[0].astype(np.float64)
        exact = op.reference(x)
        terms = np.abs(exact) if op.terms is None else op.terms(x, exact)
    assert np.all(np.isnan(found) == np.isnan(exact))
    large = np.abs(exact) >= 2.0**127.9
    assert np.all(np.isinf(found[np.isinf(exact)]))
    regular = np.isfinite(exact) & ~large
    off, terms = np.abs(found[regular] - exact[regular]), terms[regular]
    limit = op.accuracy * UNIT * terms + 2.0**-126
    worst = np.argmax(off / limit)
    assert off[worst] <= limit[worst], x[regular][worst]
    assert off[worst] > 0.3 * limit[worst]  # nothing is declared far above what it is
    if name == "gelu_approx":
        return  # what it is compared with by `largest` is the product that it stands for
    normal = np.abs(exact[regular]) > 2.0**-90
    relative = op.accuracy * terms[normal] / np.abs(exact[regular][normal])
    assert np.max(relative) <= op.largest


GELU = """\
fusion: {name}
dims: {{B: 64, H: 512}}
inputs: {{x: "bf16[B, H]", r: "{dtype}[B, H]"}}
ops:
  - z = cast(x, f32)
{body}
  - y = cast({last}, {dtype})
outputs: [y]
"""
TANH = "tanh(mul(add(z, mul(mul(mul(z, z), z), 0.044715)), 0.7978845608))"
COMPOSITIONS = {
    "gelu": "gelu(z)",
    "tanh_gelu": "gelu(z, approximate=tanh)",
    "erf_at_the_end": "mul(mul(z, add(1, erf(mul(0.70710678, z)))), 0.5)",
    "erf_and_factor": "mul(mul(mul(cast(r, f32), z), 0.5), add(erf(mul(z, 0.70710678)), 1))",
    "tanh_first": f"mul(mul(0.5, add(1, {TANH})), z)",
    "tanh_of_input": "mul(mul(0.5, add(tanh(z), 1.0)), cast(r, f32))",
    "silu": "silu(z)",
    "tanh": "tanh(z)",
    "tanh_and_square": "mul(tanh(z), sub(1.0, mul(tanh(z), tanh(z))))",
    "exp": "exp(mul(z, z))",
    "gate": "mul(sigmoid(z), cast(r, f32))",
    "softmax": "softmax(z, 1)",
    "mean_of_exp": "div(z, add(sum(exp(z), dims=[1], keepdim=true), 1.0))",
}


def fusion_of(body: str, dtype: str = "bf16", name: str = "composed") -> Fusion:
    return read_text(GELU.format(name=name, body=f"  - last = {body}", last="last", dtype=dtype))


def verdict_of(fusion: Fusion, options: CompileOptions, folder: Path) -> Verdict:
    """Return how kernels that run on the host compare."""
    program, sizes = Compilation(fusion, options), fusion.hints
    inputs = dict(random_inputs(fusion, sizes))
    x = np.random.default_rng(1).normal(0, 3, inputs["x"].shape)
    inputs["x"] = dense(x.astype(ml_dtypes.bfloat16))
    (plan,) = program.plans
    outputs = run_plan(plan, inputs, folder)
    return compare(fusion, sizes, inputs, outputs, model=model_of(program.host, sizes))


def ops_of(fusion: Fusion) -> list[str]:
    return [n.op.name for n in fusion.nodes]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((n, "bf16") for n in COMPOSITIONS), ("gelu", "f16"), ("tanh_gelu", "f16"), ("exp", "f16")],
)
def test_compositions_take_forms(name: str, dtype: str, tmp_path: Path) -> None:
    fusion = fusion_of(COMPOSITIONS[name], dtype)
    program = Compilation(fusion, OPTIONS)
    assert any(n.op.is_form for n in program.fusion.nodes)
    left = {"erf", "tanh", "exp", "sigmoid", "silu", "div"} & set(ops_of(program.fusion))
    assert not left
    assert program.host.approximated or program.host.inside
    verdict = verdict_of(fusion, OPTIONS, tmp_path)
    assert verdict.ok, verdict.text()
    assert verdict.power < 2e-2
    precise = Compilation(fusion, PRECISE)
    assert not any(n.op.is_form for n in precise.fusion.nodes)
    assert not precise.host.approximated
    assert not precise.host.inside
    assert "_approx(" not in precise.kernel_sources[0].text


EXACT = {
    "an output in f32": (COMPOSITIONS["gelu"], "f32"),
    "an output in f64": ("cast(exp(z), f64)", "f64"),
    "a comparison": ("where(gt(exp(z), 1.0), z, 0.0)", "bf16"),
    "a jump": ("floor(exp(z))", "bf16"),
    "a position": ("cast(argmax(exp(z), dim=1, keepdim=true), f32)", "bf16"),
    "an exponent": ("exp(exp(z))", "bf16"),
    "what cancels": ("log(sigmoid(z))", "bf16"),
    "a variance": ("var(exp(z), dims=[1], keepdim=true)", "bf16"),
}


@pytest.mark.parametrize("what", EXACT)
def test_what_the_rounding_does_not_hide_stays(what: str) -> None:
    body, dtype = EXACT[what]
    given = Compilation(fusion_of(body, dtype), OPTIONS)
    precise = Compilation(fusion_of(body, dtype), PRECISE)
    inner = ops_of(given.fusion)
    if what == "an exponent":
        assert inner.count("exp") == inner.count("exp_approx") == 1
    else:
        assert given.kernel_sources == precise.kernel_sources


def test_another_use_in_f32_keeps_all_exact() -> None:
    text = GELU.format(name="two", body="  - e = exp(z)", last="e", dtype="bf16")
    both = read_text(text.replace("outputs: [y]", "outputs: [y, e]"))
    assert "exp_approx" not in ops_of(Compilation(both, OPTIONS).fusion)
    one = read_text(text)
    assert "exp_approx" in ops_of(Compilation(one, OPTIONS).fusion)


def test_a_verdict_without_the_forms_is_too_narrow(tmp_path: Path) -> None:
    """What erf declares does not hold the form around it: the program has to say that it is one."""
    fusion = read_text(
        "fusion: g\ninputs: {x: 'f32[65536]'}\nops:\n  - e = erf(mul(x, 0.7071067811865476))\n"
        "  - y = mul(mul(x, 0.5), add(e, 1.0))\noutputs: [y]\n"
    )
    form = read_text(
        "fusion: g\ninputs: {x: 'f32[65536]'}\nops:\n  - y = gelu_approx(x)\noutputs: [y]\n"
    )
    x = np.linspace(-4, 4, 65536, dtype=np.float32)
    found = run_plan(plan_of("pointwise", form), {"x": dense(x)}, tmp_path)
    host = Compilation(fusion, OPTIONS).host
    for chosen, right in (((), False), (("e",), True)):
        model = model_of(replace(host, inside=chosen), {})
        assert compare(fusion, {}, {"x": x}, found, model=model).ok == right


def test_a_form_of_tanh_is_off_near_zero(tmp_path: Path) -> None:
    """By more than tanh declares: the program has to say that it is one."""
    fusion = read_text("fusion: g\ninputs: {x: 'f32[8192]'}\nops: [y = tanh(x)]\noutputs: [y]\n")
    form = read_text(
        "fusion: g\ninputs: {x: 'f32[8192]'}\nops: [y = tanh_approx(x)]\noutputs: [y]\n"
    )
    x = np.linspace(0.005, 0.1, 8192, dtype=np.float32)
    found = run_plan(plan_of("pointwise", form), {"x": dense(x)}, tmp_path)
    host = Compilation(fusion, OPTIONS).host
    for chosen, right in (((), False), (("y",), True)):
        model = model_of(replace(host, approximated=chosen), {})
        assert compare(fusion, {}, {"x": x}, found, model=model).ok == right


def test_divisors_that_are_inputs_stay() -> None:
    scaled = fusion_of(
        "div(z, broadcast_in_dim(slice(cast(r, f32), [0, 0], [B, 1]), [B, H], [0, 1]))"
    )
    assert "div" in ops_of(Compilation(scaled, OPTIONS).fusion)
    literal = fusion_of("div(z, 3.0)")
    assert "div" not in ops_of(Compilation(literal, OPTIONS).fusion)
    assert "div" in ops_of(Compilation(fusion_of("div(z, 1e-40)"), OPTIONS).fusion)
