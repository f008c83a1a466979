"""Errors of fusion files, by position."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from paths import ROOT

from fusec.diagnostics import FusecError, InternalError, Unsupported
from fusec.ir.text import to_text
from fusec.parse import read_file, read_text

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
HEAD = """\
fusion: f
dims: {B: 4, H: 8}
inputs:
  x: f32[B, H]
  w: f32[H]
"""


def with_ops(*lines: str, outputs: str = "[y]", head: str = HEAD) -> str:
    """Return a file whose first op line is line 7."""
    return head + "ops:\n" + "".join(f"  - {line}\n" for line in lines) + f"outputs: {outputs}\n"


def with_input(text: str) -> str:
    """Return a file with another second input, in line 5."""
    return with_ops("y = relu(x)", head=HEAD.replace("w: f32[H]", text))


def with_dims(text: str) -> str:
    """Return a file with other dims, in line 2."""
    return with_ops("y = relu(x)", head=HEAD.replace("{B: 4, H: 8}", text))


def check_error(text: str, line: int, column: int, message: str, *, help: str = "") -> FusecError:
    """Check that `text` has exactly one error, at a place, whose message and help contain these."""
    with pytest.raises(FusecError) as caught:
        read_text(text, "file.yaml")
    diagnostic = caught.value.diagnostic
    assert message in diagnostic.message
    span = diagnostic.span
    assert span is not None
    assert (span.line, span.column) == (line, column), diagnostic.render()
    assert help in (diagnostic.help or "")
    assert caught.value.more == (), caught.value.render()
    return caught.value


@pytest.mark.parametrize(
    ("line", "column", "message", "help"),
    [
        ("y = reluu(x)", 9, "unknown operation `reluu`", "`relu`"),
        ("y = f32(x)", 9, "`f32` is a dtype", "cast(x, f32)"),
        ("y = relu(z)", 14, "undefined name `z`", "inputs:"),
        ("y = relu(X)", 14, "undefined name `X`", "`x`"),
        ("y = relu(exp)", 14, "undefined name `exp`", "exp(x)"),
        ("y = add(x, sub(w, ww))", 23, "undefined name `ww`", "`w`"),
        ("y = add(x)", 9, "`add` needs `b`", "add(a, b)"),
        ("y = add(x, w, w)", 19, "takes 2 arguments", "add(a, b)"),
        ("y = sum(x, dmis=[1])", 16, "no argument `dmis`", "`dims`"),
        ("y = sum(x, dims=[1], dims=[0])", 26, "specified twice", ""),
        ("y = sum(x, dims=[1], false)", 26, "positional argument follows", ""),
        ("y = sum(x, dims=[3])", 21, "out of range", ""),
        ("y = sum(x, dims=x)", 21, "not a size", ""),
        ("y = sum(x, keepdim=B)", 24, "must be a bool", ""),
        ("y = cast(x, f23)", 17, "unknown dtype `f23`", "`f32`"),
        ("y = cast(x, 32)", 9, "dtype", ""),
        ("y = cat(x, x)", 9, "list of tensors", "write `y = cat([x, x])`"),
        ("y = relu([x])", 14, "one tensor, not a list", ""),
        ("y = mul(x, none)", 16, "cannot be none", ""),
        ("y = mul(x, 1e999)", 16, "does not fit in f64", ""),
        ("y = mul(x, 99999999999999999999)", 16, "does not fit in 64 bits", ""),
        ("y = mul(x, i8(300))", 16, "300 does not fit in i8", ""),
        ("y = reshape(x, [B, H // 0])", 24, "division by zero", ""),
        ("y = reshape(x, [B, ceildiv(H, B - 4)])", 24, "`B - 4` is 0 at the default", ""),
        ("y = reshape(x, [B, relu(w)])", 24, "is not a size", ""),
        ("y = reshape(x, [B, H / 2, 2])", 26, "`/` is not a size", "//"),
        ("y = reshape(x, [B, sqrt2(H)])", 24, "unknown size function", "ceildiv"),
        ("y = x", 9, "a call", "set(x)"),
        ("y = x + k", 13, "undefined name `k`", ""),
        ("y = relu(x * [w])", 18, "found a list", ""),
        ("y = x + none", 13, "none is not a tensor", ""),
        ("y = x < w < 1", 15, "comparisons do not chain", "write `y = (x < w) & (w < 1)`"),
        ("y = x and w", 11, "op lines have no `and`", "write `y = logical_and(x, w)`"),
        ("y = not x", 9, "op lines have no `not`", "write `y = logical_not(x)`"),
        ("y = x if w else x", 11, "op lines have no `if`", "write `y = where(w != 0, x, x)`"),
        ("y = !x", 9, "op lines have no `!`", "write `y = logical_not(x)`"),
        ("y = x * (1 / 0)", 14, "division by zero", ""),
        ("y = x + 1e200 ** 2", 13, "does not fit in f64", ""),
        ("y = x & w", 9, "bitwise_and", ""),
        ("y, z = x + w", 12, "one result, and 2 names", ""),
        ("y = x +", 12, "found the end of the line", ""),
        ("y = reshape(x, [x * 2])", 21, "x` is f32[B, H], not a size", ""),
        ("y = add(x, w", 17, "found the end of the line", ""),
        ("y = add(x w)", 15, "found `w`", ""),
        ("y = relu(x) z", 17, "found `z`", ""),
        ("y = relu('x')", 14, "unexpected `'`", "not quoted: write `y = relu(x)`"),
        ("y = relu(é)", 14, "unexpected `é`", ""),
        ("1y = relu(x)", 5, "`1y` is not a name", ""),
        ("y = pad(x, value: 1)", 21, "YAML mapping", "value=1"),
        ("a, y = relu(x)", 12, "returns 1 value", ""),
        ("y = relu(var_mean(x))", 14, "returns 2 values and cannot be nested", ""),
        ("y = " + "relu(" * 70 + "x" + ")" * 70, 329, "nested deeper", "their own lines"),
        ("y = reshape(x, [" + "+".join("1" * 300) + "])", 422, "more than 200 operators", ""),
        ("y = reshape(x, [" + "*".join(["(B + H + 1)"] * 60) + "])", 22, "too many terms", ""),
    ],
)
def test_errors_in_op_lines(line: str, column: int, message: str, help: str) -> None:
    """The caret stands at the word that is wrong."""
    check_error(with_ops(line), 7, column, message, help=help)


def test_shape_errors_show_both_shapes_and_where_they_came_from() -> None:
    """A mismatch names each operand with its type and its line."""
    text = with_ops("y = add(x, k)", head=HEAD.replace("w: f32[H]", "k: f32[B, 9]"))
    notes = check_error(text, 7, 9, "do not broadcast").diagnostic.notes
    assert "x is f32[B, H], k is f32[B, 9]" in notes
    assert "`x` is defined at file.yaml:4:3" in notes
    assert "`k` is defined at file.yaml:5:3" in notes


def test_named_dims_are_never_unified() -> None:
    """Two names are two sizes even where their defaults agree."""
    head = HEAD.replace("H: 8", "H: 8, K: 8").replace("w: f32[H]", "w: f32[K]")
    check_error(with_ops("y = add(x, w)", head=head), 7, 9, "do not broadcast")


def test_a_value_is_defined_once() -> None:
    """A second definition names the place of the first."""
    text = with_ops("y = relu(x)", "y = exp(x)")
    error = check_error(text, 8, 5, "`y` is defined twice")
    assert error.diagnostic.notes == ("first defined at file.yaml:7:5",)
    check_error(with_ops("w = relu(x)", "y = exp(w)"), 7, 5, "`w` is defined twice")
    check_error(with_ops("B = relu(x)", "y = exp(x)"), 7, 5, "`B` is defined twice")


def test_a_value_is_defined_before_its_use() -> None:
    """A use before the definition says where that is."""
    error = check_error(with_ops("y = relu(z)", "z = exp(x)"), 7, 14, "used before it is defined")
    assert error.diagnostic.notes == ("it is defined at file.yaml:8:5",)


@pytest.mark.parametrize("name", ["float", "threadIdx", "while", "nan", "f32", "__x", "xor"])
def test_words_of_cuda_and_of_the_language_name_no_value(name: str) -> None:
    """Names that would reach CUDA text are checked."""
    check_error(with_ops(f"{name} = relu(x)", "y = exp(x)"), 7, 5, f"`{name}`")
    check_error(with_input(f"{name}: f32[H]"), 5, 3, f"`{name}`")
    check_error(with_dims(f"{{B: 4, H: 8, {name}: 2}}"), 2, 20, f"`{name}`")


def test_names_must_be_identifiers() -> None:
    """Names of inputs, dims and fusions are identifiers."""
    check_error(with_input('"a; b": f32[H]'), 5, 3, "is not an identifier")
    check_error(with_dims("{B: 4, H: 8, a-b: 1}"), 2, 20, "is not an identifier")
    check_error(
        HEAD.replace("fusion: f", "fusion: 3f") + "outputs: [x]\n", 1, 9, "not an identifier"
    )


@pytest.mark.parametrize(
    ("dims", "column", "message"),
    [
        ("{B: 4, H: -8}", 17, "negative"),
        ("{B: 4, H: 8.5}", 17, "(an integer), found `8.5`"),
        ("{B: 4, H: true}", 17, "(an integer)"),
        ("{B: 4, H: [8]}", 17, "found a list"),
        ("{B: 4, H: 9223372036854775808}", 17, "does not fit in 64 bits"),
        ("{B: 4, H: K + 1}", 17, "undefined name `K`"),
        ("{B: 4, H: 2 * K, K: 3}", 21, "`K` is used before it is defined"),
        ("{B: 4, H: {multiple_of: 8}}", 17, "needs a `default`"),
        ("{B: 4, H: {default: 8, multipleof: 8}}", 30, "unknown field `multipleof`"),
        ("{B: 4, H: {default: 8, multiple_of: 3}}", 27, "not a multiple of 3"),
        ("{B: 4, H: {default: 8, multiple_of: 0}}", 43, "at least 1"),
        ("{B: 4, H: 8, H: 9}", 20, "duplicate key `H`"),
        ("[B, H]", 7, "expected dims (a mapping)"),
    ],
)
def test_errors_in_dims(dims: str, column: int, message: str) -> None:
    """Sizes are integers of 64 bits with consistent facts."""
    with pytest.raises(FusecError) as caught:
        read_text(with_dims(dims))
    diagnostic = caught.value.diagnostic
    assert message in diagnostic.message
    assert diagnostic.span is not None
    assert (diagnostic.span.line, diagnostic.span.column) == (2, column), diagnostic.render()


def test_a_duplicate_key_names_both_places() -> None:
    """YAML itself would take the last one."""
    error = check_error(with_input("w: f32[H]\n  w: f32[B]"), 6, 3, "duplicate key `w`")
    assert error.diagnostic.notes == ("first given at file.yaml:5:3",)


def test_sizes_whose_product_overflows() -> None:
    """A tensor's bytes are counted in 64 bits."""
    check_error(with_dims("{B: 4, H: 9223372036854775807}"), 4, 3, "bytes at default sizes")
    text = with_ops("y = expand(broadcast(x, [false, false, true]), [B, H, 1152921504606846976])")
    check_error(text, 7, 9, "bytes at default sizes")


