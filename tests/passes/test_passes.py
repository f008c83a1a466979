"""The pipeline, and the passes over scalars, casts, copies and equal expressions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fusec.diagnostics import FusecError
from fusec.ir.annotations import Pin
from fusec.ir.dtype import ALL, BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, DType
from fusec.ir.graph import Fusion, Value
from fusec.ops import TABLE
from fusec.ops.builder.build import GraphBuilder
from fusec.passes import PIPELINE, find_pass, run_pipeline
from fusec.passes.fold_constants import (
    _quick_literal,
    _reference_literal,
    fold_constants,
)
from fusec.passes.merge_casts import holds, merge_casts
from fusec.passes.remove_copies import remove_copies
from fusec.passes.remove_dead import remove_dead
from fusec.passes.share_expressions import share_expressions


def lines(fusion: Fusion) -> list[str]:
    return [repr(node) for node in remove_dead(fusion).nodes]


def named(b: GraphBuilder, name: str, op: str, *operands: object, **attributes: object) -> Value:
    value = b.call(op, list(operands), attributes, names=[name])[0]
    assert isinstance(value, Value)
    return value


# -- the pipeline


def chain() -> Fusion:
    b = GraphBuilder()
    x = b.input("x", BF16, [4, 8])
    wide = named(b, "wide", "cast", x, dtype=F32)
    narrow = named(b, "narrow", "cast", wide, dtype=BF16)
    turned = named(b, "turned", "permute", narrow, dims=[1, 0])
    back = named(b, "back", "permute", turned, dims=[1, 0])
    b.output(named(b, "y", "neg", back))
    return b.finish()


def test_the_pipeline_runs_all_passes() -> None:
    assert lines(run_pipeline(chain())) == ["y = neg(x)"]


def test_a_pass_can_be_left_out_also_with_hyphens() -> None:
    after = run_pipeline(chain(), without=["merge-casts"])
    assert lines(after) == ["wide = cast(x)", "narrow = cast(wide)", "y = neg(narrow)"]


def test_the_pipeline_stops_after_a_pass() -> None:
    after = run_pipeline(chain(), stop_after="merge_casts")
    assert lines(after) == ["turned = permute(x)", "back = permute(turned)", "y = neg(back)"]


def test_an_unknown_pass_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(FusecError, match="unknown pass `merge_cast`") as caught:
        run_pipeline(chain(), without=["merge_cast"])
    assert caught.value.diagnostic.help == "did you mean `merge_casts`?"
    with pytest.raises(FusecError) as caught:
        run_pipeline(chain(), stop_after="zzz")
    assert "fold_constants" in (caught.value.diagnostic.help or "")


def test_the_observer_sees_every_pass_and_what_it_changed() -> None:
    seen: list[tuple[str, bool]] = []

    def observe(step: object, before: Fusion, after: Fusion, seconds: float) -> None:
        seen.append((step.name, before is not after))  # type: ignore[attr-defined]
        assert seconds >= 0

    run_pipeline(chain(), observer=observe)
    assert [name for name, _ in seen[: len(PIPELINE)]] == [p.name for p in PIPELINE]
    changed = [name for name, new in seen if new]
    assert changed == ["merge_casts", "merge_permutes", "remove_dead"]


def test_every_pass_is_documented_and_named_after_its_function() -> None:
    found = [find_pass(p.name) for p in PIPELINE]
    assert all((run.__doc__ or "").partition("\n")[0].endswith(".") for run in found)
    assert [run.__name__ for run in found] == [p.name for p in PIPELINE]
    assert len({p.name for p in PIPELINE}) == len(PIPELINE)


def test_a_long_chain_ends() -> None:
    b = GraphBuilder()
    x = value = b.input("x", BF16, [4, 8])
    for _ in range(200):
        wide = b.apply("cast", value, F32)
        scaled = b.apply("mul", wide, b.apply("cast", x, F32))
        value = b.apply("neg", b.apply("cast", b.apply("permute", scaled, [0, 1]), BF16))
    b.output(value)
    fusion = b.finish()
    assert len(fusion.nodes) > 1000
    assert len(run_pipeline(fusion).nodes) <= len(fusion.nodes)


# -- scalars


def test_scalars_of_literals_become_literals() -> None:
    b = GraphBuilder()
    x = b.input("x", F32, [4])
    half = named(b, "half", "truediv", 1.0, 4.0)
    root = named(b, "root", "sqrt", half)
    b.output(named(b, "y", "mul", x, root))
    assert lines(fold_constants(b.finish())) == ["y = mul(x, 0.5)"]


@pytest.mark.parametrize("op", sorted(op.name for op in TABLE.values() if op.quick is not None))
@pytest.mark.parametrize("values", [(0.1, 3.7), (-2.5, 1e-300), (1e308, -1e308), (3.0, 0.0)])
def test_quick_literals_are_those_of_the_reference(op: str, values: tuple[float, ...]) -> None:
    b = GraphBuilder()
    x = b.input("x", F32, [4])
    arity = len(TABLE[op].operands)
    b.output(named(b, "y", "mul", x, named(b, "s", op, *values[:arity])))
    node = b.finish().nodes[0]
    assert _quick_literal(node) in (_reference_literal(node), None)
    assert values != (0.1, 3.7) or _quick_literal(node) is not None


def test_a_scalar_that_depends_on_an_input_is_kept() -> None:
    b = GraphBuilder()
    x, eps = b.input("x", F32, [4]), b.input("eps", F32, None, default=1.0)
    b.output(named(b, "y", "mul", x, named(b, "twice", "mul", eps, 2.0)))
    fusion = b.finish()
    assert fold_constants(fusion) is fusion


def test_a_scalar_that_types_its_user_is_kept() -> None:
    # A literal is weak beside a value: folded, `wide` would leave the sum in f32.
    b = GraphBuilder()
    x, eps = b.input("x", F32, [4]), b.input("eps", F32, None, default=1.0)
    wide = named(b, "wide", "cast", named(b, "third", "truediv", 1.0, 3.0), dtype=F64)
    total = named(b, "total", "add", eps, wide)
    b.output(named(b, "y", "mul", x, total))
    folded = fold_constants(b.finish())
    kept = folded.find("total")
    assert kept is not None
    assert kept.dtype == F64


def test_known_sizes_become_literals() -> None:
    b = GraphBuilder()
    n = b.declare_dim("N", 16)
    x = b.input("x", F32, [n, 8])
    b.output(named(b, "y", "mul", x, named(b, "rows", "size", x, dim=0)))
    b.output(named(b, "z", "mul", x, named(b, "columns", "size", x, dim=1)))
    assert lines(fold_constants(b.finish())) == [
        "rows = size(x)",
        "y = mul(x, rows)",
        "z = mul(x, 8)",
    ]


@pytest.mark.parametrize(
    ("op", "operands", "folds"),
    [
        ("mul", ("x", 1.0), True),
        ("mul", (1, "x"), True),
        ("truediv", ("x", 1.0), True),
        ("sub", ("x", 0.0), True),
        ("pow", ("x", 1.0), True),
        ("sub", ("x", -0.0), False),
        ("add", ("x", 0.0), False),
        ("sub", (0.0, "x"), False),
        ("truediv", (1.0, "x"), False),
        ("mul", ("x", 2.0), False),
    ],
)
def test_neutral_literals(op: str, operands: tuple[object, ...], folds: bool) -> None:
    b = GraphBuilder()
    x = b.input("x", BF16, [4])
    result = b.call(op, [x if o == "x" else o for o in operands])[0]
    b.output(named(b, "y", "neg", result))
    assert (lines(fold_constants(b.finish())) == ["y = neg(x)"]) is folds


def test_a_neutral_literal_that_changes_the_type_is_kept() -> None:
    b = GraphBuilder()
    x = b.input("x", I32, [4])
    b.output(named(b, "y", "mul", x, 1.0))
    assert lines(fold_constants(b.finish())) == ["y = mul(x, 1.0)"]


# -- casts


def cast_through(source: DType, middle: DType, target: DType) -> list[str]:
    b = GraphBuilder()
    x = b.input("x", source, [4])
    a = named(b, "a", "cast", x, dtype=middle)
    c = named(b, "c", "cast", a, dtype=target)
    b.output(named(b, "y", "abs" if target != BOOL else "logical_not", c))
    return lines(merge_casts(b.finish()))[:-1]


@pytest.mark.parametrize(
    ("source", "middle", "target"),
    [(BF16, F32, BF16), (F16, F64, F16), (I8, I64, I8), (U8, F16, U8), (I32, F64, I32)],
)
def test_widen_then_narrow_back_is_nothing(source: DType, middle: DType, target: DType) -> None:
    assert cast_through(source, middle, target) == []


@pytest.mark.parametrize(
    ("source", "middle", "target"),
    [(BF16, F32, F16), (BF16, F32, F64), (U8, I32, F32), (I16, F32, BOOL), (F32, F64, I32)],
)
def test_a_widening_step_is_skipped(source: DType, middle: DType, target: DType) -> None:
    assert cast_through(source, middle, target) == ["c = cast(x)"]


@pytest.mark.parametrize(
    ("source", "middle", "target"),
    [
        (F32, BF16, F32),  # rounds
        (F64, F32, F64),
        (BF16, F16, BF16),  # neither holds the other
        (F16, BF16, F32),
        (I32, F32, I32),  # 24 bits
        (I64, F64, I64),
        (I64, I8, I64),  # wraps
        (F32, I32, F32),  # truncates
        (I16, F32, I8),  # saturates or wraps
        (I32, F64, BF16),  # rounded twice on the way through f32
        (U8, I8, U8),
    ],
)
def test_a_step_that_loses_is_kept(source: DType, middle: DType, target: DType) -> None:
    assert cast_through(source, middle, target) == ["a = cast(x)", "c = cast(a)"]


def test_holds_agrees_with_numpy() -> None:
    import numpy as np

    for narrow in (d for d in ALL if d.is_integer and d.bits == 8):
        values = np.arange(
            -128 if narrow.kind == "int" else 0, 128 if narrow.kind == "int" else 256
        )
        for wide in (F64, F32, F16, BF16, I64, I32, I16, I8, U8):
            with np.errstate(all="ignore"):
                there = values.astype(wide.numpy).astype(np.float64)
            assert holds(wide, narrow) == bool((there == values).all()), (wide, narrow)


# -- copies


def test_copies_are_read_through_and_outputs_take_their_place() -> None:
    b = GraphBuilder()
    x = b.input("x", F32, [4])
    a = named(b, "a", "neg", named(b, "s", "set", x))
    b.output(named(b, "y", "set", a))
    b.output(named(b, "z", "abs", a))
    fusion = b.finish()
    assert lines(remove_copies(fusion)) == ["y = neg(x)", "z = abs(y)"]


def test_one_of_two_output_copies_takes_the_place() -> None:
    b = GraphBuilder()
    a = named(b, "a", "neg", b.input("x", F32, [4]))
    b.output(named(b, "y", "set", a))
    b.output(named(b, "z", "set", a))
    assert lines(remove_copies(b.finish())) == ["y = neg(x)", "z = set(y)"]


def test_copies_of_inputs_and_of_outputs_stay() -> None:
    b = GraphBuilder()
    x = b.input("x", F32, [4])
    b.output(named(b, "y", "set", x))
    b.output(named(b, "z", "neg", x))
    b.output(named(b, "w", "set", b.find_value("z")))
    fusion = b.finish()
    assert remove_copies(fusion) is fusion


def test_a_forced_boundary_stays() -> None:
    b = GraphBuilder()
    x = b.input("x", F32, [4])
    b.output(named(b, "y", "abs", named(b, "s", "segment_set", named(b, "a", "neg", x))))
    fusion = b.finish()
    assert run_pipeline(fusion) is fusion


# -- equal expressions and dead code


def test_equal_expressions_are_computed_once() -> None:
    b = GraphBuilder()
    x, w = b.input("x", F32, [4]), b.input("w", F32, [4])
    first, second = named(b, "a", "add", x, w), named(b, "c", "add", w, x)
    b.output(named(b, "y", "mul", named(b, "e", "exp", first), named(b, "f", "exp", second)))
    assert lines(share_expressions(b.finish())) == ["a = add(x, w)", "e = exp(a)", "y = mul(e, e)"]


def test_unequal_expressions_are_not_shared() -> None:
    b = GraphBuilder()
    x, w = b.input("x", F32, [4, 4]), b.input("w", F32, [4, 4])
    b.output(named(b, "a", "sub", x, w))
    b.output(named(b, "c", "sub", w, x))
    b.output(named(b, "d", "sum", x, dims=[0]))
    b.output(named(b, "e", "sum", x, dims=[1]))
    b.output(named(b, "f", "atan2", x, 0.0))
    b.output(named(b, "g", "atan2", x, -0.0))
    fusion = b.finish()
    assert share_expressions(fusion) is fusion


def test_an_output_equal_to_another_keeps_its_name() -> None:
    b = GraphBuilder()
    x = b.input("x", F32, [4])
    b.output(named(b, "y", "exp", x))
    b.output(named(b, "z", "exp", x))
    assert lines(share_expressions(b.finish())) == ["y = exp(x)", "z = set(y)"]


def test_dead_code_goes_and_a_used_result_of_two_stays() -> None:
    b = GraphBuilder()
    x = b.input("x", F32, [4, 4])
    named(b, "dead", "exp", named(b, "also", "neg", x))
    var, _ = b.call("var_mean", [x], {"dims": [1]}, names=["var", "mean"])
    b.output(named(b, "y", "sqrt", var))
    assert lines(b.finish()) == ["var, mean = var_mean(x)", "y = sqrt(var)"]


# -- pins


def test_expressions_of_different_segments_are_not_shared() -> None:
    b = GraphBuilder()
    x = b.input("x", F32, [4])
    first, second = named(b, "a", "exp", x), named(b, "c", "exp", x)
    b.output(named(b, "y", "neg", first))
    b.output(named(b, "z", "abs", second))
    fusion = b.finish()
    apart = replace(fusion, pins=(Pin("left", ("a", "y")), Pin("right", ("c", "z"))))
    assert share_expressions(apart) is apart
    joined = replace(fusion, pins=(Pin("both", ("a", "c", "y", "z")),))
    shared = remove_dead(share_expressions(joined))
    assert shared.pins[0].values == ("a", "y", "z")


def test_a_pinned_value_keeps_its_name_where_another_takes_its_place() -> None:
    b = GraphBuilder()
    x = b.input("x", BF16, [4])
    narrow = named(b, "narrow", "cast", named(b, "wide", "cast", x, dtype=F32), dtype=BF16)
    b.output(named(b, "y", "neg", narrow))
    pinned = replace(b.finish(), pins=(Pin("s", ("narrow",)),))
    after = merge_casts(pinned)
    assert lines(after) == ["narrow = set(x)", "y = neg(narrow)"]
    assert after.pins == pinned.pins


def test_an_emptied_pin_goes() -> None:
    b = GraphBuilder()
    x = b.input("x", F32, [4])
    named(b, "dead", "exp", x)
    b.output(named(b, "y", "neg", x))
    assert remove_dead(replace(b.finish(), pins=(Pin("s", ("dead",)),))).pins == ()


def test_helpers_join_the_segment_of_what_they_help() -> None:
    b = GraphBuilder()
    x, w = b.input("x", F32, [4, 1]), b.input("w", F32, [1])
    b.output(named(b, "y", "matmul", x, w))
    after = run_pipeline(replace(b.finish(), pins=(Pin("s", ("y",)),)))
    assert lines(after) == ["y_squeeze = squeeze(x)", "y = mul(y_squeeze, w)"]
    assert after.pins[0].values == ("y", "y_squeeze")


def test_numbered_scalar_of_i64_stays_exact() -> None:
    b = GraphBuilder()
    x = b.input("x", I64, [4])
    big = named(b, "big", "bitwise_or", 2**62, 1)
    b.output(named(b, "y", "bitwise_and", x, big))
    assert lines(fold_constants(b.finish())) == [f"y = bitwise_and(x, {2**62 + 1})"]


def test_half_literals_are_rounded() -> None:
    b = GraphBuilder()
    x = b.input("x", F32, [4])
    b.output(named(b, "y", "mul", x, named(b, "tenth", "cast", 0.1, dtype=F16)))
    assert lines(fold_constants(b.finish())) == ["y = mul(x, 0.0999755859375)"]
