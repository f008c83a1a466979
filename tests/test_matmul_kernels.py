"""The matrix product templates, rendered from views written by hand and compiled without a GPU."""

from __future__ import annotations

import itertools
import re
import subprocess
from pathlib import Path

import jinja2
import jinja2.meta
import pytest

from fusec.codegen.matmul_view import (
    EpilogueView,
    MatmulView,
    MmaView,
    OperandView,
    SimtView,
    SplitKView,
    WgmmaView,
)
from fusec.run.headers import headers_for
from fusec.run.nvrtc import Compiled, compile_cuda

nvrtc = pytest.importorskip("cuda.bindings.nvrtc")

TEMPLATES = Path(__file__).parents[1] / "fusec" / "templates"
STRIDES = tuple(
    f"const Index {name}"
    for name in (
        "a_stride_batch",
        "a_stride_m",
        "a_stride_k",
        "b_stride_batch",
        "b_stride_k",
        "b_stride_n",
    )
)
SIZES = ("const int batches", "const Index M", "const Index N", "const Index K")
OFFSETS = (
    "const Index a_offset = tile.batch * a_stride_batch;",
    "const Index b_offset = tile.batch * b_stride_batch;",
)
HEAD = {
    "purpose": "A matrix product with a bias and an activation.",
    "source": "",
    "equations": ("y = relu(linear(a, b, bias))",),
    "schedule": "Schedule: by hand.",
    "constants": (),
    "index_type": "fusec::i64",
}


def environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def epilogue(c_type: str, acc: str, width: int, bias: bool) -> EpilogueView:
    """Return relu(acc + bias[n]) rounded to `c_type`, or only the rounding."""
    row = "y + (batch * M + m) * N + n"
    loads = (f"fusec::Vec<{c_type}, kWidth> y_v;",)
    if bias:
        loads += ("const auto bias_v = fusec::load_readonly<kWidth>(bias + n);",)
        statements = (
            f"const {acc} shifted = acc[i] + fusec::convert<{acc}>(bias_v[i]);",
            f"y_v[i] = fusec::convert<{c_type}>(shifted > 0 ? shifted : 0);",
        )
    else:
        statements = (f"y_v[i] = fusec::convert<{c_type}>(acc[i]);",)
    return EpilogueView(width, loads, statements, (f"fusec::store({row}, y_v);",))


def pointers(c_type: str, bias: bool) -> tuple[str, ...]:
    extra = (f"const {c_type}* __restrict__ bias",) if bias else ()
    return (*extra, f"{c_type}* __restrict__ y")


def simt_view(
    c_type: str = "float", acc: str = "float", width: int = 1, bias: bool = False
) -> SimtView:
    operands = (f"const {c_type}* __restrict__ a", f"const {c_type}* __restrict__ b")
    return SimtView(
        name="matmul_simt",
        **HEAD,
        headers=("matmul_tile.cuh", "types.cuh", "vector.cuh", "wrap.cuh"),
        parameters=(*operands, *pointers(c_type, bias), *SIZES, *STRIDES),
        offsets=OFFSETS,
        a=OperandView("a", True),
        b=OperandView("b", False),
        epilogue=epilogue(c_type, acc, width, bias),
        tile_n=64,
        acc_type=acc,
        tile_m=64,
        tile_k=16,
    )


def mma_view(
    c_type: str = "fusec::bf16",
    a: tuple[bool, bool] = (True, True),
    b: tuple[bool, bool] = (True, True),
    width: int = 2,
    bias: bool = True,
) -> MmaView:
    operands = (f"const {c_type}* __restrict__ a", f"const {c_type}* __restrict__ b")
    return MmaView(
        name="matmul_mma",
        **HEAD,
        headers=("matmul_fill.cuh", "matmul_tile.cuh", "mma.cuh", "types.cuh", "vector.cuh"),
        parameters=(*operands, *pointers(c_type, bias), *SIZES, *STRIDES),
        offsets=OFFSETS,
        a=OperandView("a", *a),
        b=OperandView("b", *b),
        epilogue=epilogue(c_type, "float", width, bias),
        tile_n=128,
        operand_type=c_type,
        tile_m=128,
        tile_k=32,
        stages=3,
        warp_m=64,
        warp_n=32,
    )


def wgmma_view(
    c_type: str = "fusec::bf16",
    a: bool = True,
    b: bool = True,
    tile_n: int = 256,
    width: int = 2,
    bias: bool = True,
) -> WgmmaView:
    maps = (
        "const __grid_constant__ fusec::TensorMap a_map",
        "const __grid_constant__ fusec::TensorMap b_map",
    )
    return WgmmaView(
        name="matmul_wgmma",
        **HEAD,
        headers=("matmul_hopper.cuh", "matmul_tile.cuh", "types.cuh", "vector.cuh"),
        parameters=(*maps, *pointers(c_type, bias), *SIZES),
        offsets=(),
        a=OperandView("a", a, True, "a_map", "tile.batch"),
        b=OperandView("b", b, True, "b_map", "tile.batch"),
        epilogue=epilogue(c_type, "float", width, bias),
        tile_n=tile_n,
        operand_type=c_type,
        stages=4 if tile_n == 256 else 6,
    )


