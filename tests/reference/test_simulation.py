"""Errors that are simulated where first-order bounds leave a verdict inconclusive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fake_cupy
import numpy as np
import pytest

from fusec.ir.arrays import computed_by, host
from fusec.ir.graph import Fusion
from fusec.parse.reader import read_text
from fusec.reference import verdict
from fusec.reference.errors.nodes import Model
from fusec.reference.simulation import MARGIN, simulate
from fusec.reference.stream import estimate
from fusec.run.inputs import random_inputs
from tools.injected_faults import injected_faults
from tools.single import evaluate_single, rounded, stored
from tools.verdicts import ENTROPIES, ORDERS, Setting, with_entropy

WIDTH, ROWS = 32, 16
LAYERS = {
    "gelu": (("w", 1, 1), ["{y} = gelu(linear({x}, w{n}))"]),
    "norm": (
        ("a", 4, 1, "b", 1, 4),
        [
            "n{n} = layer_norm({x}, [{width}])",
            "g{n} = gelu(linear(n{n}, a{n}))",
            "{y} = add({x}, linear(g{n}, b{n}))",
        ],
    ),
    "attention": (
        ("q", 1, 1, "k", 1, 1, "v", 1, 1),
        [
            "n{n} = layer_norm({x}, [{width}])",
            "s{n} = matmul(linear(n{n}, q{n}), permute(linear(n{n}, k{n}), [1, 0]))",
            "p{n} = softmax(mul(s{n}, 0.2), dim=1)",
            "{y} = add({x}, matmul(p{n}, linear(n{n}, v{n})))",
        ],
    ),
}
DEEP = {"gelu": 12, "norm": 4, "attention": 3}


def model_of(kind: str, layers: int, last: str = "") -> Fusion:
    """Return layers one after the other, in f32, and what is made of the last one's result `h`."""
    (*weights,), lines = LAYERS[kind]
    inputs, ops = [f'x0: "f32[{ROWS}, {WIDTH}]"'], list[str]()
    for n in range(layers):
        for name, out, of in zip(*[iter(weights)] * 3, strict=True):
            inputs.append(f'{name}{n}: "f32[{int(out) * WIDTH}, {int(of) * WIDTH}]"')
        names = {"x": f"x{n}", "y": f"x{n + 1}", "n": n, "width": WIDTH}
        ops += [line.format(**names) for line in lines]
    ops.append(f"y = {last.format(f'x{layers}') or f'mul(x{layers}, 1.0)'}")
    body = "".join(f"  - {line}\n" for line in ops)
    return read_text(f"fusion: f\ninputs: {{{', '.join(inputs)}}}\nops:\n{body}outputs: [y]\n")


@pytest.mark.parametrize("op", ["log10", "exp"])
def test_values_behind_complex_ones_are_not_simulated(op: str) -> None:
    """Errors of real and imaginary parts are not apart; the verdict is that of the bounds."""
    text = f"fusion: f\ninputs: {{x: 'c64[9]', at: 'i64[8]'}}\nops:\n  - y = {op}(x)\n"
    text += "  - v = var(index_select(y, at, dim=0), dims=[0])\noutputs: [v]\n"
    fusion = read_text(text)
    given = random_inputs(fusion, {}, 0)
    wanted = [o.value for o in fusion.outputs]
    assert simulate(fusion, given, {}, Model(), wanted, 10.0, 0) == {}


def inputs_of(fusion: Fusion, entropy: str = "random", seed: int = 0) -> dict[str, Any]:
    """Return inputs, weights scaled as those of models."""
    rng, found = np.random.default_rng(seed), dict[str, Any]()
    for entry in fusion.inputs:
        shape = [e.evaluate({}) for e in entry.value.shape]
        scale = 1.0 if entry.value.name == "x0" else shape[-1] ** -0.5
        found[entry.value.name] = (rng.standard_normal(shape) * scale).astype(np.float32)
    return with_entropy(fusion, found, entropy, seed)


def computed(fusion: Fusion, inputs: Mapping[str, Any], setting: Setting) -> dict[str, Any]:
    """Return right results, before they are stored."""
    with np.errstate(all="ignore"):
        return evaluate_single(fusion, inputs, {}, setting.arithmetic())


