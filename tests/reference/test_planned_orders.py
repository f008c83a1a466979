"""The order that a plan gives for a sum is the one in which its kernels add."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import run_plan
from families import plan_of, text_of
from gpu_check import DRY, check_on_gpu
from graphs import pinned
from host_json import from_json, to_json
from nightly import mostly_nightly
from paths import ROOT
from test_redefine import last, norm, segmented

from fusec import driver
from fusec.diagnostics import FusecError
from fusec.files import with_sizes
from fusec.hostir.program import HostProgram
from fusec.ir.annotations import Setting
from fusec.ir.dim import ceildiv, dim, symbol
from fusec.ir.dtype import BF16, F16, F32, DType
from fusec.ir.evaluate import round_to
from fusec.ir.graph import Fusion, Node
from fusec.ops.builder.build import GraphBuilder
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.reference.errors.order import Order, Stage, as_terms, performed, running
from fusec.run.arrays import StridedArray, dense_strides
from fusec.schedule.orders import PlannedOrder, PlannedStage, is_sum
from fusec.schedule.original_orders import orders_of
from fusec.schedule.plan import KernelPlan
from fusec.schedule.scan import family as scan
from fusec.schedule.segments import plan_segment
from fusec.target import find

FILES = [
    *sorted((ROOT / "examples").glob("*.yaml")),
    *sorted((ROOT / "tests" / "regressions").glob("*.yaml")),
]
FILLS = (0.1, 1 / 3, None)
"""Each element of the inputs; None: random numbers, which show also which terms meet."""

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


def filled(shape: Shape, fill: float | None, seed: int = 0) -> Array:
    if fill is not None:
        return np.full(shape, fill, np.float32)
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def dense(x: Array, **others: Array) -> dict[str, StridedArray]:
    arrays = {"x": x, **others}
    return {
        k: StridedArray(a.reshape(-1), a.shape, dense_strides(a.shape)) for k, a in arrays.items()
    }


def run(plan: KernelPlan, arrays: dict[str, Array], folder: Path) -> dict[str, Array]:
    return run_plan(plan, dense(**arrays), folder)


def builder_of(shape: Shape) -> tuple[GraphBuilder, Any]:
    b = GraphBuilder("sums")
    return b, b.input("x", F32, [b.declare_dim(f"D{k}", e) for k, e in enumerate(shape)])


def check_sums(
    scheduler: str,
    b: GraphBuilder,
    shape: Shape,
    sums: Sequence[tuple[int, ...]],
    folder: Path,
    **settings: Setting,
) -> None:
    """Compare outputs that are sums of x over given axes with the sums in their plan's order."""
    fusion = b.finish()
    plan = plan_of(scheduler, fusion, **settings)
    for fill in FILLS:
        x = filled(shape, fill)
        outputs = run(plan, {"x": x}, folder)
        for output, axes in zip(fusion.outputs, sums, strict=False):
            name = output.value.name
            expected = performed(as_terms(x, axes), plan.orders[name].at(fusion.hints))
            found = outputs[name].reshape(expected.shape)
            assert np.array_equal(found, expected), f"{name}, {fill}: {plan.orders[name]}"


@pytest.mark.parametrize(
    ("shape", "axes"),
    mostly_nightly([
        ((3, 64), (1,)),  # a part of a warp
        ((3, 1000), (1,)),  # warps; some threads have a vector less
        ((2, 701), (1,)),  # no vectors
        ((1, 80004), (1,)),  # many blocks, whose parts do not fill the last block's warps
        ((5, 300, 11), (0, 2)),
        ((100, 7), (0,)),
        ((1000, 64), (0,)),  # blocks share columns
        ((5, 600_001), (0,)),  # threads have all rows of a column
        ((21, 140_000), (0,)),  # two of them share columns
        ((3001, 5), (0,)),
    ], 10, 4),
)  # fmt: skip
def test_a_reduction(shape: Shape, axes: tuple[int, ...], tmp_path: Path) -> None:
    b, x = builder_of(shape)
    b.output(b.apply("sum", x, dims=axes))
    check_sums("reduction", b, shape, [axes], tmp_path)


