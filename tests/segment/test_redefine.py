"""Redefinition: other definitions of segments, kept where segmenting again is cheaper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from gpu_check import check_on_gpu
from nightly import mostly_nightly

from fusec import lowering
from fusec.ir.dtype import F32
from fusec.ir.graph import Const, Fusion, Node, Operand
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.passes.rewrite import Rewriter, rewrite
from fusec.reference.evaluate import evaluate
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.schedule.registry import schedulers
from fusec.schedule.rows.inner_persistent.family import InnerPersistent
from fusec.segment.protocol import Estimate, Proposal, Redefinition, Refusal, is_redefining
from fusec.segment.redefine import redefine
from fusec.segment.resume import Resume
from fusec.segment.search import segment
from fusec.segment.segmented import SegmentedFusion
from fusec.target import Target, find

TARGET = find("sm_90a")

NORM = """
fusion: product_norm
dims: {{M: {m}, N: {n}, K: {k}}}
inputs:
  a: bf16[M, K]
  b: bf16[K, N]
  bias: f32[N]
ops:
  - p = {product}
  - c = add(cast(p, f32), bias)
  - s = mean(mul(c, c), dims=[1], keepdim=true)
  - y = cast(mul(c, rsqrt(add(s, 1e-5))), bf16)
outputs: [y]
"""

LAST = """
fusion: last
dims: {{B: 3, T: {t}, H: {h}, N: {n}}}
inputs:
  x: bf16[B, T, H]
  w: bf16[{batch}, H, N]
ops:
  - p = matmul(x, w)
  - y = slice(p, [0, {t} - 1, 8], [3, {t}, {n}], [1, 1, 2])
outputs: [y]
"""


def norm(m: int = 256, n: int = 4096, k: int = 65536, linear: bool = False) -> Fusion:
    text = NORM.format(m=m, n=n, k=k, product="linear(a, b)" if linear else "matmul(a, b)")
    return read_text(text.replace("b: bf16[K, N]", "b: bf16[N, K]") if linear else text)


def last(t: int = 2048, h: int = 1024, n: int = 4096, batch: str = "B") -> Fusion:
    return read_text(LAST.format(t=t, h=h, n=n, batch=batch))


FEW = """
fusion: few
inputs:
  x: {{type: '{dtype}[{parts}, 9, 40, 1848]', strides: [{pitch}, {rows}, 1, 40]}}
ops:
  - y = sum(x, dims=[0])
