"""The workloads of the benchmarks: they compile, and PyTorch's functions compute the same."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nightly import mostly_nightly

from benchmarks import generated, products, suites
from benchmarks.peers import PEERS, Offer, found
from benchmarks.prepared import prepare
from benchmarks.rows import WORKLOADS, Row
from benchmarks.run import geometric_mean, main, rows_of, summary
from fusec import driver, lowering
from fusec.bench.figures import error_of
from fusec.bench.work import fewest
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.run.inputs import choose_sizes, random_inputs

FILES = sorted(p.stem for p in WORKLOADS.glob("*.yaml"))
SMALL = 12
"""The extent of a dim, or this many times what it is a multiple of."""
SPECIAL = {
    "adam": {f"N{k}": 7 * k for k in range(6)},
    "kv_cache_append": {"B": 2, "NH": 2, "S": 1030, "C": 5, "D": 8},
    "kv_cache_update": {"T": 12, "SLOTS": 30, "D": 16},
    "rope_cache": {"T": 5, "NH": 4, "KH": 2, "D": 32, "SLOTS": 9},
    "topk_words": {"B": 3, "V": 70},
}
RANDOM = {"dropout_residual_rmsnorm", "dropout_residual_rmsnorm_backward"}


@pytest.mark.parametrize("name", mostly_nightly(FILES, 3))
def test_a_workload_is_planned(name: str) -> None:
    program = driver.plan(Row(name, name).fusion, CompileOptions())
    read, written = fewest(program)
    assert program.kernel_sources
    assert 0 < read + written <= program.segmented.bytes + 32 * 64


def test_the_rows_have_names_of_their_own_and_every_file_is_in_a_suite() -> None:
    for suite in suites.SUITES.values():
        assert len({r.name for r in suite}) == len(suite)
    assert len(suites.PEERS_34) == 34
    assert len(suites.SMALL) == 16
    every = [r for rows in suites.SUITES.values() for r in rows if not r.text]
    named = {r.file for r in every} - {suites.SEED}
    assert named == set(FILES)
    for row in suites.SMALL:
        fusion = row.fusion
        assert prod(e.evaluate(fusion.hints) for e in fusion.outputs[0].value.shape) <= 512 * 8192


def small(name: str) -> Fusion:
    """Return the fusion of a file at sizes at which it is soon evaluated."""
    row = Row(name, name)
    facts = {d.name: d for d in row.fusion.dims}
    sizes = {n: min(d.default, SMALL * d.multiple_of) for n, d in facts.items()}
    return Row(name, name, SPECIAL.get(name, sizes)).fusion


def compare(row: Row, fusion: Fusion, given: dict[str, Any]) -> None:
    """Compare the PyTorch function, in fp64 and in fp32, with the reference."""
    torch = pytest.importorskip("torch")
    from benchmarks.torch_side import TYPES, rounded

    def tensor(array: Any) -> Any:
        if not hasattr(array, "dtype") or not np.shape(array):
            return array
        plain = np.array(array)
        if plain.dtype.isbuiltin != 1:
            bits = torch.from_numpy(plain.view(f"i{plain.dtype.itemsize}"))
            return bits.view(getattr(torch, str(plain.dtype)))
        return torch.from_numpy(plain)

    def array(value: Any) -> np.ndarray:
        return value.to(torch.float64).numpy()

    expected = driver.reference(fusion, given, choose_sizes(fusion))
    outputs = [o.value for o in fusion.outputs]
    assert {v.dtype.name for v in outputs} <= set(TYPES)
    object.__setattr__(row, "fusion", fusion)
    # A result that is rounded the other way is an error of 2^-9 in one of a thousand elements.
    for kind, limit in ((torch.float64, 2e-4), (torch.float32, 1e-2)):
        arguments = [tensor(given[i.value.name]) for i in fusion.inputs]
        results = rounded(row.torch_function()(*arguments, f=kind), [v.dtype.name for v in outputs])
        pairs = [(v.name, r) for v, r in zip(outputs, results, strict=True) if r is not None]
        assert pairs
        error = error_of(
            {name: array(r) for name, r in pairs},
            {name: np.asarray(expected[name]).astype(np.float64) for name, _ in pairs},
        )
        assert error.norm < limit, (kind, error)
        for name, result in pairs:
            assert tuple(result.shape) == np.shape(expected[name]), name


@pytest.mark.parametrize("name", [n for n in FILES if n not in RANDOM])
def test_the_function_computes_what_the_file_does(name: str) -> None:
    fusion = small(name)
    given = random_inputs(fusion, choose_sizes(fusion))
    for slots in {"slots"} & given.keys():
        kept = np.random.default_rng(1).permutation(fusion.hints["SLOTS"])
        given[slots] = kept[: fusion.hints["T"]]
    compare(Row(name, name), fusion, given)


def test_the_function_of_the_seed_computes_what_its_file_does() -> None:
    with open(suites.SEED) as file:
        text = file.read().split("segments:")[0]
    text = re.sub(r"\b1024\b(?!\.)", "24", re.sub(r"\b56\b", "3", text))
    fusion = Row("seed_2146", "seed_2146", text=text).fusion
    compare(Row("seed_2146", "seed_2146"), fusion, random_inputs(fusion, choose_sizes(fusion)))


@pytest.mark.parametrize("body", generated.BODIES, ids=lambda b: b.name)
def test_the_functions_of_drawn_workloads_compute_the_same(body: generated.Body) -> None:
    shape = (3, 5, 7)
    names = ["x", *(["z"] if body.second else [])]
    layouts = [("x", shape, (40, 8, 1)), ("z", shape, (0, 7, 1))]
    inputs = [each for each in layouts if each[0] in names]
    inputs += [("w", shape[-1:], (1,))] if body.weight else []
    text = generated._text("g", body, "f16", shape, inputs)
    fusion = Row("g", "g", text=text).fusion
    row = Row("g", "g", text=text, function=body.name)
    compare(row, fusion, random_inputs(fusion, choose_sizes(fusion)))


@settings(max_examples=2, deadline=None)
@given(st.integers(0, 2**32))
def test_a_seed_draws_the_same_workloads_each_time(seed: int) -> None:
    rows = generated.rows(seed)
    assert [(r.name, r.text) for r in rows] == [(r.name, r.text) for r in generated.rows(seed)]
    assert [r.name for r in rows] != [r.name for r in generated.rows(seed + 1)]
    assert len(rows) == generated.COUNT


@settings(max_examples=2, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, generated.COUNT - 1))
def test_drawn_workloads_compile_and_move_64_MiB_at_least(seed: int, number: int) -> None:
    row = generated.rows(seed)[number]
    program = driver.plan(row.fusion, CompileOptions())
    read, written = fewest(program)
    # Slices leave a part of an input out: of the shortest rows three quarters.
    part = 0.25 if row.function == "sliced" else 1
    assert read >= generated.LEAST * part
    assert read + written >= generated.LEAST
    assert lowering.verify(program.fusion) is None


def test_every_kind_of_shape_and_layout_is_drawn() -> None:
    rows = [r for seed in range(4) for r in generated.rows(seed)]
    for kind in generated.SHAPES:
        assert any(f"_{kind.__name__}_" in r.name for r in rows)
    assert {len(r.fusion.inputs[0].value.shape) for r in rows} == {2, 3, 4, 5}
    strides = [tuple(s.value for s in i.strides) for r in rows for i in r.fusion.inputs]
    assert any(0 in s for s in strides)
    assert any(s[-1] != 1 for s in strides)
    assert any(0 not in s and s[-1] == 1 and len(s) > 1 and s[-2] % 8 for s in strides)


def test_rows_are_chosen_by_patterns() -> None:
    assert [r.name for r in rows_of("memory", ["softmax_*"], [])] == [
        "softmax_65536x1024", "softmax_16384x8192", "softmax_4096x32768", "softmax_1024x131072",
        "softmax_backward_16384x8192", "softmax_1024x262144",
    ]  # fmt: skip
    assert main(["--suite", "memory", "--only", "no_such_row"]) == 2


def test_without_a_gpu_the_suite_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    from fusec.run.device import device_available

    if device_available() is None:
        pytest.skip("there is a GPU")
    assert main(["--suite", "generated", "--seed", "7"]) == 4
    said = capsys.readouterr()
    assert "seed 7" in said.out
    assert "--build builds without a GPU" in said.err


def test_a_peer_that_is_not_installed_is_missing_with_the_reason() -> None:
    row = Row("softmax_16", "softmax")
    issue, why = found("quack", Offer(row, lambda x: x, [None]))
    assert issue is None
    assert "quack" in why
    issue, why = found("fused_adam", Offer(row, lambda x: x, [None]))
    assert why == "has nothing for this workload"
    assert {
        "inductor",
        "inductor_tuned",
        "quack",
        "liger",
        "flashinfer",
        "cudnn",
        "apex",
        "cub",
    } <= set(PEERS)


def test_means_are_geometric() -> None:
    rows = [
        {"name": "a", "share": 0.5, "ratios": {"p": 2.0}},
        {"name": "b", "share": 0.98, "ratios": {"p": 0.5, "q": 3.0}},
    ]
    found = summary(rows)
    assert found["share"] == pytest.approx(0.7, abs=1e-4)
    assert found["under"] == ["a"]
    assert found["ratios"] == {"p": 1.0, "q": 3.0}
    assert found["lost"] == {"p": 1, "q": 0}
    assert geometric_mean([]) == 0.0


def test_a_row_may_leave_pins_out() -> None:
    (free,) = (r for r in suites.MEMORY if r.name == "seed_2146_free")
    assert replace(free, free=False).fusion.pins
    assert not free.fusion.pins


@given(st.integers(0, 2**32))
@settings(max_examples=20)
def test_drawn_products_last_long_enough_and_have_names_of_their_own(seed: int) -> None:
    rows = list(products.drawn(seed, 9))
    assert [r.name for r in rows] == [r.name for r in products.drawn(seed, 9)]
    assert len({r.name for r in rows}) == 9
    for row in rows:
        m, n, k = (int(e) for e in row.name.split("_")[1].split("x"))
        assert all(products.LEAST <= e <= products.MOST for e in (m, n, k))
        moved, flops = 2 * (m * n + m * k + n * k), 2 * m * n * k
        assert max(moved / products.BANDWIDTH, flops / products.FLOPS) >= 20e-6
        (output,) = row.fusion.outputs
        assert [e.value for e in output.value.shape] == [m, n]


@pytest.mark.parametrize(
    ("epilogue", "layout"),
    [*(("", layout) for layout in products.LAYOUTS), ("gelu", "nt"), ("silu_mul", "nt")],
)
def test_the_function_of_a_product_computes_what_its_text_does(epilogue: str, layout: str) -> None:
    text = products.text_of((12, 24, 40), layout, epilogue)
    row = Row("product", "product", text=text, function=f"product_{epilogue or layout}")
    compare(row, row.fusion, random_inputs(row.fusion, choose_sizes(row.fusion)))


def test_products_are_summed_up_by_kind_and_epilogue() -> None:
    ratios = {"large_1x1x1": 1.0, "large_2x2x2": 0.81, "few_1x1x1_silu_mul": 1.2,
              "drawn00_1x1x1_nn": 0.5, "drawn01_1x1x1": None}  # fmt: skip
    found = products.summary([{"name": n, "best": r} for n, r in ratios.items()])
    assert set(found) == {"large", "few silu_mul", "drawn"}
    assert found["large"]["mean"] == 0.9
    assert found["large"]["least"] == 0.81
    assert found["large"]["under_0.95"] == 1
    assert found["drawn"]["under_0.75"] == 1
    assert found["drawn"]["rows"] == 1  # where no peer ran there is no ratio


def test_of_several_seeds_the_worst_is_said() -> None:
    names = [r.name for r in products.rows([1, 2])[-2 * products.DRAWN :]]
    assert len(set(names)) == 2 * products.DRAWN
    assert names[0].startswith("drawn00s1_")
    assert names[-1].startswith("drawn59s2_")
    ratios = [*([1.0] * 60), *([1.5] * 58), 0.7, 0.8]
    rows = [{"name": n, "best": r} for n, r in zip(names, ratios, strict=True)]
    found = products.summary(rows)
    assert set(found) == {"drawn s1", "drawn s2", "drawn, worst seed"}
    assert found["drawn, worst seed"] == {
        "rows": 60, "mean": 1.0, "least": 0.7, "under_0.97": 2, "under_0.95": 2, "under_0.85": 2,
        "under_0.75": 1,
    }  # fmt: skip


def test_what_is_not_compiled_in_time_is_said() -> None:
    rows = [r for r in products.rows([]) if r.name.startswith("large_2048")]
    found = prepare(rows, ["inductor"], 0.0, 1)
    assert found == {(r.name, "inductor"): "not compiled within 0 s" for r in rows}


TORCH = """
from types import SimpleNamespace

