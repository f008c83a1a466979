"""What a build covers: the text, and that guards hold inside it and not beyond."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from paths import ROOT

from fusec import driver, lowering
from fusec.hostir.coverage import coverage
from fusec.hostir.lower import lower
from fusec.ir.dim import symbol
from fusec.ir.graph import DimFact
from fusec.options import CompileOptions
from fusec.schedule.plan import Guard

A, B, H = symbol("A"), symbol("B"), symbol("H")
DIMS = (DimFact("B", 64), DimFact("H", 4096))


@pytest.mark.parametrize(
    ("guards", "text"),
    [
        ([], "dynamic: B, H"),
        ([Guard(H, "==", 4096)], "dynamic: B; specialized: H = 4096"),
        ([Guard(B, "==", 64), Guard(H, "==", 4096)], "specialized: B = 64, H = 4096"),
        (
            [Guard(H, "==", 4096), Guard(B * H, "<=", 1 << 30)],
            "dynamic: B; specialized: H = 4096 (B up to 262144)",
        ),
        ([Guard(B * H, "<=", 1 << 30)], "dynamic: B, H (B * H <= 1073741824)"),
        ([Guard(B * -1, "<=", -1), Guard(B, "<=", 99)], "dynamic: B, H (B from 1 up to 99)"),
        ([Guard(B, "<=", 199), Guard(B * 2, "<=", 199)], "dynamic: B, H (B up to 99)"),
        ([Guard(B - H, "==", 0), Guard(H - B, "==", 0)], "dynamic: B, H (B - H == 0)"),
        ([Guard(B, "%", 8)], "dynamic: B, H (B % 8 == 0)"),
        ([Guard(symbol("x.stride0") * B, "<=", 9)], "dynamic: B, H (B * x.stride0 <= 9)"),
    ],
)
def test_guards_as_people_say_them(guards: list[Guard], text: str) -> None:
    dims = (*DIMS, DimFact("x.stride0", 1)) if "stride" in text else DIMS
    assert coverage(guards, dims) == text


def test_declared_multiples_count() -> None:
    dims = (DimFact("B", 64, multiple_of=8), DimFact("H", 4096, multiple_of=8))
    assert (
        coverage([Guard(H, "==", 4096)], dims)
        == "dynamic: B; specialized: H = 4096 (B a multiple of 8)"
    )


def test_fusions_of_fixed_sizes_and_of_many() -> None:
    assert coverage([], ()) == ""
    many = tuple(DimFact(f"D{k}", 8) for k in range(12))
    assert coverage([], many) == "dynamic: D0, D1, D2, D3, D4, D5, D6, D7 and 4 more"


EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_guards_hold_up_to_the_sizes_told(path: Path) -> None:
    options, fusion = CompileOptions(), driver.load(str(path))
    segmented = lowering.segment(lowering.optimise(fusion, options), options)
    guards = lower(segmented, lowering.schedule(segmented, options)).guards
    told = coverage(guards, fusion.dims)
    sizes = dict(fusion.hints)

    def holds(**others: int) -> bool:
        return all(g.holds({**sizes, **others}) for g in guards)

    for name, size in re.findall(r"(\w+) = (\d+)", told):
        assert holds(**{name: int(size)})
        assert not holds(**{name: int(size) + 1})
    for name, size in re.findall(r"(\w+) up to (\d+)", told):
        if name in sizes:
            assert holds(**{name: int(size)})
            assert not holds(**{name: int(size) + 1})
    free = re.findall(r"any (\w+(?:, \w+)*)", told)
    for name in free[0].split(", ") if free else ():
        assert holds(**{name: sizes[name] - 1})