@pytest.mark.parametrize(
    ("columns", "width", "ahead"),
    [(1900, 4, 4), (1004, 4, 2), (700, 4, 1), (1902, 2, 8)],
    ids=["four", "two", "one", "eight"],
)
def test_vectors_that_are_loaded_ahead(
    columns: int, width: int, ahead: int, tmp_path: Path
) -> None:
    """Some threads have fewer vectors left than they load at a time."""
    b, x = builder_of((2, columns))
    b.output(b.apply("sum", x, dims=[1]))
    settings: dict[str, Setting] = {"splits": 3, "threads_x": 32, "vector_width": width}
    assert f"kAhead = {ahead};" in text_of(plan_of("reduction", b.finish(), **settings))
    check_sums("reduction", b, (2, columns), [(1,)], tmp_path, **settings)


@pytest.mark.parametrize(
    ("shape", "axes", "settings"),
    [
        (
            (1, 20001),
            (1,),
            {"splits": 7, "vector_width": 1, "shifted": False},
        ),  # groups of four blocks, and three
        ((3, 2000), (1,), {"splits": 17, "threads_x": 4}),
        ((1000, 64), (0,), {"splits": 23, "threads_y": 2}),
        ((3001, 5), (0,), {"splits": 90}),  # as many groups as a block has rows of threads, or more
    ],
)
def test_a_tree_of_blocks(
    shape: Shape, axes: tuple[int, ...], settings: dict[str, Setting], tmp_path: Path
) -> None:
    b, x = builder_of(shape)
    b.output(b.apply("sum", x, dims=axes))
    check_sums("reduction", b, shape, [axes], tmp_path, grid_reduce="tree", **settings)


@pytest.mark.parametrize(
    ("shape", "axis", "settings"),
    [
        ((600, 64), 0, {"splits": 2}),
        ((600, 64), 0, {"splits": 9}),
        ((600, 64), 0, {"splits": 9, "threads_y": 1}),  # which alone writes the tile that is copied
        ((600, 6), 0, {"splits": 5, "threads_x": 2, "vector_width": 1}),  # 8 of 16 bytes
        ((3, 5000), 1, {"splits": 7}),
        ((7, 5000), 1, {"splits": 4, "threads_x": 8, "threads_y": 4}),  # four rows of a block
        ((5, 701), 1, {"splits": 3, "threads_x": 4, "threads_y": 8, "shifted": False}),
    ],
)
@pytest.mark.parametrize("method", ["serial_tma", "serial"])
def test_blocks_that_add_in_turns(
    shape: Shape, axis: int, settings: dict[str, Setting], method: str, tmp_path: Path
) -> None:
    b, x = builder_of(shape)
    b.output(b.apply("sum", x, dims=[axis]))
    check_sums("reduction", b, shape, [(axis,)], tmp_path, grid_reduce=method, **settings)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [F16, BF16])
def test_turns_round_to_sixteen_bits(axis: int, dtype: DType, tmp_path: Path) -> None:
    """All terms and sums but the last, which the result rounds."""
    shape = (600, 64) if axis == 0 else (12, 5000)
    b = GraphBuilder("sums")
    b.output(b.apply("sum", b.input("x", dtype, list(shape)), dims=[axis]))
    settings: dict[str, Setting] = {
        "splits": 9,
        "grid_reduce": "serial_tma",
        "workspace_dtype": "half",
    }
    settings |= {"threads_x": 32} if axis else {}
    plan = plan_of("reduction", b.finish(), **settings)
    (order,) = plan.orders.values()
    assert order.rounded_to == dtype.name
    x = round_to(filled(shape, None), dtype)
    found = run(plan, {"x": x.astype(dtype.numpy)}, tmp_path)["sum_1"].astype(np.float32)
    exact = performed(as_terms(x.astype(np.float32), (axis,)), order.at({})).reshape(-1)
    assert np.array_equal(found, round_to(exact, dtype))
    whole = performed(as_terms(x.astype(np.float32), (axis,)), replace(order, stages=tuple(
        replace(s, rounded="") for s in order.stages
    )).at({})).reshape(-1)  # fmt: skip
    assert not np.array_equal(found, round_to(whole, dtype))