@pytest.mark.parametrize(
    ("text", "column", "message", "help"),
    [
        ("w: f33[H]", 6, "unknown dtype `f33`", "f32"),
        ("w: f32[K]", 10, "undefined name `K`", "dims:"),
        ("w: f32[H", 11, "expected `]`", ""),
        ("w: f32[-1]", 10, "negative", "dims:"),
        ("w: f32[H] f", 13, "found `f`", ""),
        ("w: f32[H] = 3", 6, "only scalar inputs", ""),
        ("w: i32 = 3.5", 12, "an integer", ""),
        ("w: u8 = 256", 11, "does not fit in u8", ""),
        ("w: bool = 1", 13, "true or false", ""),
        ("w:", 5, "expected the type", "bf16[B, H]"),
        ("w: [f32]", 6, "found a list", "bf16[B, H]"),
        ("w: {typ: f32}", 7, "unknown field `typ`", "`type`"),
        ("w: {range: [0, 1]}", 6, "needs a `type`", ""),
        ("w: {type: f32, strides: [1]}", 27, "is a scalar", "f32[]"),
        ("w: {type: f32[H]}", 16, "a value ends at `[`", "quote the type"),
        ("w: {range: [0, 1], type: f32[H]}", 31, "a value ends at `[`", "quote the type"),
        ("w:f32[H]", 3, "no space after `w:`", "write `w: f32[H]`"),
        ('w: {type: "f32[H]", range: [1, 0]}', 30, "range is empty", ""),
        ('w: {type: "f32[H]", range: [1]}', 30, "2 ends", ""),
        ('w: {type: "f32[H]", range: [a, 1]}', 31, "a number", ""),
        ('w: {type: "f32[H]", strides: [1, 2]}', 32, "2 entries in `strides` for 1 dim of `w`", ""),
        ('w: {type: "f32[H]", strides: [1], contiguity: [true]}', 32, "already", "remove"),
        ('w: {type: "f32[H]", contiguity: [yes]}', 36, "found `yes`", "null"),
        ('w: {type: "f32[B, H]", stride_order: [0, 0]}', 40, "permutation", ""),
        ('w: {type: "f32[H]", on_cpu: on}', 31, "true or false", "`true`"),
        ("w: f32[H]\n   b: f32[H]", 5, "indented by 3 blanks", "align it with line 5"),
    ],
)
def test_errors_in_inputs(text: str, column: int, message: str, help: str) -> None:
    """The caret stands inside the type or option that is wrong."""
    with pytest.raises(FusecError) as caught:
        read_text(with_input(text))
    diagnostic = caught.value.diagnostic
    assert message in diagnostic.message
    assert help in (diagnostic.help or "")
    assert diagnostic.span is not None
    assert (diagnostic.span.line, diagnostic.span.column) == (5 + text.count("\n"), column), (
        diagnostic.render()
    )


