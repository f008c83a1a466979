"""The matrix product kernels of every layout and shape, compiled without a GPU."""

from __future__ import annotations

import itertools
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from nightly import mostly_nightly
from paths import ROOT
from spelled import members_of
from test_hopper_on_cpu import find_matmul, product

from fusec import target
from fusec.codegen.dispatch import plan_sources
from fusec.ir.dtype import F16, F32, F64, I8
from fusec.run.binary.headers import device_headers, headers_for
from fusec.run.binary.nvrtc import Compiled, compile_cuda

nvrtc = pytest.importorskip("cuda.bindings.nvrtc")

TEMPLATES = ROOT / "fusec" / "templates"
LAYOUTS = tuple(itertools.product((False, True), repeat=2))
Case = tuple[str, dict[str, Any], dict[str, Any]]
"""A kernel, what it multiplies, and parameters."""

CASES: dict[str, Case] = {
    "simt_f32": ("simt", {"dtype": F32, "bias": True}, {}),
    "simt_f64": ("simt", {"dtype": F64}, {"vector_width": 1}),
    "simt_i8": ("simt", {"dtype": I8}, {}),
    "simt_bf16": ("simt", {"bias": True}, {"vector_width": 2}),
    **{
        f"mma_{a:d}{b:d}_{k % 2}": ("mma", {"a_columns": a, "b_columns": b, "k": k}, {})
        for (a, b), k in itertools.product(LAYOUTS, (512, 511))
    },
    "mma_f16": ("mma", {"dtype": F16}, {"vector_width": 1}),
    **{
        f"wgmma_{a:d}{b:d}": ("wgmma", {"a_columns": a, "b_columns": b, "bias": True},
                              {"tile_n": 256, "stages": 4, "vector_width": 2})
        for a, b in LAYOUTS
    },
    "wgmma_128": ("wgmma", {"dtype": F16},
                  {"tile_n": 128, "stages": 6, "vector_width": 1}),
    "wgmma_192": ("wgmma", {"bias": True}, {"tile_m": 192, "tile_n": 192, "cluster_m": 2}),
    "wgmma_both": ("wgmma", {"b_columns": False}, {"tile_n": 128, "cluster_m": 2, "cluster_n": 2}),
    "wgmma_4x1": ("wgmma", {"bias": True}, {"tile_n": 256, "stages": 4, "cluster_m": 4}),
    "wgmma_2x4": ("wgmma", {"a_columns": True},
                  {"tile_n": 128, "cluster_m": 2, "cluster_n": 4, "ping_pong": True}),
    "wgmma_4x2": ("wgmma", {}, {"tile_n": 192, "cluster_m": 4, "cluster_n": 2}),
    **{
        f"wgmma_swapped_{rows}x{columns}{'_turns' * turns}": (
            "wgmma", {"bias": rows < 128, "b_columns": rows > 80, "k": 1024},
            {"tile_m": rows, "tile_n": columns, "epilogue_smem": False, "ping_pong": turns,
             "cluster_m": 2, "splits": 1 + (rows == 112 and not turns)},
        )
        for rows, columns, turns in (
            (80, 256, False), (112, 256, False), (160, 256, False), (240, 128, False),
            (160, 128, True), (112, 128, True), (240, 64, True),
        )
    },
    "wgmma_rest": ("wgmma", {}, {"tile_m": 256, "tile_n": 152, "epilogue_smem": True}),
    **{
        f"wgmma_parts_{tile_n}": (
            "wgmma", {},
            {"tile_n": tile_n, "splits": 2, "epilogue_smem": True, "ping_pong": tile_n == 192},
        )
        for tile_n in (192, 256)
    },
    "split_k_1": ("split_k", {}, {"cluster_k": 1, "splits": 2, "split_method": "serial"}),
    "split_k_8": ("split_k", {"k": 1024},
                  {"cluster_k": 8, "splits": 2, "split_method": "serial_tma"}),
    "split_k_mn": ("split_k", {"a_columns": True, "b_columns": False},
                   {"cluster_k": 4, "splits": 2, "vector_width": 1}),
    "split_k_256": ("split_k", {}, {"cluster_k": 4, "splits": 2, "tile_n": 256, "stages": 4}),
    "split_k_slices": ("split_k", {}, {"cluster_k": 2, "splits": 3, "split_method": "slices"}),
    "split_k_64": ("split_k", {"bias": True}, {"cluster_k": 2, "tile_n": 64, "stages": 8}),
    **{
        f"swapped_{rows}": ("split_k", {"b_columns": rows == 64, "bias": True},
                            {"tile_m": rows, "tile_n": 128, "cluster_k": 2, "splits": 2})
        for rows in (16, 32, 64)
    },
}  # fmt: skip
INSTRUCTIONS = {
    "simt": ("FFMA",),
    "mma": (r"HMMA\.16816\.F32", "LDSM", "LDGSTS"),
    "wgmma": ("HGMMA", "UTMALDG", "USETMAXREG"),
    "split_k": ("HGMMA", "UTMALDG", "UBLKRED.*ADD.F32", "UBLKCP", "UCGABAR"),
}


