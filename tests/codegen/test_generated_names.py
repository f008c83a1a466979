"""Names that fusec generates avoid those of the user, wherever they are made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cli_tools import EXAMPLES, fusec, small
from decodes import DECODES
from nightly import mostly_nightly

from fusec import FusionDefinition, driver
from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion
from fusec.ir.verify import verify
from fusec.ops.names import KEYWORDS, fresh_name, is_name
from fusec.options import CompileOptions
from fusec.parse import read_file, read_text
from fusec.passes import run_pipeline
from fusec.run.build import Source, build
from fusec.schedule.attention.sums import as_products, sum_of
from fusec.schedule.matmul.kernel.names import renamed
from fusec.schedule.rows.two_pass import names_of_sums, two_pass

Capture = pytest.CaptureFixture[str]
OPTIONS = CompileOptions(targets=("sm_90a",), untuned=True)

# --- in a file -----------------------------------------------------------------------------------

FILE = """fusion: f
dims: {{ {dim}: 8}}
inputs:
  x: f32[{dim}]
ops:
{ops}
outputs: [{output}]
"""
NESTED = {
    "on its own line": ["add_1 = cast(add(x, x), f32)"],
    "of a call before": ["a = neg(add(x, x))", "add_1 = relu(a)"],
    "of two calls before": ["a = mul(add(x, x), add(x, 1.0))", "add_2 = relu(a)", "add_1 = neg(a)"],
    "of a call behind": ["add_1 = relu(x)", "a = neg(add(add_1, x))"],
    "of a composite": ["add_1 = silu(x)", "mul_1 = softmax(add(add_1, x), dim=0)"],
    "of a mean": ["sum_1_kept = mean(neg(x), dims=[0], keepdim=true)", "y_reduced = neg(x)"],
    "of a broadcast": ["neg_1 = neg(x)", "neg_1_broadcast = add(neg(neg_1), 2.0)"],
    "of a random number": ["rng_seed = neg(x)", "rng_offset = add(rand_like(x), rng_seed)"],
}


@pytest.mark.parametrize("case", NESTED)
@pytest.mark.parametrize("dim", ["B", "add_3"])
def test_a_file_may_have_names_that_calls_would_get(case: str, dim: str) -> None:
    lines = NESTED[case]
    names = [line.partition(" = ")[0] for line in lines]
    ops = "\n".join(f"  - {line}" for line in lines)
    fusion = read_text(FILE.format(dim=dim, ops=ops, output=", ".join(names)))
    assert [o.value.name for o in fusion.outputs] == names
    assert len({v.name for v in fusion.values} | {dim}) == len(fusion.values) + 1


def test_a_name_is_still_defined_once() -> None:
    ops = "  - add_1 = cast(add(x, x), f32)\n  - add_1 = neg(x)"
    with pytest.raises(FusecError, match="`add_1` is defined twice"):
        read_text(FILE.format(dim="B", ops=ops, output="add_1"))


def test_a_script_may_have_names_that_calls_would_get() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[8], name="x")
        fd.ops.neg(fd.ops.add(fd.ops.add(x, x), x))
        fd.add_output(fd.ops.mul(x, x, name="add_1"))
    assert [o.value.name for o in fd.graph().outputs] == ["add_1"]


# --- in kernels ----------------------------------------------------------------------------------

FAMILIES = (
    "layernorm", "linear_tf32", "matmul_long_k", "column_mean", "attention", "batchnorm",
    "layernorm_backward", "linear_gelu", "linear_fp8_blocks", "linear_int4_zeros",
    "linear_normalised", "linear_silu_backward", "paged_decode", "softmax", "strided_add",
)  # fmt: skip
ALWAYS = 3


def with_names(fusion: Fusion, names: dict[str, str]) -> Fusion:
    pins = (replace(p, values=tuple(names.get(v, v) for v in p.values)) for p in fusion.pins)
    return replace(renamed(fusion, names), pins=tuple(pins))


def generated(fusion: Fusion) -> Iterator[str]:
    """Yield the names in plans and kernels that the user has not chosen."""
    program = driver.Compilation(fusion, OPTIONS)
    found = {v.name for plan in program.plans for v in plan.fusion.values}
    found |= {w.name for plan in program.plans for w in plan.workspaces}
    for source in program.kernel_sources:
        found |= {a.name for a in source.kernel.arguments}
        found |= set(re.findall(r"[A-Za-z]\w*", re.sub(r"//.*", "", source.text)))
    own = fusion.names
    roots = tuple(f"{name}_" for name in own)
    return (n for n in sorted(found - own) if is_name(n) and n.startswith((*roots, "arr", "part")))


def check_names(fusion: Fusion) -> None:
    """Raise where two values, or two arguments of a kernel, have one name."""
    program = driver.Compilation(fusion, OPTIONS)
    for plan in program.plans:
        verify(plan.fusion)
        own = {v.name for v in plan.fusion.values}
        assert not own & {w.name for w in plan.workspaces}
    for source in program.kernel_sources:
        names = [a.name for a in source.kernel.arguments]
        assert len(set(names)) == len(names), source.name
        head = source.text.partition(") {")[0].rpartition("(")[2]
        parameters = [text.split()[-1] for text in head.split(",")]
        assert len(set(parameters)) == len(parameters), source.name


def try_names(name: str, every: int) -> None:
    fusion = read_file(EXAMPLES / f"{name}.yaml")
    outer = [i.value.name for i in fusion.inputs] + [o.value.name for o in fusion.outputs]
    inner = [v.name for v in fusion.values if v.name not in outer]
    for number, wanted in enumerate([*generated(fusion)][::every]):
        for group in (outer, inner):
            free = [n for n in group if not wanted.startswith(f"{n}_")]
            if free:
                check_names(with_names(fusion, {free[number % len(free)]: wanted}))


@pytest.mark.parametrize("name", FAMILIES[:ALWAYS])
def test_values_may_have_generated_names(name: str) -> None:
    try_names(name, 4)


@pytest.mark.nightly
@pytest.mark.parametrize("name", FAMILIES)
def test_every_value_may_have_every_generated_name(name: str) -> None:
    try_names(name, 1)


def test_a_product_may_be_added_to_what_is_called_as_its_sums() -> None:
    text = """fusion: f