@pytest.mark.parametrize(
    ("outputs", "column", "message"),
    [
        ("y", 10, "expected a list of outputs"),
        ("[]", 10, "the fusion has no outputs"),
        ("[z]", 11, "undefined name `z`"),
        ("[B]", 11, "is a dim"),
        ("[{y: {alias: w}}]", 12, "cannot be written to `w`"),
        ("[{y: {alias: B}}]", 23, "is a dim"),
        ("[{y: {alais: w}}]", 16, "unknown field `alais`"),
        ("[{y: {stride_order: [1]}}]", 30, "for 2 dims"),
        ("{y: {alias: y}}", 22, "is not an input"),
    ],
)
def test_errors_in_outputs(outputs: str, column: int, message: str) -> None:
    """Outputs are values, aliases are inputs of the same type."""
    check_error(with_ops("y = relu(x)", outputs=outputs), 8, column, message)


@pytest.mark.parametrize(
    ("segments", "column", "message"),
    [
        ("{a: [z]}", 16, "undefined value `z`"),
        ("{a: [x]}", 16, "is an input"),
        ("{a: [y], b: [y]}", 24, "in two segments"),
        ("{a: [y, y]}", 19, "listed twice"),
        ("{a: {values: [y], scheduler: pointwize}}", 40, "unknown scheduler"),
        ("{a: {scheduler: pointwise}}", 12, "needs `values`"),
        ("[y]", 11, "expected segments"),
    ],
)
def test_errors_in_segments(segments: str, column: int, message: str) -> None:
    """Segments list results, each once."""
    check_error(with_ops("y = relu(x)") + f"segments: {segments}\n", 9, column, message)