outputs: [y]
"""


def few(parts: int = 3, dtype: str = "f32", scale: int = 1) -> Fusion:
    """Return sums of a few elements that are stored along another axis than they are read."""
    rows = 40 * 1848
    text = FEW.format(parts=parts, dtype=dtype, rows=rows, pitch=9 * scale * rows)
    return read_text(text.replace(", 9, 40", f", {9 * scale}, 40"))


def pinned_few() -> Fusion:
    text = FEW.format(parts=3, dtype="f32", rows=40 * 1848, pitch=9 * 50 * 40 * 1848)
    return read_text(text.replace(", 9, 40", ", 450, 40") + "segments:\n  all: [y]\n")


PLAIN = CompileOptions(without=("hoist_selections",))
"""Without the pass that takes few rows before a GEMM by itself."""


def segmented(fusion: Fusion, when: str) -> SegmentedFusion:
    options = replace(PLAIN, targets=("sm_90a",), redefine=when)
    return lowering.segment(lowering.optimise(fusion, options), options)


def rules(fusion: Fusion) -> list[Redefinition]:
    found = segment(fusion, schedulers(), TARGET)
    able = {s.name: s for s in schedulers() if is_redefining(s)}
    return [
        r
        for s in found.segments
        if s.scheduler in able
        for r in able[s.scheduler].redefinitions(s.fusion, fusion, TARGET)
    ]


@pytest.mark.parametrize("when", ["after", "before"])
@pytest.mark.parametrize("linear", mostly_nightly([False, True], 2))
def test_the_sum_of_a_split_product_ends_inside_the_norm(when: str, linear: bool) -> None:
    found = segmented(norm(n=512, k=32768, linear=linear), when)
    assert [s.scheduler for s in found.segments] == ["matmul", "inner_persistent"]
    stored = found.segments[0].fusion.outputs[0].value
    assert stored.rank == 3
    assert stored.dtype.name == "f32"
    assert any(d.action == "redefine" and "split_k" in d.because for d in found.decisions)
    plain = segmented(norm(n=512, k=32768, linear=linear), "never")
    assert found.seconds(TARGET) < 0.95 * plain.seconds(TARGET)


@pytest.mark.parametrize("when", ["after", "before"])
def test_a_slice_of_a_product_is_a_product_of_slices(when: str) -> None:
    found = segmented(last(), when)
    (only,) = found.segments
    (product,) = (n for n in only.nodes if n.op.family == "contraction")
    assert [e.evaluate(only.fusion.hints) for e in product.output.shape] == [3, 1, 2044]
    assert "redefine" in [d.action for d in found.decisions]


def test_sums_of_few_elements_turn_as_additions() -> None:
    found = segmented(few(scale=50), "after")
    assert [s.scheduler for s in found.segments] == ["transpose"]
    assert any(d.action == "redefine" and "additions" in d.because for d in found.decisions)
    plain = segmented(few(scale=50), "never")
    assert found.seconds(TARGET) < 0.8 * plain.seconds(TARGET)


@pytest.mark.parametrize(("parts", "dtype"), [(5, "f32"), (3, "bf16"), (1, "f32")])
def test_sums_that_additions_do_not_make_are_left(parts: int, dtype: str) -> None:
    """Those of many; and halves, which each addition would round."""
    assert not [r for r in rules(few(parts, dtype)) if r.name == "additions"]


def test_what_does_not_pay_is_undone_with_both_times() -> None:
    found = segmented(norm(m=256, n=256), "after")
    told = [d for d in found.decisions if d.because.startswith("split_k")]
    undone = [d.because for d in told if d.action == "undo"]
    assert undone
    assert all("us rather than" in because for because in undone)


def test_never_tries_nothing() -> None:
    actions = {d.action for d in segmented(norm(), "never").decisions}
    assert not actions & {"redefine", "undo"}


def test_a_pinned_segment_stays_one_segment() -> None:
    """Its definitions are tried; those that would split it are undone with the reason."""
    text = NORM.format(m=256, n=4096, k=65536, product="matmul(a, b)") + "segments:\n  one: [p]\n"
    found = segmented(read_text(text), "after")
    assert [n.output.name for n in found.segments[0].nodes] == ["p"]
    undone = [d.because for d in found.decisions if d.action == "undo" and d.subject == ("p",)]
    assert any("`one`" in because for because in undone)


def test_a_pinned_segment_has_another_definition_where_it_stays_one() -> None:
    plain = segmented(pinned_few(), "never")
    found = segmented(pinned_few(), "after")
    assert [s.scheduler for s in found.segments] == ["transpose"]
    assert found.seconds(TARGET) < 0.8 * plain.seconds(TARGET)


@pytest.mark.parametrize(
    "fusion",
    [
        norm(m=32, n=48, k=8192),
        norm(m=32, n=48, k=8192, linear=True),
        last(t=5, h=16, n=24),
        last(t=5, h=16, n=24, batch="1"),
        few(),
        few(4, "f64"),
    ],
    ids=lambda f: f.name,
)
def test_every_rule_keeps_the_numbers(fusion: Fusion) -> None:
    fusion = lowering.optimise(fusion, PLAIN)
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes)
    name = fusion.outputs[0].value.name
    wanted = np.asarray(evaluate(fusion, inputs, sizes)[name])
    tried = [r for r in rules(fusion) if r.rule is not None]
    assert tried
    for redefinition in tried:
        assert redefinition.rule is not None
        changed = rewrite(fusion, redefinition.rule)
        assert changed is not fusion
        found = np.asarray(evaluate(changed, inputs, sizes)[name])
        # The product itself is rounded to bf16 in one definition and the other.
        np.testing.assert_allclose(found, wanted, rtol=2**-7, atol=2**-7)


def test_variances_are_said_to_take_two_passes() -> None:
    fusion = read_text(
        "fusion: f\ndims: {B: 8192, H: 4096}\ninputs: {x: 'f32[B, H]'}\nops:\n"
        "  - v, m = var_mean(x, dims=[1], correction=0, keepdim=true)\n  - y = mul(sub(x, m), v)\n"
        "outputs: [y]\n"
    )
    found = segmented(fusion, "after")
    assert [d.because[:8] for d in found.decisions if d.action == "redefine"] == ["two_pass"]
    assert "v_two" not in {n.output.name for n in found.fusion.nodes}


class _Loop:
    """Offers another name for the same thing, forever."""

    name = "pointwise"

    def __init__(self) -> None:
        self.inner = next(s for s in schedulers() if s.name == "pointwise")
        self.offers = 0

    def propose(self, segment: Fusion, target: object) -> object:
        return self.inner.propose(segment, target)  # type: ignore[arg-type]

    def redefinitions(self, segment: Fusion, fusion: Fusion, target: object) -> list[Redefinition]:
        self.offers += 1

        def rule(node: object, work: Rewriter) -> None:
            return None

        return [Redefinition(f"r{self.offers}", "y", "again", rule)]


def test_offers_without_end_come_to_one() -> None:
    fusion = read_text(
        "fusion: f\ndims: {N: 64}\ninputs: {x: 'f32[N]'}\nops: [y = exp(x)]\noutputs: [y]\n"
    )
    loop = _Loop()
    found = redefine(
        fusion,
        lambda f, resume: segment(f, [loop], TARGET, resume=resume),  # type: ignore[list-item]
        [loop],  # type: ignore[list-item]
        TARGET,
        "after",
    )
    assert len(found.segments) == 1
    assert loop.offers < 100


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("fusion", "scheduler"),
    [
        pytest.param(norm(), "matmul", id="matmul"),
        pytest.param(norm(linear=True), "matmul", id="linear"),
        pytest.param(norm(m=130, n=520, k=65536), "matmul", id="ragged"),
        pytest.param(last(), "matmul", id="last"),
        pytest.param(last(batch="1"), "matmul", id="last_shared"),
        pytest.param(few(scale=50), "transpose", id="few"),
    ],
)
def test_redefined_fusions_on_a_gpu(fusion: Fusion, scheduler: str) -> None:
    checked = check_on_gpu(fusion)
    assert scheduler in checked.schedulers


@pytest.mark.gpu
def test_halves_cast_before_a_product_run_on_tensor_cores() -> None:
    fusion = read_text(
        "fusion: wide\ndims: {M: 200, N: 264, K: 1032}\n"
        "inputs: {a: 'bf16[M, K]', b: 'bf16[K, N]'}\n"
        "ops:\n  - c = matmul(cast(a, f32), cast(b, f32))\noutputs: [c]\n"
    )
    checked = check_on_gpu(fusion)
    assert checked.schedulers == ["matmul"]


VARIANCE = """
fusion: layer
dims: {{B: {b}, D: {d}}}
inputs:
  x: f32[B, D]