@pytest.mark.parametrize(
    ("kind", "order"),
    [
        ("gelu", "serial"),
        ("attention", "chains"),
        pytest.param("norm", "tree", marks=pytest.mark.nightly),
    ],
)
def test_deep_models_are_decided(kind: str, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fusion, setting = model_of(kind, DEEP[kind]), Setting(order)
    inputs = inputs_of(fusion)
    found = stored(fusion, computed(fusion, inputs, setting))
    model = setting.model(fusion, {})

    def judged() -> verdict.Verdict:
        return verdict.compare(fusion, {}, inputs, found, model=model, poison=False)

    decided = judged()
    assert decided.ok
    assert decided.power < 1e-3
    found["y"][3, 5] += 1e-2 * np.abs(found["y"]).max()
    assert judged().word == verdict.DIFFERS
    monkeypatch.setattr(verdict, "simulate", lambda *_: {})  # pyright: ignore[reportUnknownLambdaType]
    assert judged().word == verdict.NOT_DECIDED


@pytest.mark.parametrize("kind", LAYERS)
def test_wrong_results_of_deep_models_are_found(kind: str) -> None:
    """Sums that lack a part in any layer, results of other inputs, in other places, scaled."""
    fusion, setting = model_of(kind, DEEP[kind]), Setting("chains")
    inputs, before = inputs_of(fusion), inputs_of(fusion, seed=1)
    right, (value,) = computed(fusion, inputs, setting), (o.value for o in fusion.outputs)
    model = setting.model(fusion, {})
    expected = simulate(fusion, inputs, {}, model, [value], float("inf"), 0)[value]
    assert verdict.verdict_on(value, right["y"].astype(np.float32), expected).ok
    made = [
        m
        for m in injected_faults(fusion, inputs, before, {}, setting.arithmetic(), right)
        if m.counts(right["y"], expected)
    ]
    assert len(made) > 3
    for mistake in made:
        wrong = rounded(mistake.wrong, value.dtype)
        assert verdict.verdict_on(value, wrong, expected).word == verdict.DIFFERS, mistake.kind


@pytest.mark.parametrize("entropy", ENTROPIES)
@pytest.mark.parametrize("kind", LAYERS)
def test_errors_are_as_large_as_simulated(kind: str, entropy: str) -> None:
    """Those of f32 evaluations; of equal elements, too, which err alike."""
    fusion = model_of(kind, 2)
    inputs, (value,) = inputs_of(fusion, entropy), (o.value for o in fusion.outputs)
    for setting in map(Setting, ORDERS):
        found = computed(fusion, inputs, setting)["y"]
        model = setting.model(fusion, {})
        expected = simulate(fusion, inputs, {}, model, [value], float("inf"), 0)[value]
        ratios = np.abs(found - expected.value) / expected.sigma
        assert float(np.max(ratios)) < 4
        assert float(np.mean(np.square(ratios))) < 1


def test_one_product_is_simulated_as_it_is_bounded() -> None:
    fusion = read_text(
        "fusion: f\ninputs: {x: 'f32[64, 512]', w: 'f32[48, 512]'}\n"
        "ops:\n  - y = linear(x, w)\noutputs: [y]\n"
    )
    inputs, (value,) = random_inputs(fusion, {}), (o.value for o in fusion.outputs)
    simulated = simulate(fusion, inputs, {}, Model(), [value], float("inf"), 0)[value]
    known = estimate(fusion, inputs, {})["y"]
    ratios = simulated.sigma / (MARGIN * known.sigma)
    assert np.mean(np.square(ratios)) == pytest.approx(1, abs=0.6)
    assert float(np.min(ratios)) > 0.2


@pytest.mark.parametrize(
    "last",
    [
        "where(gt({0}, 0.0), {0}, 0.0)",
        "exp(cast(cast({0}, bf16), f32))",
        "floor({0})",
        "cast({0}, i32)",
        "argmax({0}, dim=1)",
    ],
)
def test_jumps_are_not_simulated(last: str) -> None:
    """Few evaluations show what few elements do."""
    fusion = model_of("gelu", 2, last)
    value = fusion.outputs[0].value
    assert not simulate(fusion, inputs_of(fusion), {}, Model(), [value], float("inf"), 0)


def test_outputs_beside_one_that_jumps_are_simulated() -> None:
    text = (
        "fusion: f\ninputs: {x: 'f32[8, 64]', w: 'f32[64, 64]'}\nops:\n  - y = linear(x, w)\n"
        "  - v, m = var_mean(y, dims=[1])\n  - z = floor(y)\n  - u = exp(z)\n"
        "outputs: [y, v, m, z, u, x]\n"
    )
    fusion = read_text(text)
    wanted = [o.value for o in fusion.outputs]
    found = simulate(fusion, random_inputs(fusion, {}), {}, Model(), wanted, float("inf"), 0)
    assert [v.name for v in found] == ["y", "v", "m"]


def test_a_result_may_be_rounded_last() -> None:
    fusion = model_of("gelu", 12, "cast({0}, bf16)")
    inputs, setting = inputs_of(fusion), Setting("tree")
    found = stored(fusion, computed(fusion, inputs, setting))
    assert verdict.compare(fusion, {}, inputs, found, poison=False).ok


def test_what_takes_too_long_is_not_simulated() -> None:
    fusion = model_of("gelu", 2)
    value = fusion.outputs[0].value
    assert not simulate(fusion, inputs_of(fusion), {}, Model(), [value], 1e-9, 0)


def test_simulations_on_a_gpu_have_the_same_errors() -> None:
    fusion = model_of("gelu", 1)
    inputs, value = inputs_of(fusion), fusion.outputs[0].value
    arguments = (fusion, inputs, {}, Model(), [value], float("inf"), 0)
    here = simulate(*arguments)[value].sigma
    with computed_by(fake_cupy):
        there = host(simulate(*arguments)[value].sigma)
    np.testing.assert_allclose(there, here, rtol=0.2)