@pytest.mark.parametrize(
    ("name", "help"),
    [
        ("persistant", "`inner_persistent`, `outer_persistent`, `inner_outer_persistent`?"),
        ("outer_persistant", "did you mean `outer_persistent`?"),
        ("pointwize", "did you mean `pointwise`?"),
        ("qqq", "one of no_op, matmul"),
    ],
)
def test_a_misspelt_scheduler_is_asked_with_all_that_it_may_be(name: str, help: str) -> None:
    """`persistant` alone does not say which of several persistent schedulers is meant."""
    segments = f"segments: {{a: {{values: [y], scheduler: {name}}}}}\n"
    check_error(with_ops("y = relu(x)") + segments, 9, 40, "unknown scheduler", help=help)


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("- a\n", 1, 1, "found a list"),
        ("hello\n", 1, 1, "found `hello`"),
        ("fusion: f\nop: []\noutputs: [x]\n", 2, 1, "unknown field `op`"),
        ("inputs: {x: 'f32[4]'}\noutputs: [x]\n", 1, 1, "no `fusion` field"),
        ("fusion: f\n", 1, 1, "no `outputs`"),
        ("a: &a [*a]\n", 1, 8, "contains itself"),
        ("a: *b\n", 1, 4, "undefined YAML alias"),
        ("a: !!python/object:x {}\n", 1, 4, "tag"),
        ("a: 1\n---\nb: 2\n", 2, 1, "second document"),
        ("? [a]\n: b\n", 1, 3, "must be a name"),
        ("[" * 40, 1, 33, "nested deeper"),
        ("a: 'x\n", 1, 4, "never closed"),
        ("a: [1, 2\nb: 3\n", 2, 2, "expected `,` or `]`"),
        ("a: `x`\n", 1, 4, "cannot begin with"),
        ("a:\n\tb: 1\n", 2, 1, "a tab"),
        ("a: \x01\n", 1, 4, "control character U+0001"),
    ],
)
def test_errors_in_the_document(text: str, line: int, column: int, message: str) -> None:
    """YAML that is no fusion file, or no YAML, is told with its place."""
    check_error(text, line, column, message)


