"""Lines of PyTorch programs in files and scripts: what an error says to write is right."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusec import DataType, FusionDefinition
from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.dim import floordiv, symbol
from fusec.parse import read_text
from fusec.parse.foreign.einsum import expression_of
from fusec.reference.evaluate import evaluate

HEAD = """\
fusion: f
dims: {B: 4, H: {default: 8, multiple_of: 2}}
inputs:
  x: f32[B, H]
  y: f32[B, H]
  h: bf16[B, H]
  w: f32[H]
  q: f32[2, 3, B, H]
  i: i64[B, H]
  s: f32 = 0.5
ops:
"""
RNG = np.random.default_rng(5)
GIVEN = {
    "x": RNG.normal(size=(4, 8)), "y": RNG.normal(size=(4, 8)), "h": RNG.normal(size=(4, 8)),
    "w": RNG.normal(size=8), "q": RNG.normal(size=(2, 3, 4, 8)),
    "i": RNG.integers(0, 8, size=(4, 8)), "s": 0.5,
}  # fmt: skip


def text_with(lines: list[str], output: str) -> str:
    return HEAD + "".join(f"  - {line}\n" for line in lines) + f"outputs: [{output}]\n"


def error_of(*lines: str, output: str = "r") -> FusecError:
    with pytest.raises(FusecError) as caught:
        read_text(text_with(list(lines), output))
    return caught.value


def followed(lines: list[str], output: str) -> Any:
    """Return what a program computes after its first error was mended as it says, and so on."""
    for _ in range(20):
        try:
            fusion = read_text(text_with(lines, output))
        except FusecError as error:
            told = error.diagnostic
        else:
            return evaluate(fusion, GIVEN, fusion.hints)[output]
        assert told.span is not None
        at = told.span.line - HEAD.count("\n") - 1
        words = str(told.help)
        found = re.search(r"write `(\w[\w, ]* = [^`]*)`", words)
        if found is None:
            assert words.startswith("remove the line"), told.render()
            lines = lines[:at] + lines[at + 1 :]
            at -= 1
        else:
            lines = [*lines[:at], found[1], *lines[at + 1 :]]
        for new, old in re.findall(r"`([^`]+)` for `(\w+)`", words):
            below = [re.sub(rf"\b{old}\b", new, line) for line in lines[at + 1 :]]
            lines, output = lines[: at + 1] + below, re.sub(rf"\b{old}\b", new, output)
    raise AssertionError(lines)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("r = x[..., : x.shape[-1] // 2]", "write `r = x[..., :H // 2]`"),
        ("r: torch.Tensor = relu(x)", "write `r = relu(x)`"),
        ("relu(x)", "write `y_2 = relu(x)`"),
        ("x.mul_(s).add_(y, alpha=2)",
         "write `x_2 = mul(x, s) + 2 * y`, and `x_2` for `x` in the lines below; "
         "`- x_2: {alias: x}` under `outputs:` writes to the input"),
        ("torch.add(x, y, out=r)", "write `r = x + y`"),
        ("x -= y * 2", "write `x_2 = x - y * 2`, and `x_2` for `x` in the lines below"),
        ("x *= y - 1", "write `x_2 = x * (y - 1)`"),
        ("x //= y", "write `x_2 = x // y`"),
        ("x = x.exp()", "write `x_2 = exp(x)`, and `x_2` for `x` in the lines below"),
        ("d = h.dtype", "remove the line, and write `bf16` for `d`"),
        ("r = relu(batch_norm(q, training=true))",
         "write `batch_norm_2, _, _ = batch_norm(q, training=true)`, and in this line "
         "`r = relu(batch_norm_2)`"),
    ],
)  # fmt: skip
def test_lines_of_python_are_told(line: str, told: str) -> None:
    error = error_of(line, "z = relu(x)", output="z")
    assert told in str(error.diagnostic.help), error.render()
    assert error.diagnostic.span is not None
    assert error.diagnostic.span.line == HEAD.count("\n") + 1


def test_keepdim_by_its_place_is_no_correction() -> None:
    text = "fusion: f\ninputs: {x: 'f32[3, 8]'}\nops:\n"
    text += "  - v, m = var_mean(x, [1], 0, true)\n  - d = std(x, 1, 0, true)\n"
    fusion = read_text(f"{text}outputs: [v, m, d]\n")
    assert [str(o.value.type) for o in fusion.outputs] == ["f32[3, 1]"] * 3


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


X, Y = GIVEN["x"], GIVEN["y"]
ACCEPTED: dict[str, Any] = {
    "x.sum(dim=(0, 1))": X.sum(),
    "q.view(q.size(0), -1)": GIVEN["q"].reshape(2, -1),
    "x.to(i.dtype)": X.astype(np.int64),
    "x.to(dtype=torch.float64, device=y.device)": X,
    "cast(x, torch.long)": X.astype(np.int64),
    "F.softmax(x, dim=-1, dtype=torch.double)": softmax(X),
    "F.softmax(x, -1, dtype=None)": softmax(X),
    "x / math.sqrt(H)": X / 8**0.5,
    "x / math.sqrt(16)": X / 4,
    "math.floor(2.5) * i": 2 * GIVEN["i"],
    "x * math.sqrt(2 / math.pi)": X * (2 / np.pi) ** 0.5,
    "x.masked_fill(y > 0, float('-inf'))": np.where(Y > 0, -np.inf, X),
    "gelu(x, approximate='tanh')":
        0.5 * X * (1 + np.tanh((2 / np.pi) ** 0.5 * (X + 0.044715 * X**3))),
    "torch.tril(torch.ones(B, B, dtype=torch.bool, device=x.device))": np.tri(4),
    "F.kl_div(x, y * y, reduction='batchmean')": (Y**2 * (np.log(Y**2) - X)).sum() / 4,
    "F.kl_div(x, y, log_target=True)": (np.exp(Y) * (Y - X)).mean(),
    "F.kl_div(x, y, reduction='sum', log_target=True)": (np.exp(Y) * (Y - X)).sum(),
    "F.soft_margin_loss(x, y, reduction='none')": np.log1p(np.exp(-Y * X)),
    "F.soft_margin_loss(x, y, reduction='sum')": np.log1p(np.exp(-Y * X)).sum(),
    "torch.linalg.vector_norm(x, ord=1, dim=-1)": np.abs(X).sum(-1),
}  # fmt: skip


@pytest.mark.parametrize("call", ACCEPTED)
def test_lines_with_an_exact_equivalent_are_accepted(call: str) -> None:
    fusion = read_text(text_with([f"r = {call}"], "r"))
    found = evaluate(fusion, GIVEN, fusion.hints)["r"]
    np.testing.assert_allclose(found, ACCEPTED[call], rtol=1e-5, atol=1e-6)


def test_the_norm_of_a_matrix_is_not_that_of_its_entries() -> None:
    """`torch.linalg.norm(x, 2)` is the largest singular value."""
    error = error_of("r = torch.linalg.norm(x, 2)")
    assert "`linalg.norm` of PyTorch with `ord=2` has no equivalent" in error.render()
    assert "`r = norm(x, 2.0, 1)`" in error_of("r = torch.linalg.norm(x, dim=1)").render()


def test_an_argument_of_other_functions_is_not_dropped() -> None:
    assert "`dtype` of `relu` is unknown" in error_of("r = torch.relu(x, dtype=f64)").render()


def test_tuples_are_lists() -> None:
    fusion = read_text(text_with(["r = sum(permute(x, (1, 0)), dims=(0,))"], "r"))
    np.testing.assert_allclose(
        evaluate(fusion, GIVEN, fusion.hints)["r"], GIVEN["x"].sum(1), rtol=1e-6
    )


def test_operations_of_fusec_stay_as_they_are() -> None:
    """`max` has one result, so its subscript is a row; of two sizes it is a size."""
    lines = ["k = size(x, 0)", "m = size(x, 1)", "n = max(k, m)", "r = max(x, 1)[0] + n"]
    fusion = read_text(text_with(lines, "r"))
    found = evaluate(fusion, GIVEN, fusion.hints)["r"]
    np.testing.assert_allclose(found, GIVEN["x"][0].max() + 8, rtol=1e-6)


def test_an_operator_stands_beside_its_sign() -> None:
    assert "expected `=`" in error_of("x * = y").diagnostic.message


def stepped() -> Any:
    mean = 0.9 * GIVEN["y"] + 0.1 * GIVEN["x"]
    decayed = GIVEN["x"] * 0.5
    return decayed - 2.0 * mean / (np.abs(mean) + 0.25)


PROGRAMS: list[tuple[str, str, Any]] = [
    ("kind = x.dtype; x = x.double(); v = x.pow(2).mean(-1, keepdim=True)"
     "; x = x * torch.rsqrt(v + 1e-6); r = w * x.to(kind)", "r",
     GIVEN["w"] * X / np.sqrt((X * X).mean(-1, keepdims=True) + 1e-6)),
    ("a = (x @ y.transpose(-2, -1)) * (1.0 / math.sqrt(y.size(-1))); n = x.shape[0]"
     "; a = a.masked_fill(torch.triu(torch.ones(n, n, dtype=torch.bool), diagonal=1), "
     "float('-inf')); a = F.softmax(a, dim=-1); a = a @ y", "a",
     softmax(np.where(np.triu(np.ones((4, 4)), 1), -np.inf, X @ Y.T / 8**0.5)) @ Y),
    ("x.mul_(s); y.mul_(0.9).add_(x / s, alpha=0.1); d = y.abs().add_(0.25)"
     "; x.addcdiv_(y, d, value=-2.0)", "x", stepped()),
    ("a, b = x.chunk(2, dim=-1); a = torch.cat((-b, a), dim=-1); a *= y; a += w", "a",
     np.concatenate([-X[:, 4:], X[:, :4]], 1) * Y + GIVEN["w"]),
    ("x = torch.log_softmax(x, dim=-1); l = -x.gather(dim=-1, index=i); l = l.mean()", "l",
     -np.take_along_axis(np.log(softmax(X)), GIVEN["i"], 1).mean()),
    ("r = nn.LayerNorm(H, eps=0.5, elementwise_affine=False)(x)", "r",
     (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 0.5)),
    ("r = nn.RMSNorm(H, eps=0.5)(x)", "r",
     GIVEN["w"] * X / np.sqrt((X * X).mean(-1, keepdims=True) + 0.5)),
]  # fmt: skip


@pytest.mark.parametrize(("program", "output", "expected"), PROGRAMS)
def test_what_is_told_computes_the_same(program: str, output: str, expected: Any) -> None:
    found = followed(program.split("; "), output)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


def test_the_lines_below_read_what_was_meant() -> None:
    """A name that is given another value has it in the lines below, which are told in one go."""
    error = error_of("x = x.view(B, 2, -1)", "r = x.exp() + x.sin() * x.shape[1]",
                     "z = x.mT @ x", "x = x[:, None]")  # fmt: skip
    helps = [str(d.help) for d in (error.diagnostic, *error.more)]
    assert "`x_2 = reshape(x, [B, 2, -1])`" in helps[0]
    assert "`x_3 = x_2[:, none]`" in helps[1]
    assert len(helps) == 2


def test_einsum_is_a_matmul_where_it_is_one() -> None:
    assert expression_of("bqd,bkd->bqk", [3, 3]) == (
        "operand0 @ transpose(operand1, -2, -1)", ["operand0", "operand1"]
    )  # fmt: skip
    assert expression_of("...d,d->...", [None, 1]) is None
    with pytest.raises(Unsupported, match="a diagonal"):
        expression_of("ii->i", [None])
    told = error_of("r = torch.einsum('b,h->b', x, w)").diagnostic.message
    assert told == "`einsum`: `b` has 1 index, and `x` has 2 dims"


@given(st.lists(st.text("abcd", max_size=4), min_size=1, max_size=3), st.randoms())
def test_einsum_in_scripts_is_numpys(terms: list[str], random: Any) -> None:
    terms = ["".join(dict.fromkeys(term)) for term in terms]
    letters = sorted(set("".join(terms)))
    random.shuffle(letters)
    equation = f"{','.join(terms)}->{''.join(letters[: random.randint(0, len(letters))])}"
    if "" in terms:
        return
    sizes = {"a": 2, "b": 3, "c": 4, "d": 5}
    arrays = [RNG.normal(size=[sizes[c] for c in term]) for term in terms]
    with FusionDefinition() as fd:
        tensors = [
            fd.define_tensor(shape=list(a.shape), contiguity=True, dtype=DataType.Double)
            for a in arrays
        ]
        fd.add_output(fd.ops.einsum(equation, *tensors))
    fusion = fd.fusion()
    named = {i.value.name: a for i, a in zip(fusion.inputs, arrays, strict=True)}
    (found,) = evaluate(fusion, named, fusion.hints).values()
    np.testing.assert_allclose(found, np.einsum(equation, *arrays), atol=1e-12)


def test_scripts_take_pytorchs_arguments() -> None:
    x, y = RNG.normal(size=(4, 6)), RNG.normal(size=(4, 6))
    with FusionDefinition() as fd:
        a = fd.define_tensor(shape=[4, 6], contiguity=True, dtype=DataType.Double)
        b = fd.define_tensor(shape=[4, 6], contiguity=True, dtype=DataType.Double)
        outputs = [
            a.add(b, alpha=2), a.clamp(0), a.var(-1, unbiased=False), fd.ops.max(a, b), a.min(b),
            a.float().type_as(a), a[:2].expand(2, 6).reshape_as(a[:2]),
            fd.ops.ones([4, 6], device=a.device), fd.ops.softmax(a.float(), -1, dtype=a.dtype),
        ]  # fmt: skip
        for output in outputs:
            fd.add_output(output)
    fusion = fd.fusion()
    given_arrays = dict(zip((i.value.name for i in fusion.inputs), (x, y), strict=True))
    found = list(evaluate(fusion, given_arrays, fusion.hints).values())
    expected = [
        x + 2 * y, np.maximum(x, 0), x.var(-1), np.maximum(x, y), np.minimum(x, y),
        x.astype(np.float32), x[:2], np.ones((4, 6)), softmax(x.astype(np.float32)),
    ]  # fmt: skip
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_scripts_say_how_to_assign_what_is_changed_in_place() -> None:
    fd = FusionDefinition()
    t = fd.define_tensor(shape=[4, 6], contiguity=True)
    with pytest.raises(Unsupported, match=r"write `t = t.mul\(2\).add\(t, alpha=3\)`"):
        t.mul_(2).add_(t, alpha=3)
    with pytest.raises(FusecError, match=r"write `t = fd.ops.maximum\(t, t\)`"):
        fd.ops.maximum(t, t, out=t)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 6), st.integers(1, 6))
def test_factors_of_both_sides_of_a_quotient_cancel(a: int, b: int, c: int, d: int) -> None:
    A, B = symbol("A"), symbol("B")
    size = floordiv(A * B * c + A, A * d)
    assert "A" not in size.symbols
    assert size.evaluate({"A": a, "B": b}) == (a * b * c + a) // (a * d)