@pytest.mark.parametrize(
    ("scheduler", "shape", "axes"),
    [
        ("inner_persistent", (3, 1000), (1,)),
        ("inner_persistent", (3, 1001), (1,)),
        ("inner_persistent", (1, 40000), (1,)),  # in shared memory
        ("inner_persistent", (1, 70000), (1,)),  # read again
        ("outer_persistent", (1001, 5), (0,)),
        ("outer_persistent", (13, 8), (0,)),
    ],
)
def test_what_is_read_again(
    scheduler: str, shape: Shape, axes: tuple[int, ...], tmp_path: Path
) -> None:
    b, x = builder_of(shape)
    b.output(b.apply("sum", x, dims=axes))
    b.output(b.apply("sub", x, b.apply("sum", x, dims=axes, keepdim=True)))
    check_sums(scheduler, b, shape, [axes], tmp_path)


@pytest.mark.parametrize(
    ("scheduler", "shape", "axis"),
    [
        ("inner_persistent", (3, 1000), 1),
        ("outer_persistent", (300, 5), 0),
        ("inner_outer_persistent", (30, 1000), 1),
    ],
)
def test_a_mean_in_two_passes(scheduler: str, shape: Shape, axis: int, tmp_path: Path) -> None:
    b, x = builder_of(shape)
    var, mean = b.call("var_mean", [x], {"dims": [axis], "correction": 0, "keepdim": False})
    b.output(var)
    b.output(mean)
    wide, _ = b.call("var_mean", [x], {"dims": [axis], "correction": 0, "keepdim": True})
    scaled = b.apply("mul", x, wide)
    b.output(b.apply("sum", scaled, dims=[0]) if scheduler == "inner_outer_persistent" else scaled)
    fusion = b.finish()
    plan = plan_of(scheduler, fusion)
    numbers = filled(shape, None)
    found = run(plan, {"x": numbers}, tmp_path)[mean.name]
    order = plan.orders[var.name].at(fusion.hints)
    total = performed(as_terms(numbers, (axis,)), order).reshape(-1)
    assert np.array_equal(found, total * np.float32(1 / shape[axis]))


@pytest.mark.parametrize(
    "shape",
    [
        (301, 12),
        (30, 1000),  # four warps in a row
        (20, 4096),  # sixteen warps in a tree
        (7, 301, 12),  # two sets of columns; the last range of each group is shorter
        (4, 3, 520),
    ],
)
def test_rows_and_columns(shape: Shape, tmp_path: Path) -> None:
    b, x = builder_of(shape)
    rank = len(shape)
    sums = [(rank - 1,), tuple(range(rank - 1)), tuple(range(1, rank - 1))]
    for axes in sums[:rank]:
        b.output(b.apply("sum", x, dims=axes))
    check_sums("inner_outer_persistent", b, shape, sums, tmp_path)


@pytest.mark.parametrize(("m", "k", "n"), [(70, 100, 65), (3, 1000, 8)])
def test_a_product_by_threads(m: int, k: int, n: int, tmp_path: Path) -> None:
    b = GraphBuilder("product")
    rows, depth, columns = (b.declare_dim(c, e) for c, e in zip("MKN", (m, k, n), strict=True))
    x, w = b.input("x", F32, [rows, depth]), b.input("w", F32, [depth, columns])
    b.output(b.apply("matmul", x, w))
    fusion = b.finish()
    plan = plan_of("matmul", fusion)
    for fill in FILLS:
        arrays = {"x": filled((m, k), fill), "w": filled((k, n), fill, 1)}
        (found,) = run(plan, arrays, tmp_path).values()
        terms = arrays["x"][:, :, None] * arrays["w"][None]
        (order,) = plan.orders.values()
        assert np.array_equal(found, performed(terms, order.at(fusion.hints)))