def split_k_view(cluster: int = 8, tile_n: int = 128, **options: object) -> SplitKView:
    plain = wgmma_view(tile_n=tile_n, **options)  # pyright: ignore[reportArgumentType]
    fields = {name: getattr(plain, name) for name in WgmmaView.__dataclass_fields__}
    fields["name"] = "matmul_split_k"
    fields["headers"] = (
        "bulk_reduce.cuh",
        "grid.cuh",
        "matmul_hopper.cuh",
        "matmul_tile.cuh",
        "matmul_turns.cuh",
        "types.cuh",
        "vector.cuh",
    )
    fields["stages"] = 4 if tile_n == 128 else 2
    fields["parameters"] = (
        *plain.parameters,
        "const int splits",
        "float* partials",
        "fusec::u32* turns",
        "fusec::u32* tickets",
    )
    return SplitKView(
        **fields, cluster=cluster, tickets="tickets", turns="turns", partials="partials"
    )


def render(view: MatmulView) -> str:
    return environment().get_template(f"{view.name}.cu.j2").render(k=view)


def compiled(view: MatmulView, arch: str) -> Compiled:
    text = render(view)
    return compile_cuda(text, name="kernel", arch=arch, headers=headers_for(text))


VIEWS = {
    "simt_f32": (simt_view(width=4, bias=True), "sm_80"),
    "simt_f64": (simt_view("double", "double"), "sm_80"),
    "simt_i8": (simt_view("fusec::i8", "int"), "sm_80"),
    "simt_bf16": (simt_view("fusec::bf16", bias=True), "sm_80"),
    **{
        f"mma_{a:d}{b:d}_{vector:d}": (mma_view(a=(a, vector), b=(b, vector)), "sm_80")
        for a, b, vector in itertools.product((True, False), repeat=3)
    },
    "mma_f16": (mma_view("fusec::f16", width=1, bias=False), "sm_80"),
    **{
        f"wgmma_{a:d}{b:d}": (wgmma_view(a=a, b=b), "sm_90a")
        for a, b in itertools.product((True, False), repeat=2)
    },
    "wgmma_128": (wgmma_view("fusec::f16", tile_n=128, width=1), "sm_90a"),
    "split_k_1": (split_k_view(1), "sm_90a"),
    "split_k_8": (split_k_view(8), "sm_90a"),
    "split_k_mn": (split_k_view(4, a=False, b=False, width=1), "sm_90a"),
    "split_k_256": (split_k_view(4, 256), "sm_90a"),
}

INSTRUCTIONS = {
    "matmul_simt": ("FFMA",),
    "matmul_mma": (r"HMMA\.16816\.F32", "LDSM"),
    "matmul_wgmma": ("HGMMA", "UTMALDG", "USETMAXREG"),
    "matmul_split_k": ("HGMMA", "UTMALDG", "UBLKRED.*ADD.F32", "UBLKCP", "UCGABAR"),
}


@pytest.mark.parametrize("name", VIEWS)
def test_compiles_without_spills(name: str):
    view, arch = VIEWS[name]
    built = compiled(view, arch)
    # Among warnings are a serialised wgmma, an injected wait, and an ignored setmaxnreg.
    assert (built.warnings, built.spill_bytes) == ((), 0)


def disassemble(cubin: bytes, folder: Path) -> str:
    tool = next(Path(nvrtc.__file__).parents[2].glob("nvidia/*/bin/nvdisasm"), None)
    if tool is None:
        pytest.skip("nvdisasm is not installed")
    (folder / "kernel.cubin").write_bytes(cubin)
    return subprocess.run(
        [tool, "-c", folder / "kernel.cubin"], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("name", ["simt_f32", "mma_11_1", "wgmma_11", "split_k_8"])
def test_uses_the_intended_instructions(name: str, tmp_path: Path):
    view, arch = VIEWS[name]
    sass = disassemble(compiled(view, arch).cubin, tmp_path)
    missing = [i for i in INSTRUCTIONS[view.name] if not re.search(i, sass)]
    assert not missing
    assert "LDL" not in sass


@pytest.mark.parametrize("entry", INSTRUCTIONS)
def test_reads_only_its_view(entry: str):
    source = (TEMPLATES / f"{entry}.cu.j2").read_text()
    assert jinja2.meta.find_undeclared_variables(environment().parse(source)) == {"k"}


def position(text: str, *needles: str) -> list[int]:
    """Return where the needles first follow each other in `text`; fail when one is missing."""
    found = [0]
    for needle in needles:
        found.append(text.index(needle, found[-1]))
    return found[1:]


def test_turns_follow_the_rules_of_the_bulk_reduction():
    text = render(split_k_view(8))
    start = text.index("if (turn < splits - 1)")
    position(
        text[start:],
        "owned[f * kMultipliers + threadIdx.x] = share[f];",
        "fence_proxy_async_shared_cta();",
        "named_barrier_sync",
        "spin_until(semaphore, turn)",
        "fence_proxy_async();",
        "add_sums(",
        "commit_group();",
        "wait_group<0>();",
        "store_release(semaphore, turn + 1)",
        "return;",
        "spin_until(semaphore, turn)",
        "*semaphore = 0;",
        "named_barrier_sync",
        "__ldcg(",
    )
    assert "wait_group_read" not in text
    assert "blockIdx" not in text  # work is drawn by ticket
