"""Random well-formed fusions from the op table, and variants of them that must mean the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace

from fusec.diagnostics import FusecError
from fusec.ir.annotations import Pin
from fusec.ir.graph import Fusion, Input, Node, Output, Value, needed_nodes
from fusec.ops import find_op
from fusec.passes import PIPELINE
from fusec.segment.cheap import is_injective
from fusec.segment.segmented import extract
from tools.attentions import attention, attention_backward, attention_decode
from tools.entries import draw_inputs
from tools.gemms import gemm, gemm_chain, grouped_gemm
from tools.idioms import channel_norm, draw_idiom, epilogue, norm_gradient, normalised, transposed
from tools.movements import draw_movement
from tools.places import draw_indexing, draw_loss, draw_scan, draw_scatter, draw_sort
from tools.regrouped import regrouped
from tools.repeated import repeated
from tools.schedules import with_schedule
from tools.sketch import Sketch, Unfit
from tools.values import (
    draw_cast,
    draw_composite_reduction,
    draw_fresh,
    draw_pointwise,
    draw_product,
    draw_reduction,
    draw_scalar,
)

Step = Callable[[Sketch], None]

COMMON: dict[Step, int] = {
    draw_pointwise: 34, draw_movement: 18, draw_cast: 8, draw_reduction: 9, draw_scalar: 2,
    draw_idiom: 5, draw_composite_reduction: 3, draw_fresh: 4, draw_indexing: 4, draw_scan: 2,
    draw_product: 1, draw_sort: 1, draw_scatter: 1,
}  # fmt: skip
# What a fusion is about: steps that come first, each once, and steps that come more often.
THEMES: dict[str, tuple[tuple[Step, ...], dict[Step, int], int]] = {
    "plain": ((), {}, 20),
    "movement": ((), {draw_movement: 40}, 10),
    "transposes": ((transposed,), {transposed: 8}, 12),
    "rows": ((normalised,), {draw_composite_reduction: 10}, 14),
    "gradients": ((norm_gradient,), {}, 8),
    "channels": ((channel_norm,), {}, 3),
    "products": ((epilogue,), {draw_cast: 6}, 8),
    "reductions": ((draw_reduction,), {draw_reduction: 20}, 9),
    "places": ((draw_indexing,), {draw_indexing: 20}, 7),
    "losses": ((draw_loss,), {}, 1),
    "scans": ((draw_scan,), {draw_scan: 8}, 4),
    "sorts": ((draw_sort,), {draw_sort: 6}, 3),
    "scatters": ((draw_scatter,), {draw_scatter: 6}, 3),
    "random": ((draw_fresh,), {draw_fresh: 20}, 3),
}
GENERAL = tuple(THEMES)
# GEMMs and attention. They declare their own inputs, and no other steps come between.
PRODUCTS: dict[str, tuple[Step, int]] = {
    "gemm": (gemm, 40),
    "gemm_chain": (gemm_chain, 14),
    "grouped_gemm": (grouped_gemm, 6),
    "attention": (attention, 18),
    "attention_decode": (attention_decode, 12),
    "attention_backward": (attention_backward, 14),
}
OWN_INPUTS = {**PRODUCTS, "reshapes": (regrouped, 8), "repeats": (repeated, 10)}
ALL = (*GENERAL, *OWN_INPUTS)
NAME = "fuzz"
NEEDED = frozenset({"complex_as_pairs"})
"""Passes without which no scheduler takes what they rewrite."""


@dataclass(frozen=True)
class Run:
    """A fusion as it is run: with forced boundaries and pins in it, and some passes left out."""

    fusion: Fusion
    without: tuple[str, ...] = ()


def draw_fusion(seed: int, number: int, themes: Collection[str] = GENERAL) -> Fusion:
    """Return fusion `number` of a seed, about one of some themes."""
    return draw_with(Sketch, seed, number, themes)


def draw_with(
    kind: type[Sketch], seed: int, number: int, themes: Collection[str], cap: int | None = None
) -> Fusion:
    """Return fusion `number` of a seed, drawn by a kind of sketch; cap: elements of a tensor."""
    attempt = 0
    while True:
        sketch = kind(random.Random(f"{seed}:{number}:{attempt}"), NAME)
        sketch.cap = cap or sketch.cap
        try:
            return _sampled(sketch, themes)
        except Unfit:
            attempt += 1


def _sampled(sketch: Sketch, themes: Collection[str]) -> Fusion:
    weights = {n: weight for n, (*_, weight) in {**THEMES, **OWN_INPUTS}.items() if n in themes}
    theme = sketch.weighed(weights)
    if theme not in OWN_INPUTS:
        return _general(sketch, theme)
    OWN_INPUTS[theme][0](sketch)
    results = list(dict.fromkeys(sketch.known()))
    # Attention cannot write into what other blocks still read.
    in_place = 0.15 if theme.startswith("attention") else 0.4
    return _finished(sketch, results, [1, 2, 2] if theme == "repeats" else [0, 0, 0, 1], in_place)


def _general(sketch: Sketch, theme: str) -> Fusion:
    first, often, _ = THEMES[theme]
    weights = {**COMMON, **often}
    draw_inputs(sketch)
    entries = {t.name for t in sketch.tensors}
    steps = [*(sketch.weighed(weights) for _ in range(sketch.count(0, 1))), *first]
    steps += [sketch.weighed(weights) for _ in range(sketch.weighed(LENGTHS))]
    for step in steps:
        for _ in range(3):
            with suppress(Unfit):
                step(sketch)
                break
    results = [t for t in sketch.known() if t.name not in entries]
    return _finished(sketch, results or sketch.known()[:1], [0, 0, 0, 1, 2])


def _finished(
    sketch: Sketch, results: list[Value], more: list[int], in_place: float = 0.4
) -> Fusion:
    """Return the fusion of what was drawn.

    more: how many outputs may be read by others, too; in_place: the share of outputs that are
    written into an input of their type.
    """
    for value in results:
        sketch.builder.output(value)
    try:
        fusion = sketch.builder.finish()
    except FusecError as error:
        if error.exit_code != 2:
            raise
        raise Unfit(error.diagnostic.message) from None
    return _with_outputs(sketch, fusion, more, in_place)


LENGTHS = {0: 6, 1: 18, 2: 20, 3: 18, 4: 12, 5: 8, 7: 5, 10: 3}


def _with_outputs(sketch: Sketch, fusion: Fusion, more: list[int], in_place: float) -> Fusion:
    """Return the fusion with a few of its outputs, some of them written into inputs."""
    results = [o.value for o in fusion.outputs]
    leaves = [v for v in results if v not in fusion.users] or results[-1:]
    chosen = [*leaves[-4:], *(sketch.pick(results) for _ in range(sketch.pick(more)))]
    free = [i for i in fusion.inputs if is_writable(i, fusion)]
    outputs: list[Output] = []
    for value in dict.fromkeys(chosen):
        fit = [i for i in free if i.value.type == value.type]
        target = sketch.pick(fit) if fit and sketch.chance(in_place) else None
        if target is not None:
            free.remove(target)
            outputs.append(Output(value, target.value.name))
        elif value.rank > 1 and sketch.chance(0.12):
            order = sketch.rng.sample(range(value.rank), value.rank)
            outputs.append(Output(value, stride_order=tuple(order)))
        else:
            outputs.append(Output(value))
    found = replace(fusion, outputs=tuple(outputs))
    if sketch.chance(0.1):
        # What no output needs is tried now and then.
        return found
    needed = needed_nodes(found.nodes, [o.value for o in outputs])
    # Without the others first: what only they read would become a result.
    return extract(found.with_nodes(needed), needed, NAME)


def is_writable(entry: Input, fusion: Fusion) -> bool:
    """Return whether no two elements of an input share memory, and it lies on the device."""
    if entry.value.is_scalar or entry.on_cpu or entry.generator:
        return False
    strides = [s.evaluate(fusion.hints) for s in entry.strides]
    shape = [e.evaluate(fusion.hints) for e in entry.value.shape]
    reach = 1
    for stride, extent in sorted(zip(strides, shape, strict=True)):
        if stride < reach and extent != 1:
            return False
        reach = max(reach, stride * extent)
    return all(s != 0 for s in entry.strides)


def draw_variant(fusion: Fusion, seed: int, number: int) -> Run:
    """Return a variant: with a schedule, or with boundaries or a pin and without some passes."""
    rng = random.Random(f"{seed}:{number}:schedule")
    has_products = any(n.op.family == "contraction" for n in fusion.nodes)
    if rng.random() < (0.65 if has_products else 0.15):
        scheduled = with_schedule(fusion, rng)
        if scheduled.schedules:
            return Run(scheduled)
    rng = random.Random(f"{seed}:{number}:variant")
    without = tuple(p.name for p in PIPELINE if rng.random() < 0.25 and p.name not in NEEDED)
    kind = rng.choices(["boundaries", "pin", "passes"], [6, 3, 1])[0]
    if kind == "boundaries":
        return Run(with_boundaries(fusion, rng), without)
    return Run(with_pin(fusion, rng) if kind == "pin" else fusion, without)


def with_boundaries(fusion: Fusion, rng: random.Random) -> Fusion:
    """Return the fusion with `segment_set` after one to three values that later nodes read."""
    tensors = [v for n in fusion.nodes for v in n.outputs if not v.is_scalar and v in fusion.users]
    chosen = set(rng.sample(tensors, min(len(tensors), rng.choice([1, 1, 2, 3]))))
    renamed: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in fusion.nodes:
        operands = tuple(renamed.get(o, o) if isinstance(o, Value) else o for o in node.operands)
        nodes.append(replace(node, operands=operands))
        for value in node.outputs:
            if value in chosen:
                copy = Value(f"{value.name}_apart", value.type)
                renamed[value] = copy
                nodes.append(Node(find_op("segment_set"), (value,), {}, (copy,)))
    return fusion.with_nodes(nodes)


def with_pin(fusion: Fusion, rng: random.Random) -> Fusion:
    """Return the fusion with one segment pinned: a node, or a run of neighbours in order."""
    nodes = [n for n in fusion.nodes if not n.op.ends_segment]
    if not nodes:
        return fusion
    first = rng.randrange(len(nodes))
    last = first
    while last + 1 < len(nodes) and is_injective(nodes[last + 1]) and rng.random() < 0.6:
        last += 1
    names = tuple(v.name for n in nodes[first : last + 1] for v in n.outputs if not v.is_scalar)
    return replace(fusion, pins=(Pin("pinned", names),)) if names else fusion


def draw_runs(seed: int, number: int, themes: Collection[str] = GENERAL) -> tuple[Run, Run]:
    """Return a fusion as it is, and a variant of it."""
    fusion = draw_fusion(seed, number, themes)
    return Run(fusion), draw_variant(fusion, seed, number)