def test_traps_of_yaml_in_op_lists() -> None:
    """The mend is said where YAML's rules and the op grammar meet."""
    check_error(HEAD + "ops: [y = add(x, w)]\noutputs: [y]\n", 6, 6, "splits", help="- ")
    check_error(HEAD + "ops: y = relu(x)\noutputs: [y]\n", 6, 6, "is missing its `- `", help="- y")
    text = HEAD + "ops:\n  - [a, y] = var_mean(x)\noutputs: [y]\n"
    check_error(text, 7, 12, "ends the op line", help="a, b = op(x)")
    text = HEAD + "ops:\n  - y = relu(x)\n    z = exp(y)\noutputs: [y]\n"
    check_error(text, 8, 5, "found `z`", help="- ")
    text = HEAD.replace("  x:", "  - x:") + "outputs: [x]\n"
    with pytest.raises(FusecError):
        read_text(text)


def test_an_op_line_without_a_result() -> None:
    """A bare call says how to name its result."""
    check_error(with_ops("relu(x)", outputs="[x]"), 7, 5, "must name its result", help="y = relu")


def test_columns_are_right_in_every_kind_of_scalar() -> None:
    """Quoted, folded, literal and broken op lines are read from the raw source."""
    check_error(with_ops('"y = relu(zz)"'), 7, 15, "`zz`")
    check_error(with_ops("'y = relu(zz)'"), 7, 15, "`zz`")
    check_error(with_ops("&anchor y = relu(zz)"), 7, 22, "`zz`")
    check_error(with_ops(">-\n    y = add(x,\n      zz)"), 9, 7, "`zz`")
    check_error(with_ops("|  # why\n    y = add(x,\n\n      zz)"), 10, 7, "`zz`")
    check_error(with_ops("y = add(x,\n      zz)"), 8, 7, "`zz`")
    check_error(with_ops('"y = add(x,\\\n      zz)"'), 8, 7, "`zz`")
    check_error("# ä€𝄞\n" + with_ops("y = relu(zz)").replace("\n", "\r\n"), 8, 14, "`zz`")


def test_several_errors_are_reported_at_once() -> None:
    """Independent mistakes come together; uses of what is wrong do not add to them."""
    text = with_ops("a = reluu(x)", "b = add(x", "y = add(a, b)", "z = exp(q)", outputs="[y, k]")
    with pytest.raises(FusecError) as caught:
        read_text(text)
    everything = (caught.value.diagnostic, *caught.value.more)
    found = [(d.span.line, d.message) for d in everything if d.span]
    assert [line for line, _ in sorted(found)] == [7, 8, 10, 11]


def test_alias_bombs_do_not_explode() -> None:
    """Aliases that expand to a billion nodes are refused at once."""
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for index in range(9):
        previous, name = chr(97 + index), chr(98 + index)
        lines.append(f"{name}: &{name} [{', '.join([f'*{previous}'] * 9)}]")
    with pytest.raises(FusecError, match="aliases expand"):
        read_text("\n".join(lines))


def test_sizes_do_not_explode() -> None:
    """Squaring a sum again and again is refused long before it takes time."""
    ops = ["s0 = add(n, m)", *(f"s{k} = mul(s{k - 1}, s{k - 1})" for k in range(1, 40))]
    head = HEAD.replace("w: f32[H]", "n: i64\n  m: i64")
    check_error(with_ops(*ops, "y = relu(x)", head=head), 13, 10, "too many terms")


@pytest.mark.parametrize(
    ("first", "line"),
    [
        ("d0 = H + 1", "d{new} = d{old} * d{old}"),
        ("d0 = H + 1", "d{new} = (d{old} // 2) * d{old}"),
        ("d0 = H + 1", "d{new} = d{old} // (d{old} + 1) + d{old} % 3"),
        ("d0 = H + 1", "d{new} = max(min(d{old}, B), d{old} - 1)"),
        ("d0 = flatten(x)", "d{new} = flatten(unsqueeze(d{old}, 1) * d{old})"),
        ("d0 = H + 1", "d{new} = (d{old} + 1) // (B + {new})"),
    ],
)
def test_sizes_of_dims_do_not_explode(first: str, line: str) -> None:
    """The degree of one term, and functions of functions, are limited too."""
    ops = [first, *(line.format(old=k, new=k + 1) for k in range(60))]
    with pytest.raises(FusecError, match=r"the size has (too many terms|functions nested deeper)"):
        read_text(with_ops(*ops, "y = relu(x)"))


