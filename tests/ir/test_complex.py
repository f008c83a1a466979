"""Complex numbers before kernels: types, text, refusals, pairs of reals, error bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from complex_on_cpu import fusion_of
from simulated import simulate

from fusec import DataType, FusionDefinition
from fusec.diagnostics import FusecError, Unsupported
from fusec.ir import dtype as dtypes
from fusec.ir.annotations import Pin
from fusec.ir.dtype import C64, C128, F32, I64, DType
from fusec.ir.graph import Fusion, Input, Operand
from fusec.ir.text import to_text
from fusec.ir.verify import verify
from fusec.ops import TABLE
from fusec.ops.builder.build import GraphBuilder
from fusec.ops.complexes import COMPLEX, MOVED
from fusec.pages.operations import describe
from fusec.parse import read_text
from fusec.parse.twin import to_python
from fusec.passes import run_pipeline
from fusec.passes.complex_as_pairs import complex_as_pairs
from fusec.reference.errors.estimate import LIMIT
from fusec.reference.evaluate import evaluate
from fusec.reference.stream import estimate
from fusec.reference.verdict import compare
from fusec.run.inputs import choose_sizes, random_inputs

ANSWERS = [
    ("t:c64", "t:f32", "c64"), ("t:c64", "t:f64", "c128"), ("t:c64", "t:bf16", "c64"),
    ("t:c64", "t:i64", "c64"), ("t:c64", "t:bool", "c64"), ("t:c64", "t:c128", "c128"),
    ("t:c64", "z:f64", "c64"), ("t:c64", "z:c128", "c64"), ("t:f32", "z:c128", "c64"),
    ("t:f64", "z:c64", "c128"), ("t:i32", "z:c128", "c128"), ("t:f32", 1j, "c64"),
    ("t:f64", 1j, "c128"), ("t:i64", 1j, "c64"), ("t:bool", 1j, "c64"), ("t:c128", 1j, "c128"),
    ("t:c64", 2.5, "c64"), ("z:c64", "z:f64", "c128"), ("t:f32", "s:c128", "c64"),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right", "answer"), ANSWERS)
def test_promotion(left: str, right: Any, answer: str) -> None:
    for turned in (False, True):
        builder = GraphBuilder()
        operands: list[Any] = []
        for name, text in (("a", left), ("b", right)):
            kind, _, dtype = str(text).partition(":")
            shape = {"t": [2, 3], "z": [], "s": None}.get(kind)
            made = builder.input(name, dtypes.find(dtype), shape) if dtype else text
            operands.append(made)
        result = builder.apply("mul", *(operands[::-1] if turned else operands))
        assert str(result.type.dtype) == answer


REFUSED = sorted(
    name for name, op in TABLE.items()
    if name not in COMPLEX and op.family in ("pointwise", "reduction", "scan", "sort", "scatter")
)  # fmt: skip


def call(builder: GraphBuilder, name: str, x: Operand) -> None:
    """Call an operation on a complex tensor wherever it takes an operand."""
    index = builder.input("i", I64, [3])
    operands = [
        index if p.name in ("index", "indices") else x for p in TABLE[name].operands
    ]  # fmt: skip
    given: dict[str, Any] = {"dim": 0, "k": 1, "dims": [0]}
    known = {p.name for p in TABLE[name].attributes}
    attributes = {key: value for key, value in given.items() if key in known}
    builder.call(name, operands, attributes)


@pytest.mark.parametrize("name", REFUSED)
def test_what_complex_numbers_lack_is_refused_by_name(name: str) -> None:
    builder = GraphBuilder()
    with pytest.raises(Unsupported, match=f"`{name}` of complex numbers") as caught:
        call(builder, name, builder.input("x", C64, [3]))
    assert caught.value.exit_code == 3


def test_every_operation_that_is_taken_has_a_rule() -> None:
    others = {"where", "cast", "complex", "size", "var", "var_mean", "matmul", "linear"}
    primitives = {n for n in COMPLEX if TABLE[n].family != "composite"}
    logic = {n for n in COMPLEX if n.startswith("logical_")}
    written = {op.name for op in TABLE.values() if op.parts is not None}
    assert primitives == written | MOVED | others | logic
    for composite in ("softmax", "layer_norm", "gelu", "normal", "iota"):
        assert composite not in COMPLEX


def text_of(ops: str, inputs: str = "x: c64[N]; r: f32[N]") -> str:
    lines = "\n".join(f"  - {line.strip()}" for line in ops.split(";"))
    given = "\n".join(f"  {line.strip()}" for line in inputs.split(";"))
    return f"fusion: f\ndims: {{N: 4}}\ninputs:\n{given}\nops:\n{lines}\noutputs: [y]\n"


@pytest.mark.parametrize(
    ("text", "code", "place", "parts"),
    [
        (text_of("y = relu(x)"), 3, "7:9", ["`relu` of complex numbers"]),
        (text_of("y = lt(x, r)"), 3, "7:9", ["`lt` of complex numbers", "have no order"]),
        (text_of("y = prod(x)"), 3, "7:9", ["`prod` of complex numbers"]),
        (text_of("y = softmax(x, dim=0)"), 3, "7:9", ["`softmax` of complex numbers"]),
        (text_of("y = cumprod(r, dim=0); z = cumprod(x, dim=0)"), 3, "8:9", ["`cumprod` of"]),
        (text_of("y = full(shape=[N], fill_value=1, dtype=c32)"), 2, "7:", ["unknown dtype `c32`"]),
        (text_of("y = real(r)"), 2, "7:9", ["`real` needs complex numbers, got f32"]),
        (text_of("y = complex(x, r)"), 2, "7:9", ["`complex` joins real numbers, got c64"]),
        (text_of("y = mul(x, c64(1, 2, 3))"), 2, "7:16", ["real and the imaginary part"]),
        (text_of("y = mul(x, c64(true, 2))"), 2, "7:16", ["real and the imaginary part"]),
        (text_of("y = mul(x, c64(r, r))"), 2, "7:16", ["takes one number"]),
        (text_of("y = add(x, s)", "x: c64[N]; s: c64 = [1, 2, 3]"), 2, "5:", ["write `c64(1, 2)`"]),
        (text_of("y = add(x, s)", "x: c64[N]; s: f32 = [1, 2]"), 2, "5:", ["a number or bool"]),
        (text_of("y = add(x, s)", "x: c64[N]; s: c64 = true"), 2, "5:", ["expected a number"]),
        (text_of("y = sum(x, dtype=f32)"), 2, "7:9", ["of complex numbers cannot be f32"]),
        (text_of("y = mul(x, 2j)"), 2, "7:16", ["`2j` is not a name"]),
    ],
)
def test_errors_have_their_place(text: str, code: int, place: str, parts: list[str]) -> None:
    with pytest.raises(FusecError) as caught:
        read_text(text, "f.yaml")
    assert caught.value.exit_code == code
    rendered = caught.value.render()
    assert f"f.yaml:{place}" in rendered
    assert "^" in rendered
    for part in parts:
        assert part in rendered


LITERALS = fusion_of(
    "x: c64[N]; s: c128 = [1, -0.5]; u: c64 = 3",
    "y = mul(x, c64(1, -2)); z = add(y, s); w = sub(z, c128(inf, -0.0)); v = mul(w, u)",
    "v", "{N: 4}",
)  # fmt: skip


def test_text_and_scripts_read_back(tmp_path) -> None:
    assert read_text(to_text(LITERALS)) == LITERALS
    from fusec.nvfuser.script import load_script

    path = tmp_path / "twin.py"
    path.write_text(to_python(LITERALS))
    assert load_script(str(path))[0] == LITERALS


def test_the_script_language_has_complex_types() -> None:
    with FusionDefinition("f") as fd:
        x = fd.define_tensor(shape=[4], contiguity=True, dtype=DataType.ComplexFloat)
        z = fd.define_tensor(shape=[4], contiguity=True, dtype=DataType.ComplexDouble)
        s = fd.define_scalar(2 - 1j)
        fd.add_output(fd.ops.real(x * s))
        fd.add_output(fd.ops.cast(z, dtype=DataType.ComplexFloat) + x)
        fd.add_output(fd.ops.complex(fd.ops.imag(z), 1.0))
    given = np.arange(4) + 1j
    first, second, third = fd.execute([given.astype(np.complex64), given])
    np.testing.assert_allclose(first, (given * (2 - 1j)).real, rtol=1e-6)
    np.testing.assert_allclose(second, 2 * given, rtol=1e-6)
    assert third.dtype == np.complex128
    assert np.all(third == 1 + 1j)


# -- pairs of reals

OPERATIONS = [
    "add({a}, {b})", "sub({a}, {b})", "mul({a}, {b})", "div({a}, {b})", "neg({a})", "exp({a})",
    "sin({a})", "cosh({a})", "tanh({a})", "tan({a})", "sqrt({a})", "log({a})", "reciprocal({a})",
    "where(eq({a}, {b}), {a}, {b})", "complex(real({a}), abs({b}))", "permute({a}, dims=[1, 0])",
    "flip({a}, dims=[0])", "mul({a}, c64(0.5, -0.25))", "pow({a}, 2)", "pow({a}, c64(0.3, 0.4))",
    "sub({a}, mean({a}, dims=[1], keepdim=true))", "cast(cast({a}, c128), c64)", "matmul({a}, {b})",
    "addcmul({a}, {b}, {b}, 0.5)", "mul({a}, imag({b}))", "cat([{a}, {b}], dim=0)",
    "mul({a}, rsqrt(var({b}, dims=[0, 1])))", "cumsum({a}, dim=1)",
    "asin({a})", "acos({a})", "atan({a})", "asinh({a})", "acosh({a})", "atanh({a})", "sigmoid({a})",
]  # fmt: skip


def drawn(seed: int) -> Fusion:
    """Return a random fusion of complex operations on square matrices."""
    random = np.random.default_rng(seed)
    names, lines = ["x", "z", "t"], list[str]()
    inputs = "x: c64[N, N]; z: c128[N, N]; t: f32[N, N]"
    if seed % 2:
        inputs = inputs.replace("c128", "c64")
    wanted = int(random.integers(2, 7))
    while len(lines) < wanted:
        k = len(lines)
        text = str(random.choice(OPERATIONS))
        a, b = (names[int(n)] for n in random.integers(0, len(names), 2))
        line = text.format(a=a, b=b)
        if text.startswith("cat"):
            line = f"slice({line}, start_indices=[1, 0], end_indices=[N + 1, N])"
        try:
            fusion_of(inputs, "; ".join([*lines, f"v{k} = {line}"]), f"v{k}", "{N: 6}")
        except FusecError:
            continue  # operands whose types the operation does not take
        lines.append(f"v{k} = {line}")
        names.append(f"v{k}")
    outputs = [n for n in names[3:] if random.random() < 0.3 or n == names[-1]]
    return fusion_of(inputs, "; ".join(lines), ", ".join(outputs), "{N: 6}")


def parts_of_inputs(fusion: Fusion, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of the rewritten fusion."""
    return {entry.value.name: part_of(entry, given) for entry in fusion.inputs}