ops:
  - v, m = var_mean(x, dims=[{dim}], correction=0, keepdim=true)
  - y = (x - m) * rsqrt(v + 1e-5)
outputs: [y]
"""


def variance(dim: int = 1, b: int = 4096, d: int = 1024) -> Fusion:
    return read_text(VARIANCE.format(dim=dim, b=b, d=d))


def source(found: SegmentedFusion) -> str:
    options = replace(PLAIN, targets=("sm_90a",))
    plans = lowering.schedule(found, options)
    return "".join(s.text for group in lowering.render(plans, options) for s in group)


@pytest.mark.parametrize("of", [(1, 4096, 1024), (0, 128, 65536)], ids=["rows", "columns"])
def test_both_definitions_of_a_variance_are_logged_and_each_can_be_had(
    of: tuple[int, int, int],
) -> None:
    found = segmented(variance(*of), "after")
    (logged,) = (d.because for d in found.decisions if "two_pass" in d.because)
    assert "by Welford's algorithm" in logged
    assert logged.count(" us") == 2
    assert "Welford" not in source(found)
    never = segmented(variance(*of), "never")
    assert "Welford" in source(never)
    options = replace(PLAIN, targets=("sm_90a",), without=("two_pass", "hoist_selections"))
    fusion = lowering.optimise(variance(*of), options)
    assert source(lowering.segment(fusion, options)) == source(never)


def test_welford_is_kept_where_it_is_predicted_to_be_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where plans in two passes take three microseconds more."""

    def propose(self: InnerPersistent, segment: Fusion, target: Target) -> Proposal:
        found = proposed(self, segment, target)
        if isinstance(found, Refusal) or "two_pass" in segment.as_defined:
            return found
        return replace(found, waits=found.waits + 3e-6)

    proposed = InnerPersistent.propose
    monkeypatch.setattr(InnerPersistent, "propose", propose)
    found = segmented(variance(), "after")
    assert [d.action for d in found.decisions if "two_pass" in d.because] == ["undo"]
    assert "Welford" in source(found)


class ThirdParty:
    """A scheduler that is not fusec's: it computes `y = x + x` alone, cheapest as `x - (-x)`.

    bytes: what it says to move where `y` is made by each operation.
    """

    name = "doubling"

    def __init__(self, **bytes: int) -> None:
        self.bytes = bytes

    def propose(self, segment: Fusion, target: Target) -> Proposal:
        (op,) = (n.op.name for n in segment.nodes if n.output.name == "y")
        if op not in self.bytes:
            return Refusal("operation", f"`{op}` has no kernel")
        return Estimate(bytes=self.bytes[op], ctas=10_000, efficiency=0.9)

    def redefinitions(
        self, segment: Fusion, fusion: Fusion, target: Target
    ) -> tuple[Redefinition, ...]:
        (op,) = (n.op.name for n in segment.nodes if n.output.name == "y")
        if op not in _OTHER:
            return ()
        name, rule = _OTHER[op]
        return (Redefinition(name, "y", "another definition of twice x", rule),)


def _as_product(node: Node, work: Rewriter) -> tuple[Operand, ...] | None:
    if node.op.name != "add":
        return None
    return work.become(node, "mul", [node.operands[0], Const(2.0, F32)])


