"""Reading fusion files."""

from __future__ import annotations

import numpy as np
import pytest

from fusec.ir.dim import dim, symbol
from fusec.ir.dtype import BF16, BOOL, F32, I64
from fusec.ir.graph import Const, Fusion, Value
from fusec.parse import read_text
from fusec.reference.evaluate import evaluate

LAYERNORM = """\
fusion: layernorm
doc: Layer norm over the last axis.
dims:
  B: 4096
  H: {default: 8192, multiple_of: 8}
inputs:
  x: bf16[B, H]
  w: bf16[H]
  b:
    type: bf16[H]
    range: [-1, 1]
  eps: f32 = 1e-5
ops:
  - xf = cast(x, f32)
  - var, mean = var_mean(xf, dims=[1], correction=0, keepdim=true)
  - rstd = rsqrt(add(var, eps))
  - xn = mul(sub(xf, mean), rstd)
  - y = cast(add(mul(xn, w), b), bf16)
outputs: [y]
"""
B, H = symbol("B"), symbol("H")


def node_text(fusion: Fusion) -> list[str]:
    """Return the nodes as short texts."""
    return [repr(n) for n in fusion.nodes]


def body(ops: str, *, inputs: str = "x: f32[B, H]", outputs: str = "[y]", more: str = "") -> Fusion:
    """Return the fusion of one op line, or of several separated by `;`."""
    lines = "".join(f"  - {line.strip()}\n" for line in ops.split(";"))
    head = "fusion: f\ndims: {B: 4, H: 8}\ninputs:\n" + "".join(
        f"  {line.strip()}\n" for line in inputs.split(";")
    )
    return read_text(f"{head}ops:\n{lines}outputs: {outputs}\n{more}")


def test_the_example_of_the_design() -> None:
    """Names, facts, inputs, defaults and types are as written."""
    fusion = read_text(LAYERNORM)
    assert (fusion.name, fusion.doc) == ("layernorm", "Layer norm over the last axis.")
    assert [(d.name, d.default, d.multiple_of) for d in fusion.dims] == [
        ("B", 4096, 1),
        ("H", 8192, 8),
    ]
    x, w, b, eps = fusion.inputs
    assert (x.value.dtype, x.value.shape, x.strides) == (BF16, (B, H), (H, dim(1)))
    assert (w.low, b.low, b.high) == (None, -1.0, 1.0)
    assert (eps.value.is_scalar, eps.default) == (True, 1e-5)
    (output,) = fusion.outputs
    assert (output.value.name, output.value.dtype, output.value.shape) == ("y", BF16, (B, H))


def test_broadcasts_are_written_out() -> None:
    """Operands of lower rank get a node; extents of 1 do not."""
    fusion = read_text(LAYERNORM)
    made = [n.op.name for n in fusion.nodes]
    assert made.count("broadcast_in_dim") == 2
    assert made.count("broadcast") == 2


def test_arguments_go_by_position_or_keyword() -> None:
    """Attributes follow nvFuser's order."""
    by_position = body("y = sum(x, [1], true)")
    assert by_position == body("y = sum(x, dims=[1], keepdim=true)")
    assert by_position == body("y = sum(keepdim=true, dims=1, arg=x)")
    assert by_position == body("y = sum(x, [-1], True,)")
    assert by_position != body("y = sum(x, [1])")


def test_calls_nest() -> None:
    """A nested call is a node like one with a line of its own."""
    assert body("y = exp(neg(x))") == body("n = neg(x); y = exp(n)")


def test_the_users_names_come_before_generated_ones() -> None:
    """A name that a nested call took is given back."""
    fusion = body("a = exp(neg(x)); neg_1 = relu(x); y = add(a, neg_1)")
    assert [n.op.name for n in fusion.nodes] == ["neg", "exp", "relu", "add"]
    assert fusion.find("neg_1") is fusion.nodes[2].output


def test_numbers_are_those_of_yaml_1_2() -> None:
    """1e-5 is a number, `on` a string, and the sign of zero is kept."""
    fusion = read_text(
        "fusion: on\ndims: {no: 0x10}\ninputs:\n  y: f32[no]\n  s: {type: f32, default: 1e-5}\n"
        "ops:\n  - z = add(mul(y, s), -0.0)\noutputs: [z]\n"
    )
    assert (fusion.name, fusion.hints["no"], fusion.inputs[1].default) == ("on", 16, 1e-5)
    assert Const(-0.0, fusion.nodes[-1].operands[1].type.dtype) == fusion.nodes[-1].operands[1]


