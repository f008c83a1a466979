"""Instruction counts: each loop of a template says how often, each function what it costs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import prod

import pytest
from paths import ROOT

from fusec import driver
from fusec.codegen.counted import counts_of
from fusec.kernel.counting.costs import COSTS, NOT_COUNTED, of_operations
from fusec.kernel.counting.counts import count
from fusec.kernel.counting.level_counts import LevelCounts
from fusec.kernel.counting.levels import Level
from fusec.kernel.device import HEADERS, PURE, device_name, is_function
from fusec.kernel.nodes import (
    AUTO,
    Assign,
    Constexpr,
    Declare,
    Element,
    Integer,
    Let,
    Loop,
    Name,
    Node,
    Pointer,
    Real,
    Type,
    call,
    item,
    vector_of,
)
from fusec.options import CompileOptions

TEMPLATES = ROOT / "fusec" / "templates"
TOKEN = re.compile(r"\bfor \(|(?<!\w)while \(|call level\(|endcall")
PLAIN = re.compile(r"for \(int (\w+) = 0; \1 < (k\w+); \+\+\1\)")
LEVEL = re.compile(r'call level\("(\w+)", cuda\.(k\w+)')
WRAPPED_BY_CALLERS = {"_matmul_persistent.j2": 1}
"""Loops of macros whose callers have the level, since they end in them."""
FLOAT, INT = Type("float"), Type("int")
X, Y, N, V = (Name(name) for name in "xynv")


def loops_outside(text: str) -> int:
    """Return how many loops of a template are in no level of their own.

    A level begins in the line of its loop, or before the branches that begin it.
    """
    outside, stack = 0, list[bool]()
    lines = text.splitlines()
    for line in lines:
        tokens = TOKEN.findall(line)
        opened = "call level(" in tokens
        alone = opened and not any(t.endswith("(") and t != "call level(" for t in tokens)
        stack += [alone] * tokens.count("call level(")
        if any(t in ("for (", "while (") for t in tokens):
            outside += not opened and not (stack and stack[-1])
        for _ in range(tokens.count("endcall")):
            stack[-1:] = []
    return outside


def test_loops_of_templates_are_levels() -> None:
    found = {p.name: loops_outside(p.read_text(encoding="utf-8")) for p in TEMPLATES.glob("*.j2")}
    assert {name: n for name, n in found.items() if n} == WRAPPED_BY_CALLERS
    bare = "for (int i = 0; i < kItems; ++i) {\n}\n"
    assert loops_outside(bare) == 1
    inline = (
        'for (int i = 0; i < kItems; ++i) { {%- call level("i", cuda.kItems) +%}\n}{% endcall +%}\n'
    )
    assert loops_outside(inline) == 0
    assert loops_outside(inline + bare) == 1


def test_plain_loops_have_the_trips_of_their_heads() -> None:
    lines = [line for p in TEMPLATES.glob("*.j2") for line in p.read_text("utf-8").splitlines()]
    both = [(PLAIN.search(line), LEVEL.search(line)) for line in lines]
    found = [(head.groups(), level.groups()) for head, level in both if head and level]
    assert len(found) > 30
    assert [head for head, level in found if head != level] == []


def test_functions_of_devices_have_costs() -> None:
    functions = {n for n in HEADERS if is_function(n)}
    operations = {device_name(name) for name in of_operations()}
    assert len(functions) > 150
    assert functions - COSTS.keys() - NOT_COUNTED - operations == set()
    assert COSTS.keys() - HEADERS.keys() == set()
    assert NOT_COUNTED & COSTS.keys() == set()


def test_pure_functions_neither_store_nor_synchronise() -> None:
    costs = {n: c for n, c in COSTS.items() if n in PURE and not callable(c)}
    assert len(costs) > 3
    effects = ("store_", "atomic", "copy", "barrier")
    assert [n for n, cost in costs.items() if any(c.startswith(effects) for c in cost)] == []


def counted(nodes: Iterable[Node], **sizes: int) -> LevelCounts:
    """Return the counts of statements, of parameters `x` and `y` in f32."""
    return count(nodes, sizes, {"x": FLOAT, "y": FLOAT}).kernel


def test_products_that_are_added_are_one_instruction() -> None:
    values = [Let(FLOAT, name, Real("1.0", "f")) for name in "abc"]
    a, b, c = (Name(name) for name in "abc")
    assert counted([*values, Let(FLOAT, "d", a * b + c)]).counts == {"float": 1}
    assert counted([*values, Let(FLOAT, "d", (a + b) * c)]).counts == {"float": 2}
    assert counted([Let(INT, "d", N * V + N)]).counts == {"integer": 1}


def test_levels_multiply_what_is_in_them() -> None:
    width = Constexpr(Type("int"), "kVec", Integer(4))
    vector = Declare(vector_of(FLOAT), "vec")
    load = Let(AUTO, "loaded", call("fusec::load_readonly", Pointer(X, N), about=["kVec"]))
    lanes = Loop(
        "v", Name("kVec"), (Assign(item("vec", "v"), item("loaded", "v") + Real("1.0", "f")),)
    )
    rows = Level("row", Name("n"), body=(load, vector, lanes))
    kernel = counted([width, rows], n=10)
    (row,) = kernel.inner
    assert (row.trips, row.copies, row.counts["load_global_128"]) == (10, 1, 1)
    (lane,) = row.inner
    assert (lane.trips, lane.copies, lane.counts) == (4, 4, {"float": 1})
    assert kernel.total()["float"] == 40
    assert kernel.text()["float"] == 4
    unknown = counted([width, Level("row", None, body=(load,))])
    assert unknown.inner[0].trips is None
    assert unknown.total()["load_global_128"] == 1


def test_addresses_of_unrolled_loops_are_computed_once() -> None:
    store = Assign(Element(Y, V * Integer(32) + N), Real("1.0", "f"))
    unrolled = counted([Loop("v", Integer(8), (store,))])
    rolled = counted([Loop("v", Integer(8), (store,), unroll=None)])
    assert unrolled.total()["store_global_32"] == rolled.total()["store_global_32"] == 8
    assert unrolled.total()["integer"] < 4
    assert rolled.total()["integer"] >= 16


ACCESS = re.compile(r"(load|store)_global_(\d+)")


def bytes_of_kernels(example: str) -> dict[str, Mapping[str, int]]:
    """Return the bytes that the threads of each kernel of an example load, and store."""
    (program,) = driver.programs(str(ROOT / "examples" / example), CompileOptions())
    found: dict[str, Mapping[str, int]] = {}
    for source in (s for each in program.sources for s in each):
        counts = counts_of(source, program.segmented.fusion.hints)
        assert counts is not None
        threads = prod(source.kernel.block) * prod(
            d.evaluate(program.segmented.fusion.hints) for d in source.kernel.grid
        )
        moved = {"load": 0, "store": 0}
        for name, number in counts.kernel.total().items():
            match = ACCESS.fullmatch(name)
            if match is not None:
                moved[match[1]] += round(number * int(match[2]) / 8 * threads)
        found[source.name] = moved
    return found


@pytest.mark.parametrize(
    ("example", "stored", "loaded"),
    [
        ("layernorm.yaml", 4096 * 8192 * 2, 3 * 4096 * 8192 * 2),
        ("transpose.yaml", None, None),
    ],
)
def test_threads_move_the_tensors(example: str, stored: int | None, loaded: int | None) -> None:
    """What all threads load and store is the bytes of the tensors; x, w and b of each row."""
    (moved,) = bytes_of_kernels(example).values()
    if stored is None:
        assert moved["load"] == moved["store"] > 0
    else:
        assert moved == {"load": loaded, "store": stored}