def _as_difference(node: Node, work: Rewriter) -> tuple[Operand, ...] | None:
    if node.op.name != "mul":
        return None
    return work.become(node, "sub", [node.operands[0], work.add(node, "neg", [node.operands[0]])])


_OTHER = {"add": ("product", _as_product), "mul": ("difference", _as_difference)}


def twice(scheduler: ThirdParty, without: tuple[str, ...] = ()) -> SegmentedFusion:
    fusion = read_text(
        "fusion: f\ndims: {N: 67108864}\ninputs: {x: 'f32[N]'}\nops:\n  - y = add(x, x)\n"
        "outputs: [y]\n"
    )
    able = (*schedulers(), scheduler)
    return redefine(
        fusion,
        lambda f, resume: segment(f, able, TARGET, resume=resume),
        able,
        TARGET,
        "after",
        without,
    )


def operations(found: SegmentedFusion) -> list[str]:
    return [n.op.name for s in found.segments for n in s.nodes]


def test_a_scheduler_of_a_third_party_proposes_a_definition_and_wins() -> None:
    found = twice(ThirdParty(add=400_000_000, mul=200_000_000))
    assert [s.scheduler for s in found.segments] == ["doubling"]
    assert operations(found) == ["mul"]
    assert any(d.action == "redefine" and "product" in d.because for d in found.decisions)
    left = twice(ThirdParty(add=400_000_000, mul=200_000_000), without=("product",))
    assert operations(left) == ["add"]


def test_definitions_are_tried_until_none_is_cheaper() -> None:
    found = twice(ThirdParty(add=400_000_000, mul=200_000_000, sub=100_000_000))
    assert operations(found) == ["neg", "sub"]


@pytest.mark.parametrize(
    ("product", "difference", "kept"),
    [
        (400_000_000, 200_000_000, True),
        (405_000_000, 200_000_000, True),
        (400_000_000, 395_000_000, False),
    ],
)
def test_a_definition_that_is_no_gain_may_enable_one_that_is(
    product: int, difference: int, kept: bool
) -> None:
    found = twice(ThirdParty(add=400_000_000, mul=product, sub=difference))
    assert operations(found) == (["neg", "sub"] if kept else ["add"])
    reasons = [d.because for d in found.decisions if d.action == "redefine"]
    assert [r.partition(":")[0] for r in reasons] == (["product and difference"] if kept else [])


def test_an_expensive_definition_is_not_tried_in_a_pair() -> None:
    found = twice(ThirdParty(add=200_000_000, mul=400_000_000, sub=50_000_000))
    assert operations(found) == ["add"]


class OneSum:
    """A scheduler of one operation, faster as a product than as a sum."""

    name = "one"

    def propose(self, segment: Fusion, target: Target) -> Proposal:
        if len(segment.nodes) > 1:
            return Refusal("operation", "more than one operation")
        (op,) = (n.op.name for n in segment.nodes)
        return Estimate(bytes={"add": 400_000_000}.get(op, 200_000_000), ctas=10_000)

    def redefinitions(
        self, segment: Fusion, fusion: Fusion, target: Target
    ) -> tuple[Redefinition, ...]:
        (node,) = segment.nodes
        name = node.output.name

        def rule(other: Node, work: Rewriter) -> Sequence[Operand] | None:
            return _as_product(other, work) if other.output.name == name else None

        return (Redefinition("product", name, "twice x", rule),) if node.op.name == "add" else ()


def searches_of_sums(count: int) -> tuple[int, SegmentedFusion]:
    """Return how many searches a chain of equal layers takes, and its segments."""
    lines = "".join(
        f"  - s{k} = add({f'e{k - 1}' if k else 'x'}, {f'e{k - 1}' if k else 'x'})\n"
        f"  - t{k} = tanh(s{k})\n  - e{k} = exp(t{k})\n"
        for k in range(count)
    )
    fusion = read_text(
        f"fusion: f\ninputs: {{x: 'f32[67108864]'}}\nops:\n{lines}outputs: [e{count - 1}]\n"
    )
    searches: list[Fusion] = []

    def search(part: Fusion, resume: Resume | None) -> SegmentedFusion:
        searches.append(part)
        return segment(part, [OneSum()], TARGET, copies=False, resume=resume)

    found = redefine(fusion, search, [OneSum()], TARGET, "after")
    return len(searches), found


def test_equal_layers_are_redefined_at_once() -> None:
    (few, _), (many, found) = searches_of_sums(6), searches_of_sums(12)
    assert few == many
    assert "add" not in operations(found)
    together = [d.subject for d in found.decisions if d.action == "redefine"]
    assert sorted(name for subject in together for name in subject) == sorted(
        f"s{k}" for k in range(12)
    )
