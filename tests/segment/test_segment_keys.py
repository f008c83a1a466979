"""What distinguishes segments in a search: literals that can change a decision, and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_schedulers import H200, usual

from fusec import lowering
from fusec.ir.dtype import BF16, F32, I64
from fusec.ir.graph import Const, Fusion, Node, Value
from fusec.ops import TABLE
from fusec.ops.builder.build import GraphBuilder
from fusec.options import CompileOptions
from fusec.schedule.registry import schedulers
from fusec.segment.offers import Offers, Surroundings, proposal_of
from fusec.segment.search import segment

ROWS, WIDTH = 512, 256


def dropouts(layers: int) -> Fusion:
    """Return layers that differ in the offsets of their random numbers alone."""
    fd = GraphBuilder("dropouts")
    x = fd.input("x", BF16, (ROWS, WIDTH))
    for k in range(layers):
        made = fd.apply("matmul", x, fd.input(f"w{k}", BF16, (WIDTH, WIDTH)))
        kept = fd.apply("gt", fd.apply("rand_like", made), 0.1)
        x = fd.apply("tanh", fd.apply("where", kept, made, 0.0))
    fd.output(x)
    return lowering.optimise(fd.finish(), CompileOptions())


def with_literal(fusion: Fusion, name: str, value: float) -> Fusion:
    """Return a fusion with another literal operand in the nodes of one operation."""

    def changed(node: Node) -> Node:
        if node.op.name != name:
            return node
        operands = tuple(Const(value, o.dtype) if isinstance(o, Const) else o
                         for o in node.operands)  # fmt: skip
        return replace(node, operands=operands)

    return fusion.with_nodes(map(changed, fusion.nodes))


def test_every_random_operation_names_its_generator() -> None:
    for op in (o for o in TABLE.values() if o.family != "composite"):
        operands = {p.name for p in op.operands}
        assert set(op.generator) == operands & {"rng_seed", "rng_offset"}, op.name
        assert bool(op.generator) == (op.family == "random"), op.name


def test_layers_with_other_offsets_are_asked_for_once() -> None:
    own = dropouts(4)
    asked: list[int] = []
    for fusion in (own, with_literal(own, "add", 1)):
        offers = Offers(usual(), H200)
        segment(fusion, offers.schedulers, H200, offers=offers)
        asked.append(offers.asked)
    assert asked[0] == asked[1]


def test_proposals_do_not_depend_on_offsets() -> None:
    first = dropouts(2)
    other = with_literal(first, "add", 12345)
    assert first.structure(offsets=False) == other.structure(offsets=False)
    assert first.structure() != other.structure()
    for part, its in zip(
        segment(first, usual(), H200).segments, segment(other, usual(), H200).segments, strict=True
    ):
        for scheduler in schedulers():
            own, its_own = (proposal_of(scheduler, p.fusion, H200) for p in (part, its))
            assert own == its_own


@pytest.mark.parametrize("is_stored", [True, False])
def test_an_offset_that_something_else_reads_stays_in_the_key(is_stored: bool) -> None:
    def made(step: int) -> Fusion:
        fd = GraphBuilder("read")
        seed, offset = (fd.input(n, I64, ()) for n in ("seed", "offset"))
        later = fd.apply("add", offset, step)
        fd.output(fd.apply("uniform", 0.0, 1.0, shape=[64], rng_seed=seed, rng_offset=later))
        fd.output(later if is_stored else fd.apply("mul", later, later))
        return fd.finish()

    one, two = (made(k).structure(offsets=False) for k in (1, 2))
    assert one != two


@pytest.mark.parametrize("op", ["pow", "gt", "pad"])
def test_literals_that_schedulers_may_read_stay_in_the_key(op: str) -> None:
    def made(literal: float) -> Fusion:
        fd = GraphBuilder("literal")
        x = fd.input("x", F32, (ROWS, WIDTH))
        padding = ([0, 8, 0, 0],) if op == "pad" else ()
        fd.output(fd.apply(op, x, *padding, literal))
        return fd.finish()

    assert made(0.0).structure(offsets=False) != made(1.0).structure(offsets=False)
    assert made(0.0).structure(offsets=False) == made(0.0).structure(offsets=False)


def test_bounds_of_random_numbers_stay_in_the_key() -> None:
    def made(high: float) -> Fusion:
        fd = GraphBuilder("bounds")
        fd.output(fd.apply("uniform", 0.0, high, shape=[64]))
        return fd.finish()

    assert made(1.0).structure(offsets=False) != made(2.0).structure(offsets=False)


def test_proposals_do_not_depend_on_what_is_around() -> None:
    """Each scheduler is asked for a structure once; refusals name the segment's own values."""
    offers, found = Offers(schedulers(), H200), list[str]()
    for name in ("x", "z"):
        fd = GraphBuilder("chain")
        made = fd.apply("exp", fd.input(name, F32, (ROWS, WIDTH)))
        fd.output(fd.apply("sum", made, dims=[0]))
        fusion = fd.finish()
        crossing = frozenset(o.value for o in fusion.outputs)
        for pinned, read in ((False, frozenset[Value]()), (False, crossing), (True, crossing)):
            offer = offers.of(fusion, Surroundings(frozenset(), read, pinned))
            found.append(f"{offer.estimate} {offer.reasons()}".replace(f"`{name}`", "`input`"))
    assert offers.asked == len(offers.schedulers)
    assert len({*found}) == 1
