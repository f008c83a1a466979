"""Two threads of a launch that plainly store to one byte, and what may order them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import Order, build_all, run_plan
from families import plan_of, refused_rule
from nightly import mostly_nightly
from test_emulator import ORDERS, Raw, fails, zeros

from fusec.codegen.dispatch import plan_sources
from fusec.index.instances import Lowering
from fusec.ir.dim import dim
from fusec.ir.dtype import F32
from fusec.kernel.lowering.nest import Nest
from fusec.parse import read_text
from fusec.run.inputs import random_inputs
from fusec.schedule.plan import TensorMapArgument

OVERWRITES = r"overwrites what thread \d+ of block \d+ wrote, without a barrier or a release since"


def kernel(body: str, *headers: str, parameters: str = "float* y") -> str:
    includes = "".join(f'#include "{h}.cuh"\n' for h in headers)
    return f'{includes}extern "C" __global__ void kernel({parameters}) {{\n{body}\n}}'


OVERLAPPING = {
    "two warps": "if (threadIdx.x % 32 == 0) y[0] = threadIdx.x;",
    "two lanes": "if (threadIdx.x < 32) y[threadIdx.x % 31] = 1.0f;",
    "two blocks": "y[threadIdx.x] = 1.0f;",
    "the same value": "y[threadIdx.x / 2] = 0.0f;",
    "a byte of a word": (
        "if (threadIdx.x == 0) y[0] = 1.0f;\n"
        "if (threadIdx.x == 40) reinterpret_cast<char*>(y)[3] = 1;"
    ),
    "the last element again": "y[threadIdx.x < 63 ? threadIdx.x : 62] = 1.0f;",
}
READ = {
    "another warp's": "if (threadIdx.x == 0) y[0] = 1.0f;\nif (threadIdx.x == 40) y[1] = y[0];",
    "another lane's": "if (threadIdx.x == 5) y[0] = 1.0f;\nif (threadIdx.x == 6) y[1] = y[0];",
}


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("name", mostly_nightly(OVERLAPPING, 2))
def test_overlapping_stores_are_seen_in_every_order(
    name: str, order: Order, tmp_path: Path
) -> None:
    grid = 2 if name == "two blocks" else 1
    fails(Raw(kernel(OVERLAPPING[name]), {"y": zeros(64)}, grid), tmp_path, OVERWRITES, order)


@pytest.mark.parametrize("name", READ)
def test_reads_of_what_others_wrote_are_seen_in_some_order(name: str, tmp_path: Path) -> None:
    found = list[str]()
    for order in ORDERS:
        try:
            Raw(kernel(READ[name]), {"y": zeros(64)}).run(tmp_path, order)
        except AssertionError as error:
            found.append(str(error))
    assert any("reads what thread" in each for each in found)


ORDERED = {
    "a read after an exchange of the warp": (
        "if (threadIdx.x == 5) y[0] = 1.0f;\n__syncwarp();\nif (threadIdx.x == 6) y[1] = y[0];"
    ),
    "one thread": "y[threadIdx.x] = 0.0f;\n  y[threadIdx.x] = 1.0f;",
    "a barrier": "y[threadIdx.x] = 0.0f;\n  __syncthreads();\n  y[63 - threadIdx.x] = 1.0f;",
    "an exchange of the warp": (
        "y[threadIdx.x] = 0.0f;\n  __syncwarp();\n  y[threadIdx.x ^ 1] = 1.0f;"
    ),
    "atomics": "atomicAdd(y, 1.0f);",
    "relaxed stores": "fusec::store_relaxed(reinterpret_cast<fusec::u32*>(y), 1u);",
    "bytes of a word": "reinterpret_cast<char*>(y)[threadIdx.x] = 1;",
}


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("name", mostly_nightly(ORDERED, 2))
def test_ordered_stores_are_not_reported(name: str, order: Order, tmp_path: Path) -> None:
    Raw(kernel(ORDERED[name], "scatter"), {"y": zeros(64)}).run(tmp_path, order)


TURNS = """
  fusec::wait_turn(turn, blockIdx.x);
  y[threadIdx.x] = blockIdx.x;
  fusec::release_turn(turn, blockIdx.x + 1);
"""


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("left_out", ["", "  fusec::wait_turn(turn, blockIdx.x);\n"])
def test_a_release_that_is_acquired_orders_blocks(
    left_out: str, order: Order, tmp_path: Path
) -> None:
    text = kernel(TURNS.replace(left_out, ""), "grid", parameters="fusec::u32* turn, float* y")
    raw = Raw(text, {"turn": zeros(1, np.uint32), "y": zeros(64)}, grid=3)
    if left_out:
        fails(raw, tmp_path, OVERWRITES, order)
    else:
        assert raw.run(tmp_path, order)["y"].tolist() == [2.0] * 64


BULK = """
  __shared__ __align__(128) float tile[64];
  tile[threadIdx.x] = 1.0f;
  fusec::fence_proxy_async_shared_cta();
  __syncthreads();
  if (threadIdx.x == 0) {
    STORE;
    fusec::commit_group();
    fusec::wait_group_read<0>();
  }