class Made:
    def to(self, dtype):
        return self

def compile(function, **options):
    if "options" in options:
        raise RuntimeError("no candidate is left")
    return lambda *given: None

cuda = SimpleNamespace(empty_cache=lambda: None)
compiler = SimpleNamespace(reset=lambda: None)

def randn(shape, device):
    return Made()

def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return name
"""
"""What stands for PyTorch in processes that compile."""


def test_peers_are_compiled_in_processes_and_say_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"__init__": TORCH, "nn/__init__": "", "nn/functional": "relu = None"}
    files |= {"_inductor/__init__": "", "_inductor/runtime/__init__": ""}
    files["_inductor/runtime/benchmarking"] = "import torch\nbenchmarker = torch.Made()\n"
    files["_inductor/runtime/benchmarking"] += "torch.Made.benchmark_gpu = None\n"
    for name, text in files.items():
        file = tmp_path / "torch" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = [r for r in products.rows([]) if r.name in ("few_1x8192x8192_gelu", "few_1x8192x8192")]
    assert all(r.fusion for r in rows)  # which stays in this process
    found = prepare(rows, ["inductor", "inductor_tuned"], 60.0, 1)
    assert found == {
        (r.name, peer): why
        for r in rows
        for peer, why in (
            ("inductor", ""),
            ("inductor_tuned", "RuntimeError: no candidate is left"),
        )
    }