WORDS = (
    *("[", "]", "{", "}", ",", ":", "(", ")", "=", "//", "%", "#", "|", ">", "'", '"', "?", "~"),
    *(
        "0",
        "-1",
        "1e400",
        "inf",
        "nan",
        "null",
        "none",
        "true",
        "y",
        "B",
        "f32",
        "_",
        "é",
        "9" * 30,
    ),
    *("*a", "&a ", "!x ", "---", "...", "dims=", "segments", "alias", "size(x, 0)", "x.stride0"),
    *("\n", "\t", "  ", ""),
)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_damaged_files_give_errors(path: Path) -> None:
    """Whatever the text, the reader returns a fusion or raises a FusecError that renders."""
    generator = random.Random(path.stem)
    original = path.read_text()
    refused = 0
    for _ in range(60):
        text = original
        for _ in range(generator.randint(1, 3)):
            start = generator.randrange(len(text))
            end = start + generator.choice((0, 0, 1, 2, 5, 20))
            text = text[:start] + generator.choice(WORDS) + text[end:]
        try:
            fusion = read_text(text)
        except InternalError:
            raise
        except FusecError as error:
            refused += bool(error.render())
        else:
            assert read_text(to_text(fusion)) == fusion
    assert refused > 20


def test_what_is_known_but_not_supported() -> None:
    """Valid files that fusec does not support end with exit code 3."""
    with pytest.raises(Unsupported, match="f4e2m1"):
        read_text(with_input("w: f4e2m1[H]"))
    with pytest.raises(FusecError, match="unknown operation") as caught:
        read_text(with_ops("y = reluu(x)", head=HEAD.replace("w: f32", "w: f8e8m0")))
    assert caught.value.exit_code == 2


def test_files_that_cannot_be_read(tmp_path) -> None:
    """Missing, empty, binary files and directories are told apart."""
    with pytest.raises(FusecError, match="no such file"):
        read_file(tmp_path / "missing.yaml")
    (tmp_path / "layernorm.yaml").write_text("")
    with pytest.raises(FusecError) as caught:
        read_file(tmp_path / "layernrm.yaml")
    assert "layernorm.yaml" in (caught.value.diagnostic.help or "")
    with pytest.raises(FusecError, match="is empty"):
        read_file(tmp_path / "layernorm.yaml")
    with pytest.raises(FusecError, match="is a directory"):
        read_file(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\x7fELF\0\1\2")
    with pytest.raises(FusecError, match="is a binary file"):
        read_file(tmp_path / "binary.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"fusion: f\ndoc: caf\xe9\n")
    with pytest.raises(FusecError, match="not UTF-8") as caught:
        read_file(tmp_path / "latin.yaml")
    span = caught.value.diagnostic.span
    assert span is not None
    assert (span.line, span.column) == (2, 9)
    (tmp_path / "comments.yaml").write_text("# nothing\n")
    with pytest.raises(FusecError, match="only comments"):
        read_file(tmp_path / "comments.yaml")


def test_setting_sizes() -> None:
    """`--set` takes names of the file and values that fit its facts."""
    text = with_dims("{B: 4, H: {default: 8, multiple_of: 8}, D: 2 * B}")
    assert dict(read_text(text, overrides={"H": 16}).hints) == {"B": 4, "H": 16}
    for name, value, message in [
        ("h", 16, "no such dim"),
        ("H", 12, "multiple of 8"),
        ("H", -8, "not a size"),
        ("H", 2**63, "not a size"),
        ("D", 8, "computed from other dims"),
        ("x", 8, "is a tensor"),
    ]:
        with pytest.raises(FusecError, match=message):
            read_text(text, overrides={name: value})


def test_render_shows_the_line_and_a_caret() -> None:
    """The text of an error has the shape that the documentation promises."""
    error = check_error(with_ops("y = reluu(x)"), 7, 9, "unknown")
    assert error.render().splitlines() == [
        "error[E0205]: unknown operation `reluu`",
        "  --> file.yaml:7:9",
        "   |",
        " 7 |   - y = reluu(x)",
        "   |         ^^^^^",
        "   = help: did you mean `relu`?",
    ]


def test_an_alias_of_another_shape_names_the_input_that_fits() -> None:
    with pytest.raises(FusecError) as caught:
        read_text(with_ops("y = x * w", outputs="[y: {alias: w}]"))
    assert "alias `x`, which is f32[B, H]" in caught.value.render()
