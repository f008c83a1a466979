"""Sizes that kernels spell by name: a formula is what the plan computed."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from spaces import CASES, space_of
from spelled import members_of, value_of

from fusec.codegen.dispatch import plan_sources
from fusec.index.access import Facts
from fusec.ir.dim import dim
from fusec.ir.expression import Var, linearize, of_var
from fusec.kernel.lowering.nest import Nest, Scope, named
from fusec.kernel.names import Names
from fusec.kernel.nodes import Name
from fusec.kernel.sizes import Listing, Quantity, Size, size
from fusec.schedule.registry import find_scheduler


def random_size(random: Random, names: dict[str, int], depth: int) -> Quantity:
    if depth == 0:
        name = random.choice([*names, ""])
        return Size(names[name], Name(name)) if name else random.randint(1, 9)
    left, right = (random_size(random, names, depth - 1) for _ in range(2))
    how = random.randrange(4)
    if how == 0:
        return left // max(1, int(right) // 4) if int(left) else left
    return left + right if how == 1 else left * right


def test_formulas_are_the_values() -> None:
    random = Random(221)
    for _ in range(300):
        names = {name: random.randint(1, 99) for name in ("kRows", "kStages", "kBytes")}
        found = size(random_size(random, names, 4))
        assert value_of(str(found.formula), names) == found.value, found.formula


def test_a_plan_lists_values_alone() -> None:
    listing = Listing(spelled=False)
    stage = listing.add("kStageBytes", listing.named("kRows", 64) * 128, "a stage")
    assert (stage, listing.constants) == (8192, (("kStageBytes", 8192, "a stage"),))


LAYOUTS = ("matmul", "matmul_persistent", "attention", "attention_backward", "attention_decode")


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_are_those_of_the_plans(name: str) -> None:
    space, case = space_of(name), CASES[name]
    family: Any = find_scheduler(case.scheduler)
    problem, checked = family.built(space.fusion), 0
    for record in space.covering[:12]:
        plan = family.plan(problem, record, case.gpu)
        for kernel, source in zip(plan.kernels, plan_sources(plan), strict=True):
            spelled = members_of(source.text)
            layout: Any = getattr(kernel, "layout", None)
            if name == "attention_decode":
                planned = {"kKeyBytes": layout.keys, "kStageBytes": layout.stage}
            else:
                planned = {n: v for n, v, _ in layout.constants} if layout else {}
            assert planned.items() <= spelled.items(), source.text
            checked += len(planned)
    assert checked > 0


def test_strides_are_spelled_by_the_extents_of_their_tensor() -> None:
    random, products = Random(39), 0
    for _ in range(200):
        extents = [random.choice([3, 16, 64, 100]) for _ in range(4)]
        variables = [Var(name, dim(e)) for name, e in zip("abcd", extents, strict=True)]
        strides, stride = list[int](), random.choice([1, 1, 2])
        for extent in reversed(extents):
            strides.insert(0, stride)
            stride = stride * extent + random.choice([0, 0, 0, 8])  # rows may be padded
        index = linearize(map(of_var, variables), map(dim, strides))
        sizes = {"kColumns": dim(extents[3]), "M": dim(extents[1])}
        scopes = (Scope("kernel", frozenset(variables)),)
        spelled = str(Nest(scopes, Names(), Facts({}), symbols=named(**sizes)).index(index, 0))
        values = {v.name: random.randint(0, 9) for v in variables}
        values |= {name: extent.value for name, extent in sizes.items()}
        wanted = sum(values[v.name] * s for v, s in zip(variables, strides, strict=True))
        assert value_of(spelled, values) == wanted, spelled
        if extents[3] >= 16 and strides[2:] == [extents[3], 1]:
            assert "c * kColumns" in spelled
            products += extents[2] != extents[3] and f"b * ({extents[2]} * kColumns)" in spelled
    assert products > 10