def scanned(shape: Shape, axis: int, folder: Path) -> Iterator[tuple[Array, Array, Array]]:
    """Yield elements, and their running sums as a kernel takes them and in its plan's order."""
    b, x = builder_of(shape)
    b.output(b.apply("cumsum", x, dim=axis))
    fusion = b.finish()
    plan = plan_of("scan", fusion)
    (order,) = plan.orders.values()
    for fill in FILLS:
        numbers = filled(shape, fill)
        (found,) = run(plan, {"x": numbers}, folder).values()
        terms = np.moveaxis(numbers, axis, 1).reshape(-1, shape[axis])
        expected = running(terms[..., None], order.at(fusion.hints))[..., 0]
        yield terms, np.moveaxis(found, axis, 1).reshape(expected.shape), expected


@pytest.mark.parametrize("shape", [(300, 8), (1001, 5)])
def test_running_sums_down_columns(shape: Shape, tmp_path: Path) -> None:
    for _, found, expected in scanned(shape, 0, tmp_path):
        assert np.array_equal(found, expected)


def two_roundings(sums: Array) -> Array:
    return 2 * 2.0**-23 * np.maximum.accumulate(np.abs(sums), 1)


@pytest.mark.parametrize("shape", [(2, 64), (3, 1000), (2, 5001), (1, 40000)])
def test_running_sums_along_rows(shape: Shape, tmp_path: Path) -> None:
    for terms, found, expected in scanned(shape, 1, tmp_path):
        # A warp adds what lies before one of its vectors to what lies before a lane, and that to
        # the vector: one rounding lies elsewhere, on sums that the warp itself takes.
        off = two_roundings(expected)
        assert (np.abs(found - expected) <= off).all()
        in_a_row = np.add.accumulate(terms, 1)
        assert shape[1] < 1000 or (np.abs(in_a_row - expected) > off).any()


def test_many_tiles_of_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MAX_THREADS", 32)
    monkeypatch.setattr(scan, "VALUES", 1)
    _, found, expected = next(scanned((1, 140_000), 1, tmp_path))
    assert (np.abs(found - expected) <= 2 * two_roundings(expected)).all()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((512, 8192), (1,)),
        ((512, 701), (1,)),  # not in vectors, nor are these shifted
        ((3, 1 << 20), (1,)),
        ((1 << 17, 8), (0,)),
        ((4099, 1024), (0,)),
    ],
)
def test_sums_on_a_gpu(shape: Shape, axes: tuple[int, ...]) -> None:
    b, x = builder_of(shape)
    b.output(b.apply("sum", x, dims=axes))
    fusion = pinned(b.finish(), "reduction")
    for fill in FILLS:
        numbers = filled(shape, fill)
        checked = check_on_gpu(fusion, inputs=dense(numbers), scheduler="reduction")
        ((name, order),) = checked.compiled.program.host.orders_at(fusion.hints).items()
        expected = performed(as_terms(numbers, axes), order).reshape(-1)
        assert DRY or np.array_equal(checked.outputs[name], expected), fill


@pytest.mark.gpu
def test_rows_and_columns_on_a_gpu() -> None:
    shape = (4097, 1000)
    b, x = builder_of(shape)
    for axis in (1, 0):
        b.output(b.apply("sum", x, dims=[axis]))
    fusion = b.finish()
    for fill in FILLS:
        numbers = filled(shape, fill)
        checked = check_on_gpu(fusion, inputs=dense(numbers), scheduler="inner_outer_persistent")
        orders = checked.compiled.program.host.orders_at(fusion.hints)
        for output, axis in zip(fusion.outputs, (1, 0), strict=True):
            name = output.value.name
            expected = performed(as_terms(numbers, (axis,)), orders[name]).reshape(-1)
            assert DRY or np.array_equal(checked.outputs[name], expected), (name, fill)


# --- every sum has an order --------------------------------------------------------------------


def terms_of(node: Node, sizes: Any) -> int:
    shape = [e.evaluate(sizes) for e in node.operands[0].shape]
    if node.op.family == "contraction":
        return shape[-1]
    axes = [node.attributes["dim"]] if node.op.family == "scan" else node.attributes["dims"]
    return int(np.prod([shape[a] for a in axes]))