inputs: {x: "bf16[256, 256]", w: "bf16[256, 256]", acc: "f32[256, 256]", acc2: "f32[256]"}
ops:
  - y = add(add(cast(linear(x, w, none), f32), acc), acc2)
outputs: [y]
"""
    fusion = read_text(text)
    check_names(fusion)
    (source,) = driver.Compilation(fusion, OPTIONS).kernel_sources
    assert "acc_tensor" in source.text


def test_sums_of_variances_are_found_by_their_names() -> None:
    text = """fusion: f
inputs: {x: "f32[64, 128]"}
ops:
  - v = var(x, dims=[1])
  - v_sum = sum(x, dims=[1])
outputs: [v, v_sum]
"""
    fusion = read_text(text)
    (name,) = names_of_sums(fusion).values()
    written = two_pass(fusion)
    verify(written)
    (total,) = (v for v in written.values if v.name == name)
    assert name != "v_sum"
    assert written.producer[total].op.name == "sum"


def test_products_that_are_sums_are_found_by_their_names() -> None:
    text = DECODES["products of one row as sums"]
    fusion = run_pipeline(read_text(text, "decode.yaml"))
    sums = [n for n in fusion.nodes if n.op.name == "sum"]
    own = sums[0].output.name
    other = next(v.name for v in fusion.values if v.name not in (own, *fusion.outputs))
    fusion = with_names(fusion, {other: f"{own}_of_row"})
    made = as_products(fusion)
    verify(made)
    products = [n for n in made.nodes if n.op.name == "matmul"]
    assert sum_of(fusion, products[0]) == own


def test_fresh_names_are_taken() -> None:
    taken = {"x", "x_2"}
    assert [fresh_name(taken, "x") for _ in range(2)] == ["x_3", "x_4"]


# --- words of C++, CUDA and the preprocessor -----------------------------------------------------

REJECTED = [
    "_Pragma", "_Bool", "_Generic", "_X", "__has_include", "__VA_ARGS__", "__x", "defined",
    "threadIdx", "int", "fusec", "co_await",
]  # fmt: skip
_WORDS = """
typeof restrict module import final override include define undef ifdef ifndef endif elif pragma
error line warning linux unix i386 half uint ulong size_t int8_t uint32_t float4 dim3 uint4 printf
malloc memcpy assert abort main abs fabs sqrt pow exp log sin tanh erf fma fmin fmaxf powf min max
isnan signbit rsqrt clock std cuda NULL EOF errno stdin INFINITY NAN CHAR_BIT M_PI I T0 t0 acc i row
tmp kVec kernel global device shared constant align surface lambda atomicAdd ldg float_as_int
offsetof alloca va_arg x_vec value _ x_ _x Vec Index Config blocks
"""
WORDS = _WORDS.split()


@pytest.mark.parametrize("name", REJECTED)
@pytest.mark.parametrize("place", ["fusion", "input", "dim", "value"])
def test_words_are_rejected_by_name(name: str, place: str, tmp_path: Path, capsys: Capture) -> None:
    of = {"fusion": "f", "input": "x", "dim": "B", "value": "y", place: name}
    text = (
        f"fusion: {of['fusion']}\ndims: {{{of['dim']}: 8}}\ninputs: {{{of['input']}: "
        f"'f32[{of['dim']}]'}}\nops:\n  - {of['value']} = neg({of['input']})\n"
        f"outputs: [{of['value']}]\n"
    )
    done = fusec(capsys, "check", small(tmp_path, text))
    done.says(2, f"name `{name}` is", "help: try `")


def test_no_word_is_both_rejected_and_free() -> None:
    assert not any(is_name(name) for name in [*KEYWORDS, *REJECTED])


def with_words(words: list[str], dtype: str, op: str) -> str:
    """Return a fusion whose inputs have these names."""
    inputs = "".join(f"  {word}: {dtype}[64, 128]\n" for word in words)
    lines = [f"  - q_0 = exp({words[0]})\n"]
    lines += [f"  - q_{k} = pow(add(q_{k - 1}, {w}), {w})\n" for k, w in enumerate(words) if k]
    last = f"  - q_last = {op.format(f'q_{len(words) - 1}')}\n"
    return f"fusion: words\ninputs:\n{inputs}ops:\n{''.join(lines)}{last}outputs: [q_last]\n"


def build_words(words: list[str], dtype: str, op: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    named = [w for w in words if is_name(w) and w != "_"]
    program = driver.Compilation(read_text(with_words(named, dtype, op)), OPTIONS)
    build([Source(s.name, s.text) for s in program.kernel_sources], ["sm_90a"])


OPS = ("neg({})", "softmax({}, dim=1)", "sum({}, dims=[0])", "permute({}, dims=[1, 0])")
CASES = [(k, d, op) for op in OPS for d in ("f32", "f64") for k in range(4)]


@pytest.mark.parametrize(("part", "dtype", "op"), mostly_nightly(CASES, 17))
def test_other_words_compile(part: int, dtype: str, op: str) -> None:
    build_words(WORDS[part::4], dtype, op)