def part_of(entry: Input, given: Mapping[str, Any]) -> Any:
    if entry.part is None:
        return given[entry.value.name]
    whole = np.asarray(given[entry.part.of])
    return whole.imag if entry.part.index else whole.real


def joined(fusion: Fusion, parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs as the caller gets them."""
    results: dict[str, Any] = {}
    for output in fusion.outputs:
        array, part = parts[output.value.name], output.part
        if part is None:
            results[output.value.name] = array
            continue
        whole = results.setdefault(part.of, np.zeros(array.shape, part.dtype.numpy))
        if part.index:
            whole.imag = array
        else:
            whole.real = array
    return results


@pytest.mark.parametrize("seed", range(60))
def test_pairs_mean_what_the_complex_fusion_means(seed: int) -> None:
    fusion = drawn(seed)
    pairs = complex_as_pairs(fusion)
    verify(pairs)
    assert not any(v.dtype.is_complex for v in pairs.values)
    assert complex_as_pairs(pairs) is pairs
    sizes = choose_sizes(fusion)
    given = random_inputs(fusion, sizes, seed)
    expected = evaluate(fusion, given, sizes)
    known = estimate(fusion, given, sizes)
    for rewritten in (pairs, run_pipeline(fusion)):
        found = evaluate(rewritten, parts_of_inputs(rewritten, given), sizes)
        wide = {o.value.name: found[o.value.name] for o in rewritten.outputs}
        for output in fusion.outputs:
            name = output.value.name
            if output.value.dtype.is_complex:
                parts = [wide[o.value.name] for o in rewritten.outputs
                         if o.part is not None and o.part.of == name]  # fmt: skip
                array = parts[0] + 1j * parts[1]
            else:
                array = wide[name]
            slack = 1e-9 * np.abs(expected[name]) + LIMIT * known[name].sigma
            off = np.abs(array - expected[name])
            fine = (off <= slack) | ~np.isfinite(expected[name]) | ~np.isfinite(slack)
            assert fine.all(), (name, to_text(fusion))


@pytest.mark.parametrize("seed", range(100, 140))
def test_single_precision_is_right(seed: int) -> None:
    fusion = drawn(seed)
    sizes = choose_sizes(fusion)
    given = random_inputs(fusion, sizes, seed)
    pairs = run_pipeline(fusion)
    with np.errstate(all="ignore"):
        found = joined(pairs, simulate(pairs, parts_of_inputs(pairs, given), sizes))
    verdict = compare(fusion, sizes, given, found, poison=False)
    assert not any(o.wrong for o in verdict.outputs), f"{to_text(fusion)}\n{verdict.text()}"


@pytest.mark.parametrize("op", ["arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh"])
def test_inverse_functions_are_exact_at_branch_points_and_far_away(op: str) -> None:
    """To 8 units of the modulus, where squares of the distance to 1 underflow or overflow."""
    near = [b + d for b in (1, -1, 1j, -1j) for d in (1e-30, 1e-30j, -1e-5 + 1e-9j, 1e-12j)]
    x = np.array([*near, 1e30 - 2j, -3e25j, 1e-25 + 1e-28j, 0.3 + 1e-20j], np.complex64)
    count = len(x)
    fusion = fusion_of("x: c64[N]", f"y = {op.replace('arc', 'a')}(x)", "y", f"{{N: {count}}}")
    pairs = run_pipeline(fusion)
    with np.errstate(all="ignore"):
        parts = simulate(pairs, parts_of_inputs(pairs, {"x": x}), {"N": count})
        expected = getattr(np, op)(x.astype(np.complex128))
    found, known = joined(pairs, parts)["y"], np.isfinite(expected)
    error = np.abs(found[known] - expected[known])
    assert np.all(error <= 8 * 2.0**-23 * np.abs(expected[known]))
    assert not np.any(np.isfinite(found[~known]))


@pytest.mark.parametrize("part", ["real", "imag"])
@pytest.mark.parametrize("op", ["mul", "div", "add"])
def test_a_part_that_is_off_is_found(op: str, part: str) -> None:
    fusion = fusion_of("x: c64[N]; w: c64[N]", f"y = {op}(x, w)", "y", "{N: 64}")
    sizes = choose_sizes(fusion)
    given = random_inputs(fusion, sizes, 3)
    right = evaluate(fusion, given, sizes)["y"].astype(np.complex64)
    assert compare(fusion, sizes, given, {"y": right}).ok
    wrong = right.copy()
    getattr(wrong, part)[7] += 1e-5 * abs(wrong[7])
    verdict = compare(fusion, sizes, given, {"y": wrong})
    assert [w.index for w in verdict.outputs[0].worst] == [(7,)]
    assert verdict.word == "differs"


def test_errors_are_relative_to_the_modulus() -> None:
    """A part that cancels may be off by as much as the modulus allows, and no more."""
    fusion = fusion_of("x: c64[N]; w: c64[N]", "y = mul(x, w)", "y", "{N: 1}")
    x = np.array([1 + 1j], np.complex64)
    w = np.array([1 - 1j], np.complex64)
    held = estimate(fusion, {"x": x, "w": w}, {"N": 1})["y"]
    assert held.value[0] == 2
    assert 2**-23 <= LIMIT * held.sigma[0] <= 2**-19


def test_blocks_err_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    fusion = fusion_of(
        "x: c64[B, H]", "v, m = var_mean(x, dims=[0]); s = sum(mul(x, x), dims=[0]);"
        "y = mul(sub(x, m), 2)", "v, m, s, y", "{B: 3000, H: 16}",
    )  # fmt: skip
    sizes = choose_sizes(fusion)
    given = random_inputs(fusion, sizes, 1)
    plain = evaluate(fusion, given, sizes)
    blocks = estimate(fusion, given, sizes)
    for name, value in plain.items():
        np.testing.assert_allclose(blocks[name].value, value, rtol=1e-12)
    found = {n: v.astype(fusion.find(n).dtype.numpy) for n, v in plain.items()}  # pyright: ignore[reportOptionalMemberAccess]
    assert compare(fusion, sizes, given, found).ok


def test_pins_keep_the_parts_of_their_values() -> None:
    fusion = fusion_of("x: c64[N]", "y = exp(x); z = mul(y, x); r = abs(z)", "z, r", "{N: 8}")
    pinned = replace(fusion, pins=(Pin("first", ("y",)), Pin("second", ("z", "r"))))
    after = run_pipeline(pinned)
    verify(after)
    assert [p.name for p in after.pins] == ["first", "second"]
    made = {v.name for n in after.nodes for v in n.outputs}
    assert made == {name for pin in after.pins for name in pin.values}


@pytest.mark.parametrize("dtype", [C64, C128])
def test_random_inputs_fill_both_parts(dtype: DType) -> None:
    builder = GraphBuilder()
    builder.output(builder.apply("sqrt", builder.input("x", dtype, [50], low=1.0, high=2.0)))
    fusion = builder.finish()
    x = random_inputs(fusion, {}, 5)["x"]
    assert x.dtype == dtype.numpy
    for part in (x.array.real, x.array.imag):
        assert part.min() >= 1
        assert part.max() <= 2
        assert len(set(part)) > 40


def test_no_complex_number_leaves_a_fusion_alone() -> None:
    builder = GraphBuilder()
    builder.output(builder.apply("exp", builder.input("x", F32, [3])))
    fusion = builder.finish()
    assert complex_as_pairs(fusion) is fusion


def test_stand_in_tensors_have_both_parts(tmp_path) -> None:
    from fusec.nvfuser.script import run_script

    path = tmp_path / "script.py"
    path.write_text(
        "import torch\n"
        "from nvfuser import FusionDefinition\n"
        "x = torch.randn(500, dtype=torch.complex64)\n"
        "with FusionDefinition() as fd:\n"
        "    t = fd.from_pytorch(x)\n"
        "    fd.add_output(fd.ops.imag(t))\n"
        "fd.execute([x])\n"
    )
    seen: list[np.ndarray] = []

    def note(fusion: Fusion, actuals: Any) -> Any:
        seen.append(actuals[0].array())
        return [seen[-1].imag]

    run_script(str(path), note)
    assert seen[0].dtype == np.complex64
    for part in (seen[0].real, seen[0].imag):
        assert 0.6 < np.std(part) < 0.8


def test_operations_say_that_they_take_complex_numbers() -> None:
    assert " c64 c128 -> the same" in describe(TABLE["mul"])
    assert " c64" not in describe(TABLE["relu"])


def test_phases_of_complex_fusions_are_refused() -> None:
    text = text_of("e = exp(x); y = mul(e, r)") + (
        "phases:\n  one: {inputs: [x], outputs: []}\n  two: {inputs: [r], outputs: [y]}\n"
    )
    fusion = read_text(text.replace("outputs: [y]\nphases", "outputs: [e, y]\nphases").replace(
        "outputs: []", "outputs: [e]"
    ))  # fmt: skip
    with pytest.raises(Unsupported, match="phases of a fusion with complex numbers"):
        run_pipeline(fusion)