def program_of(fusion: Fusion, target: str = "sm_90a") -> HostProgram:
    return lowered(driver.plan(fusion, CompileOptions(targets=(target,), targets_given=True)))


def lowered(planned: driver.Compilation) -> HostProgram:
    """Return the host program of plans, each of which tells the orders of all its sums."""
    for plan, segment in zip(planned.plans, planned.segmented.segments, strict=True):
        sums = {n.output.name for n in segment.nodes if is_sum(n)}
        assert plan.orders.keys() == (sums if plan.kernels else set()), segment.scheduler
    return planned.host


def idle(planned: driver.Compilation, node: Node) -> bool:
    """Return whether no kernel computes a sum, since only what is empty needs it."""
    name = node.output.name
    segments = zip(planned.plans, planned.segmented.segments, strict=True)
    having = [plan for plan, s in segments if any(n.output.name == name for n in s.nodes)]
    return bool(having) and not any(plan.kernels for plan in having)


@pytest.mark.parametrize("path", mostly_nightly(FILES, 4), ids=lambda p: p.stem)
def test_every_sum_has_an_order(path: Path) -> None:
    if "# refused" in path.read_text():
        pytest.skip("is refused")
    for fusion in (p.original for p in driver.programs(str(path))):
        # A schedule that a file sets may be one of Hopper's alone.
        for target in ("sm_90a",) if fusion.schedules else ("sm_80", "sm_90a"):
            planned = driver.plan(fusion, CompileOptions(targets=(target,), targets_given=True))
            program = lowered(planned)
            for node in fusion.nodes:
                if is_sum(node) and terms_of(node, fusion.hints) > 1 and not idle(planned, node):
                    assert node.output.name in program.orders, node
            for name, order in program.orders_at(fusion.hints).items():
                (node,) = (n for n in fusion.nodes if n.output.name == name)
                count = terms_of(node, fusion.hints)
                # A kernel's stages leave one sum: what is left out would count as a tree.
                stages = order.within(count)
                assert len(stages) <= len(order.stages), f"{name} of {count}: {order}"


ROW = """
fusion: row_times_matrix
dims: {K: 256, N: 64}
inputs: {x: "f32[K]", w: "f32[K, N]"}
ops: ["y = matmul(x, w)"]
outputs: [y]
"""


def test_a_kernel_for_several_sizes_has_longer_chains_at_larger_ones(tmp_path: Path) -> None:
    plan = plan_of("matmul", read_text(ROW))
    assert plan.orders["y"].stages[0].chain == symbol("K")
    for k in (99, 256, 1000):
        sized = replace(plan, fusion=with_sizes(plan.fusion, {"K": k}))
        arrays = {"x": filled((k,), None), "w": filled((k, 64), None, 1)}
        terms = arrays["x"][None, :, None] * arrays["w"]
        expected = performed(terms, plan.orders["y"].at({"K": k}))
        assert np.array_equal(run(sized, arrays, tmp_path)["y"], expected[0])


def test_tensor_cores_add_groups_of_what_is_summed() -> None:
    order = program_of(read_text(ROW.replace("f32", "bf16"))).orders["y"]
    assert order.group == 16
    assert order.at({"K": 256}).within(256) == (Stage(16),)
    assert order.at({"K": 8000}).within(8000) == (Stage(500),)


# --- sums that have become others --------------------------------------------------------------


def orders(fusion: Fusion, when: str = "after") -> dict[str, PlannedOrder]:
    found = segmented(fusion, when)
    plans = [plan_segment(s, find("sm_90a")) for s in found.segments]
    return orders_of(fusion, found.fusion, plans)


@pytest.mark.parametrize("linear", mostly_nightly([False, True], 2))
def test_a_product_in_parts_of_k_adds_the_parts_in_the_end(linear: bool) -> None:
    fusion = norm(n=384, k=32768, linear=linear)
    found = orders(fusion)
    assert found.keys() == {"p", "sum_1"}
    # Sixteen products of 2048 terms each, and the fifteen additions of what they give.
    assert found["p"].at({}).within(32768) == (Stage(128), Stage(16, width=1))