"""


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize(
    ("store", "overlaps"),
    mostly_nightly(
        [
            ("fusec::bulk_store(y, tile, 256)", True),
            ("fusec::bulk_store(y + 64 * blockIdx.x, tile, 256)", False),
            ("fusec::bulk_reduce_add(y, tile, 256)", False),
            ("fusec::tensor_store_2d(&map, tile, 0, 0)", True),
            ("fusec::tensor_store_2d(&map, tile, 16 * blockIdx.x, 0)", False),
        ],
        2,
    ),
)
def test_bulk_stores_that_nobody_waits_for_count(
    store: str, overlaps: bool, order: Order, tmp_path: Path
) -> None:
    maps: tuple[TensorMapArgument, ...] = ()
    parameters = "float* y"
    if "tensor" in store:
        maps = (
            TensorMapArgument(
                name="map", buffer="y", dtype=F32, extents=(dim(32), dim(4)), strides=(dim(128),),
                box=(16, 4), swizzle="NONE",
            ),
        )  # fmt: skip
        parameters = "const __grid_constant__ fusec::TensorMap map, float* y"
    text = kernel(BULK.replace("STORE", store), "bulk_reduce", "tma", parameters=parameters)
    raw = Raw(text, {"y": zeros(128)}, grid=2, maps=maps)
    if overlaps:
        fails(raw, tmp_path, OVERWRITES, order)
    else:
        raw.run(tmp_path, order)


def run(text: str, scheduler: str, folder: Path, edit: Any = str, **settings: Any) -> None:
    fusion = read_text(f"fusion: stores\n{text}")
    plan = plan_of(scheduler, fusion, **settings)
    inputs = random_inputs(fusion, fusion.hints, 0)
    for backwards in (False, True):
        run_plan(plan, inputs, folder, edit=edit, backwards=backwards)


PRODUCT = """inputs: {{a: "bf16[{rows}, 64]", b: "bf16[64, 64]", r: "bf16[{rows}, 64]"}}
ops:
  - y = permute(add(matmul(a, b), r), [1, 0])