@cache
def text(name: str) -> str:
    """Return the text of a case's kernel."""
    kernel, given, wanted = CASES[name]
    fusion = product(256, 512, **{"k": 512, **given})
    gpu = target.find("sm_90a" if kernel in ("wgmma", "split_k") else "sm_80")
    plan = find_matmul().build(fusion, gpu, {"kernel": kernel, **wanted})
    return plan_sources(plan)[0].text


@cache
def built(name: str) -> Compiled:
    """Return the cubin of a case."""
    arch = "sm_90a" if CASES[name][0] in ("wgmma", "split_k") else "sm_80"
    return compile_cuda(text(name), name="kernel", arch=arch, headers=headers_for(text(name)))


@pytest.mark.parametrize("name", mostly_nightly(CASES, 2))
def test_compiles_without_spills(name: str):
    # Among warnings are a serialised wgmma, an injected wait, and an ignored setmaxnreg.
    assert (built(name).warnings, built(name).spill_bytes) == ((), 0)


def disassemble(cubin: bytes, folder: Path) -> str:
    tool = next(Path(nvrtc.__file__).parents[2].glob("nvidia/*/bin/nvdisasm"), None)
    if tool is None:
        pytest.skip("nvdisasm is not installed")
    (folder / "kernel.cubin").write_bytes(cubin)
    return subprocess.run(
        [tool, "-c", folder / "kernel.cubin"], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("name", ["simt_f32", "mma_01_0", "wgmma_01", "split_k_8"])
def test_uses_the_intended_instructions(name: str, tmp_path: Path):
    sass = disassemble(built(name).cubin, tmp_path)
    missing = [i for i in INSTRUCTIONS[CASES[name][0]] if not re.search(i, sass)]
    assert not missing
    assert "LDL" not in sass


def test_the_main_loop_is_in_one_place():
    # Whatever waits for a stage, or begins or awaits products, is in a device header.
    steps = r"wgmma_(fence|commit|wait)|\.wait\(|arrive|copy_(wait|commit)|ldmatrix|tensor_load"
    for file in TEMPLATES.glob("*matmul*.j2"):
        assert not re.search(steps, file.read_text()), file.name
        assert len(file.read_text().splitlines()) <= 120
    for loop in ("multiply_stages(", "load_stages(", "multiply_steps(", "multiply_micro("):
        assert len([t for t in device_headers().values() if loop in t]) == 1


@pytest.mark.parametrize("name", ["mma_01_0", "wgmma_01", "split_k_8"])
def test_the_layout_of_shared_memory_is_the_plan_s(name: str):
    kernel, given, wanted = CASES[name]
    gpu = target.find("sm_90a" if kernel != "mma" else "sm_80")
    fusion = product(256, 512, **{"k": 512, **given})
    plan = find_matmul().build(fusion, gpu, {"kernel": kernel, **wanted})
    (launch,) = plan.kernels
    spelled = members_of(text(name))
    assert {n: spelled[n] for n, _, _ in launch.layout.constants} == {
        n: v for n, v, _ in launch.layout.constants
    }
    places = {n: v for n, v, _ in launch.layout.constants}
    barriers = 8 * plan.parameters.stages
    ends = {
        "mma": plan.parameters.stages * places["kStageBytes"],
        "wgmma": places.get("kEmpty", 0) + barriers,
        "split_k": places.get("kTicket", 0) + 16,
    }
    assert launch.shared_bytes == ends[kernel]
    if kernel == "split_k":
        ring = plan.parameters.stages * places["kStageBytes"]
        assert ring >= 128 * places["kSumsPitch"] * 4  # the sums lie over it
        assert [places[n] for n in ("kFull", "kEmpty", "kTicket")] == [
            ring, ring + barriers, ring + 2 * barriers
        ]  # fmt: skip


def position(whole: str, *needles: str) -> list[int]:
    """Return where the needles first follow each other in `whole`; fail when one is missing."""
    found = [0]
    for needle in needles:
        found.append(whole.index(needle, found[-1]))
    return found[1:]


def test_turns_follow_the_rules_of_the_bulk_reduction():
    header = device_headers()["matmul_semaphores.cuh"]
    position(
        header[header.index("void semaphore_release(") :],
        "store_quad(&owned[f * Config::kMultipliers + threadIdx.x], share[f]);",
        "fence_proxy_async_shared_cta();",
        "named_barrier_sync",
        "spin_until(semaphore, turn)",
        "fence_proxy_async();",
        "add_sums(",
        "commit_group();",
        "wait_group<0>();",
        "store_release(semaphore, turn + 1)",
        "void semaphore_wait(",
        "spin_until(semaphore, turn)",
        "*semaphore = 0;",
        "named_barrier_sync",
        "fetch_quad(",
    )
    assert "wait_group_read" not in header
    assert "blockIdx" not in text("split_k_8")  # work is drawn by ticket