def test_a_product_of_a_slice_has_the_name_of_the_product() -> None:
    assert orders(last())["p"] == orders(last(), "never")["p"]


def test_copied_shared_and_cast_sums_keep_an_order() -> None:
    fusion = read_text("""
fusion: names
dims: {B: 8, H: 1000}
inputs: {x: "f32[B, H]"}
ops:
  - first = sum(x, dims=[1])
  - again = sum(x, dims=[1])
  - both = add(first, again)
  - other = sum(mul(x, x), dims=[1])
  - y = set(other)
  - z = cumsum(x, 1)
  - copy = cast(z, f32)
outputs: [both, y, copy]
""")
    found = program_of(fusion).orders
    assert found.keys() == {"first", "again", "other", "z"}
    assert found["first"] == found["again"]


TWO_STAGES = """
fusion: two
dims: {B: 64, H: 4096}
inputs: {x: "f32[B, H]"}
ops: [OPS]
outputs: [s]
"""
WHOLE = read_text(TWO_STAGES.replace("OPS", '"s = sum(x, dims=[0, 1])"'))
PARTS = read_text(
    TWO_STAGES.replace("OPS", '"part = sum(x, dims=[1])", "s = sum(mul(part, 0.5), dims=[0])"')
)


def test_a_sum_in_two_stages_has_the_orders_of_both() -> None:
    first = PlannedOrder((PlannedStage(dim(16)),))
    then = PlannedOrder((PlannedStage(dim(8), 3),))
    plan = KernelPlan("reduction", PARTS, (), None, orders={"part": first, "s": then})
    assert orders_of(WHOLE, PARTS, [plan]) == {"s": first.then(then)}
    # A sum that the fusion was given with has an order of its own.
    assert orders_of(PARTS, PARTS, [plan]) == {"part": first, "s": then}


def test_the_longer_chains_of_two_kernels_count() -> None:
    short, long = (PlannedOrder((PlannedStage(dim(n)),)) for n in (4, 64))
    plans = [
        KernelPlan("reduction", WHOLE, (), None, orders={"s": o}) for o in (short, long, short)
    ]
    assert orders_of(WHOLE, WHOLE, plans) == {"s": long}


# --- as data -----------------------------------------------------------------------------------


def program() -> HostProgram:
    order = PlannedOrder(
        (
            PlannedStage(ceildiv(symbol("K"), 16), 5, 512, 4),
            PlannedStage(dim(3), width=1, cut=12),
            PlannedStage(dim(1), 4, 1),
        ),
        16,
    )
    return HostProgram("p", (), (), (), (), orders={"total": order})


def test_orders_are_written_and_read() -> None:
    assert from_json(json.loads(json.dumps(to_json(program())))) == program()
    assert program().orders_at({"K": 100}) == {
        "total": Order((Stage(7, 5, 512, 4), Stage(3, 0, 1, 1, 12), Stage(1, 4, 1)), 16)
    }
    assert (
        "  order total: groups of 16, then 512 chains of ceildiv(K, 16) in runs of 4, trees of "
        "depth 5, then chains of 3 within every 12, then trees of depth 4\n"
    ) in program().text()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("chain", 0), ("chain", -4), ("chain", "K +"), ("chain", None), ("chain", 2.5),
        ("depth", -1), ("depth", 65), ("depth", "5"), ("depth", True), ("width", -1),
        ("width", 1 << 40), ("run", 0), ("run", 65), ("cut", -1), ("group", 2), ("group", None),
        ("stages", 7), ("stages", [7]), ("steps", 1), ("kept", "f32"), ("rounded", "f32"),
    ],
)  # fmt: skip
def test_what_is_no_order_is_refused(key: str, value: object) -> None:
    data = to_json(program())
    order = data["orders"]["total"]
    (order if key in order else order["stages"][0])[key] = value
    with pytest.raises(FusecError):
        from_json(data)


def test_a_program_without_orders_is_read() -> None:
    data = to_json(program())
    del data["orders"]
    assert from_json(data).orders == {}