def test_literals() -> None:
    """Constants are f64, i64 and bool, or typed by a call of the dtype."""
    fusion = body("a = where(true, x, -inf); b = add(a, 3); c = add(b, f32(0.5)); y = add(c, nan)")
    constants = [o for n in fusion.nodes for o in n.operands if isinstance(o, Const)]
    assert [(repr(c.value), c.dtype.name) for c in constants] == [
        ("True", "bool"),
        ("-inf", "f64"),
        ("3", "i64"),
        ("0.5", "f32"),
        ("nan", "f64"),
    ]
    assert constants[0].dtype == BOOL


def test_several_results_and_unused_ones() -> None:
    """`_` stands for a result that nobody reads, any number of times."""
    fusion = body("_, m = var_mean(x, [1]); v, _ = var_mean(x, [1]); y = add(m, v)")
    assert sum(n.op.name == "var_mean" for n in fusion.nodes) == 2
    assert fusion.find("_") is None


def test_sizes_are_expressions() -> None:
    """Dims, integer scalars and calls of size stand in shapes."""
    fusion = body(
        "r = reshape(x, [B, H // n, n]); y = reshape(r, [size(x, 0) * (H // n), n])",
        inputs="x: f32[B, H]; n: i64 = 2",
    )
    n = symbol("n", extent=False)
    assert fusion.outputs[0].value.shape == (B * (H // n), n)
    assert body("y = reshape(x, [-1])").outputs[0].value.shape == (B * H,)


def test_dims_of_other_dims() -> None:
    """A dim may be computed; it is no symbol of its own."""
    fusion = read_text(
        "fusion: f\ndims: {NH: 4, D: 8, H: NH * D}\ninputs: {x: 'f32[H]'}\n"
        "ops:\n  - y = reshape(x, [NH, D])\noutputs: [y]\n"
    )
    assert [d.name for d in fusion.dims] == ["NH", "D"]
    assert fusion.inputs[0].value.shape == (symbol("NH") * symbol("D"),)


def test_a_dim_is_a_number_too() -> None:
    """In the place of an operand a dim is the size of the input that has it."""
    fusion = body("y = div(sum(x, [1]), H)")
    assert node_text(fusion) == ["sum_1 = sum(x)", "size_1 = size(x)", "y = div(sum_1, size_1)"]
    assert fusion.nodes[1].output.type.dim == H
    fusion = body("y = mul(x, B * H - 1)")
    (scalar,) = (o for o in fusion.nodes[-1].operands if isinstance(o, Value) and o.is_scalar)
    assert (scalar.dtype, scalar.dim) == (I64, B * H - 1)


def test_a_line_names_a_size() -> None:
    """It stands for what it was computed from, as a size and as a number."""
    lines = "half = H // 2; two = 2; y = mul(slice(x, [0, half], [B, two * half]), half)"
    written = "y = mul(slice(x, [0, H // 2], [B, 2 * (H // 2)]), H // 2)"
    assert body(lines) == body(written)
    array = np.arange(32, dtype=np.float32).reshape(4, 8)
    y = evaluate(body(lines), {"x": array}, {"B": 4, "H": 8})["y"]
    np.testing.assert_array_equal(y, array[:, 4:] * 4)


@pytest.mark.parametrize("size", ["B * 2 - H", "ceildiv(H, 3) + H % 3", "0 - max(B, H) * 2"])
def test_any_size_is_a_number(size: str) -> None:
    fusion = body(f"y = mul(x, {size}); z = size(y, 0)")
    y = evaluate(fusion, {"x": np.ones((4, 8), np.float32)}, {"B": 4, "H": 8})["y"]
    values = {"B": 4, "H": 8, "ceildiv": lambda a, b: -(-a // b), "max": max, "min": min}
    assert y[0, 0] == eval(size, values)


def test_arguments_have_the_names_of_other_libraries() -> None:
    others = "r = reshape(x, shape=[B * H]); s = slice(r, start=[1], end=[5]); y = sum(s, dim=0)"
    own = (
        "r = reshape(x, new_shape=[B * H]); s = slice(r, [1], end_indices=[5]); y = sum(s, dims=0)"
    )
    assert body(others) == body(own)


def test_layouts_of_inputs() -> None:
    """Strides, contiguity and stride order are nvFuser's."""

    def strides(text: str) -> tuple[str, ...]:
        return tuple(str(s) for s in body("y = relu(x)", inputs=text).inputs[0].strides)

    assert strides("x: f32[B, H]") == ("H", "1")
    assert strides('x: {type: "f32[B, H]", stride_order: [0, 1]}') == ("1", "B")
    assert strides('x: {type: "f32[B, H]", contiguity: [false, true]}') == ("x.stride0", "1")
    assert strides('x: {type: "f32[B, H]", contiguity: [null, true]}') == ("0", "1")
    assert strides('x: {type: "f32[B, H]", strides: [2 * H, 2]}') == ("H * 2", "2")


def test_the_planned_size_of_a_run_time_stride() -> None:
    """A stride that is known at run time has a hint, which the dims may set."""
    text = (
        "fusion: f\ndims: {B: 4, H: 8%s}\ninputs:\n"
        '  x: {type: "f32[B, H]", contiguity: [false, true]}\n'
        "ops:\n  - y = relu(x)\noutputs: [y]\n"
    )
    assert read_text(text % "").hints["x.stride0"] == 8
    assert read_text(text % ", x.stride0: 16").hints["x.stride0"] == 16
    assert read_text(text % "", overrides={"x.stride0": 32}).hints["x.stride0"] == 32


def test_outputs_with_options() -> None:
    """Outputs are a list or a mapping, with alias and stride order."""
    listed = body("y = relu(x)", outputs="[{y: {alias: x, stride_order: [0, 1]}}]")
    mapped = body("y = relu(x)", outputs="{y: {alias: x, stride_order: [0, 1]}}")
    assert listed == mapped
    assert (listed.outputs[0].alias, listed.outputs[0].stride_order) == ("x", (0, 1))
    assert listed != body("y = relu(x)")


def test_segments_take_in_what_a_line_made() -> None:
    """A pin names the results of an op line; nested calls and broadcasts belong to it."""
    fusion = body(
        "y = exp(neg(add(x, w))); z = relu(y)",
        inputs="x: f32[B, H]; w: f32[H]",
        outputs="[y, z]",
        more="segments:\n  a: [y]\n  b: {values: [z], scheduler: pointwise}\n",
    )
    first, second = fusion.pins
    assert first.values == ("w_broadcast", "add_1", "neg_1", "y")
    assert (second.name, second.values, second.scheduler) == ("b", ("z",), "pointwise")


def test_yaml_aliases_are_shared_text() -> None:
    """Anchors and aliases work where they make sense."""
    fusion = body("y = add(x, w)", inputs="x: &t f32[B, H]; w: *t")
    assert fusion.inputs[0].value.type == fusion.inputs[1].value.type


def test_scalars_of_several_lines() -> None:
    """Folded, literal, quoted and broken op lines read alike."""
    plain = body("y = add(x, 1.0)")
    for line in (
        "y = add(x,\n      1.0)",
        ">-\n    y = add(x,\n      1.0)",
        "|\n    y = add(x,\n      1.0)",
        '"y = add(x, 1.0)"',
        "'y = add(x, 1.0)'",
        '"y = add(x,\\\n     1.0)"',
    ):
        assert body(line) == plain


def test_setting_sizes_and_scalars() -> None:
    """Overrides replace the defaults of dims and scalar inputs."""
    fusion = read_text(LAYERNORM, overrides={"B": 7, "eps": 1})
    assert fusion.hints == {"B": 7, "H": 8192}
    assert fusion.inputs[3].default == 1.0
    assert fusion.inputs[3].value.dtype == F32


def test_a_fusion_without_ops_or_inputs() -> None:
    """Empty sections are fine: the output is a copy of the input."""
    fusion = read_text("fusion: f\ndims:\ninputs: {x: 'f32[4]'}\nops:\noutputs: [x]\n")
    assert [n.op.name for n in fusion.nodes] == ["set"]
    fusion = read_text("fusion: f\nops:\n  - y = full([4], 1.0, f32)\noutputs: [y]\n")
    assert fusion.inputs == ()


def test_zero_sizes() -> None:
    """A dim may be empty."""
    assert read_text(LAYERNORM, overrides={"B": 0}).hints["B"] == 0


def test_spans_of_nodes() -> None:
    """Every node knows the call that made it."""
    fusion = read_text(LAYERNORM, "file.yaml")
    spans = {v.name: n.span for n in fusion.nodes for v in n.outputs}
    rstd = spans["rstd"]
    assert rstd is not None
    assert (rstd.place(), rstd.width) == ("file.yaml:16:12", len("rsqrt(add(var, eps))"))


def test_a_large_file_is_read() -> None:
    lines = ["  - v0 = relu(x)"]
    lines += [f"  - v{k} = add(exp(v{k - 1}), x)" for k in range(1, 2000)]
    text = "fusion: f\ndims: {B: 4}\ninputs: {x: 'f32[B]'}\nops:\n" + "\n".join(lines)
    fusion = read_text(f"{text}\noutputs: [v1999]\nsegments: {{a: [v1, v1999]}}\n")
    assert len(fusion.nodes) == 3999


@pytest.mark.parametrize(
    "doc", ["one line", "two: words", "# hash", "a\nb\n", " lead", "'q\" \\ é"]
)
def test_docs_of_any_text(doc: str) -> None:
    """A description may hold anything that YAML can quote."""
    import json

    text = LAYERNORM.replace("doc: Layer norm over the last axis.", f"doc: {json.dumps(doc)}")
    assert read_text(text).doc == doc.rstrip("\n")