outputs: [y]
"""
GUARDED = re.compile(
    r"const Index m = (tile_m \+ warp_m \+ row);\n"
    r"( +)const Index n = (tile_n \+ column);\n"
    r" +if \(m < M && n < N\) finish\("
)
CLAMPED = r"const Index m = min(\1, M - 1);\n\2const Index n = min(\3, N - kWidth);\n\2finish("


@pytest.mark.parametrize("rows", [128, 200])
def test_results_that_lanes_past_the_end_store_again_are_seen(rows: int, tmp_path: Path) -> None:
    """The epilogue that clamped its rows stored what belonged to rows past the end."""

    def edit(text: str) -> str:
        edited = GUARDED.sub(CLAMPED, text)
        if 'extern "C"' in text:
            assert "min(tile_m + warp_m + row, M - 1)" in edited
        return edited

    settings = {"kernel": "wgmma", "tile_m": 128, "tile_n": 64, "epilogue_smem": True}
    if rows % 128 == 0:
        run(PRODUCT.format(rows=rows), "matmul", tmp_path, edit, **settings)
    else:
        with pytest.raises(AssertionError, match=OVERWRITES):
            run(PRODUCT.format(rows=rows), "matmul", tmp_path, edit, **settings)


IN_PLACE = {
    "inner_persistent": (
        "inner_persistent",
        'inputs: {x: {type: "f32[1025, 16]", strides: [17, 1]}}\n'
        "ops:\n  - y = sub(x, max(x, dims=[1], keepdim=true))\noutputs:\n  - y: {alias: x}\n",
    ),
    "inner_persistent, a value of each row": (
        "inner_persistent",
        'inputs: {x: "f32[1025, 16]", z: "f32[1025, 1]"}\n'
        "ops:\n  - y = add(z, max(x, dims=[1], keepdim=true))\n  - w = add(x, y)\n"
        "outputs:\n  - y: {alias: z}\n  - w\n",
    ),
    "outer_persistent": (
        "outer_persistent",
        'inputs: {x: "f32[40, 27]"}\n'
        "ops:\n  - y = sub(x, max(x, dims=[0], keepdim=true))\noutputs:\n  - y: {alias: x}\n",
    ),
    "reduction of rows": (
        "reduction",
        'inputs: {x: "f32[1025, 16]", b: "f32[1025]"}\n'
        "ops:\n  - y = add(sum(x, dims=[1]), b)\noutputs:\n  - y: {alias: b}\n",
    ),
    "reduction of columns": (
        "reduction",
        'inputs: {x: "f32[40, 27]", b: "f32[27]"}\n'
        "ops:\n  - y = add(sum(x, dims=[0]), b)\noutputs:\n  - y: {alias: b}\n",
    ),
    "inner_outer_persistent": (
        "inner_outer_persistent",
        'inputs: {x: "f32[71, 96]"}\n'
        "ops:\n  - s = mean(x, dims=[1], keepdim=true)\n  - y = sub(x, s)\n"
        "  - c = sum(mul(y, y), dims=[0])\noutputs:\n  - y: {alias: x}\n  - c\n",
    ),
    "pointwise, a row of all rows": (
        "pointwise",
        'inputs: {x: "f32[48]", v: "f32[48]", w: "f32[20, 48]"}\n'
        "ops:\n  - y = exp(add(x, v))\n  - z = mul(w, v)\noutputs:\n  - y: {alias: x}\n  - z\n",
    ),
    "pointwise, a column of all columns": (
        "pointwise",
        'inputs: {x: "f32[20, 1]", v: "f32[20, 1]", w: "f32[20, 48]"}\n'
        "ops:\n  - y = exp(add(x, v))\n  - z = mul(w, v)\noutputs:\n  - y: {alias: x}\n  - z\n",
    ),
    "pointwise, one element": (
        "pointwise",
        'inputs: {x: "bf16[1, 1]"}\n'
        "ops:\n  - y = sigmoid(x)\n  - z = neg(y)\noutputs:\n  - y: {alias: x}\n  - z\n",
    ),
    "scan of rows": (
        "scan",
        'inputs: {x: "f32[1025, 20]"}\n'
        "ops:\n  - y = cumsum(x, dim=1)\noutputs:\n  - y: {alias: x}\n",
    ),
    "scan of columns": (
        "scan",
        'inputs: {x: "f32[40, 27]"}\nops:\n  - y = cumsum(x, dim=0)\noutputs:\n  - y: {alias: x}\n',
    ),
}


def test_threads_past_the_end_read_nothing_that_is_overwritten(tmp_path: Path) -> None:
    fusions = [read_text(f"fusion: stores\n{text}") for _, text in IN_PLACE.values()]
    kinds = (scheduler for scheduler, _ in IN_PLACE.values())
    plans = [plan_of(kind, fusion) for kind, fusion in zip(kinds, fusions, strict=True)]
    sources = [[(s.kernel, s.text) for s in plan_sources(plan)] for plan in plans]
    functions = iter(build_all([s for each in sources for s in each], tmp_path))
    for plan, fusion, each in zip(plans, fusions, sources, strict=True):
        built = [next(functions) for _ in each]
        inputs = random_inputs(fusion, fusion.hints, 0)
        for backwards in (False, True):
            run_plan(plan, inputs, tmp_path, built=built, backwards=backwards)


def test_columns_that_all_rows_read_are_not_overwritten() -> None:
    """All threads of a column read it behind the reduction, and no barrier follows."""
    text = (
        'fusion: f\ninputs: {x: "f32[1, 48]", w: "f32[20, 48]"}\n'
        "ops:\n  - m = max(w, dims=[0], keepdim=true)\n  - y = mul(x, m)\n"
        "  - z = sub(w, y)\noutputs:\n  - y: {alias: x}\n  - z\n"
    )
    assert refused_rule("outer_persistent", read_text(text)) == "in_place"


def test_a_read_of_what_one_thread_overwrites_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row reads what the first one stores, unless its load has the store's condition."""
    loads = Lowering._input
    monkeypatch.setattr(
        Lowering, "_input", lambda self, value, at, where: loads(self, value, at, ())
    )
    scheduler, text = IN_PLACE["pointwise, a row of all rows"]
    with pytest.raises(AssertionError, match=r"reads what thread \d+ of block \d+"):
        run(text, scheduler, tmp_path)


@pytest.mark.parametrize("name", ["inner_persistent", "reduction of rows", "scan of rows"])
def test_a_read_of_the_last_row_past_the_end_is_seen(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_test(nest: Nest, buffer: str, variables: Any, conditions: Any, phase: int) -> Any:
        return nest.condition(conditions, phase) if conditions else None

    monkeypatch.setattr(Nest, "load_test", load_test)
    scheduler, text = IN_PLACE[name]
    with pytest.raises(AssertionError, match=r"reads what thread \d+ of block \d+ wrote"):
        run(text, scheduler, tmp_path)
