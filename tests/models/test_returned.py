"""What a model returns as it is given, or twice, is a view: no kernel writes it again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from exported import Export

from fusec import lowering
from fusec.models.read import Imported, imported
from fusec.options import CompileOptions
from fusec.reference.evaluate import evaluate
from fusec.segment.segmented import SegmentedFusion

OPTIONS = CompileOptions()
F = "f32"
SHAPE = (64, 128)
BYTES = 4 * 64 * 128


def read(export: Export, tmp_path: Path) -> Imported:
    """Return the only program of a saved archive."""
    (found,) = imported(str(export.save(tmp_path / "a.pt2")))
    return found


def segmented(found: Imported) -> SegmentedFusion:
    """Return the segments of an imported program."""
    return lowering.segment(lowering.optimise(found.fusion, OPTIONS), OPTIONS)


def test_what_is_returned_twice_is_written_once(tmp_path: Path) -> None:
    export = Export()
    x = export.input("x", F, SHAPE)
    y = export.node("aten.exp.default", [(F, SHAPE)], self=x)
    export.output(y, x, y)
    found = read(export, tmp_path)
    parts = segmented(found)
    assert sorted(s.scheduler for s in parts.segments) == ["no_op", "pointwise"]
    assert parts.bytes == 2 * BYTES, "x is read, and y written"
    value = np.linspace(-2, 2, 64 * 128, dtype=np.float32).reshape(SHAPE)
    made = evaluate(found.fusion, {"x": value}, {})
    first, given, again = (np.asarray(made[str(n)]) for n in found.model.returned)
    assert np.allclose(first, np.exp(value), rtol=1e-6)
    assert np.array_equal(given, value)
    assert np.array_equal(again, first)


def test_what_is_written_into_an_input_is_no_view_of_it(tmp_path: Path) -> None:
    export = Export()
    count = export.weight("count", np.ones(SHAPE, np.float32), buffer=True)
    x = export.input("x", F, SHAPE)
    more = export.node("aten.add.Tensor", [(F, SHAPE)], self=count, other=x)
    export.updates("count", more)
    export.output(more, more)
    found = read(export, tmp_path)
    values = {"x": np.full(SHAPE, 3, np.float32), "count": np.ones(SHAPE, np.float32)}
    made = evaluate(found.fusion, values, {})
    names = [str(n) for n in found.model.returned]
    assert len({*names, *found.model.aliases}) == 3
    assert all(np.array_equal(made[n], np.full(SHAPE, 4)) for n in (*names, *found.model.aliases))
    views = [s for s in segmented(found).segments if s.scheduler == "no_op"]
    stored = {o.value.name for s in views for o in s.fusion.outputs}
    assert stored.isdisjoint(found.model.aliases)
