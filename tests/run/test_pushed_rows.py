"""Row kernels that add their rows over ranks themselves, on the CPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cuda_on_cpu import FIRST, Order, build, launch
from guards import Guarded

from fusec import target
from fusec.codegen.dispatch import kernel_source
from fusec.driver import Compilation
from fusec.ir.dim import dim
from fusec.ir.dtype import BF16, DTYPES, F32, DType
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.schedule.host.pushed_rows import pairs_of, pushed_kernel
from fusec.schedule.plan import PushedKernel, TensorArgument
from fusec.schedule.registry import find_scheduler

GPU = target.find("sm_90a")
ORDERS = [Order(seed, backwards=bool(seed % 2)) for seed in range(4)]
FLAGS, PITCH = 256, 64


def norm(ranks: int, rows: int, columns: int, dtype: str) -> str:
    """Return a fusion whose sum over ranks a norm reads, with its residual."""
    return f"""fusion: norm
mesh: [{ranks}]
dims: {{R: {ranks}, B: {rows}, H: {columns}}}
inputs:
  x: {{type: "{dtype}[R, B, H]", shard: {{0: mesh}}}}
  residual: {dtype}[B, H]
ops:
  - r = add(sum(x, dims=[0]), residual)
  - f = cast(r, f32)
  - y = mul(f, rsqrt(add(mean(mul(f, f), dims=[1], keepdim=true), 1e-5)))
  - s = cast(r, {dtype})
outputs: [y, s]
"""


def pushed(ranks: int, rows: int, columns: int, dtype: str) -> tuple[PushedKernel, str]:
    """Return the kernel of a norm that adds its rows, and its text."""
    options = CompileOptions(without=("pushed_rows",))
    program = Compilation(read_text(norm(ranks, rows, columns, dtype)), options)
    ((before, number),) = pairs_of(program.segmented)
    exchange, segment = (program.segmented.segments[k] for k in (before, number))
    settings = {"threads_x": 32, "threads_y": 1, "tile_rows": 0}
    plan = find_scheduler(segment.scheduler).build(segment.fusion, GPU, settings)
    kernel = pushed_kernel(exchange, plan, GPU)
    assert kernel is not None, plan.parameters
    source = kernel_source(plan, kernel)
    assert isinstance(source.kernel, PushedKernel)
    return source.kernel, source.text


def of_ranks(text: str, name: str, ranks: int, rows: int, columns: int, blocks: int) -> str:
    """Return a kernel that all ranks run as blocks of one launch; tensors lie one after another."""
    element = re.search(r"const (\S+)\* __restrict__ \w+,", text)
    assert element is not None
    text = re.sub(
        rf'extern "C" __global__ void __launch_bounds__\([^)]*\)\s*{name}\(',
        "__device__ void of_rank(int block, int blocks, ",
        text,
    )
    text = text.replace("__grid_constant__ ", "").replace("__restrict__", "")
    text = re.sub(r"\bblockIdx\.x\b", "block", text).replace("gridDim.x", "blocks")
    size, capacity = rows * columns, 1 << (rows * columns * 4 - 1).bit_length()
    data = FLAGS + 2 * ranks * PITCH
    return f"""{text}
extern "C" __global__ void kernel({element[1]}* x, {element[1]}* residual, {element[1]}* s,
                                  float* y, int* boxes) {{
  const int rank = blockIdx.x / {blocks};
  fusec::PushSum how{{}};
  for (int each = 0; each < {ranks}; ++each)
    how.boxes[each] = reinterpret_cast<fusec::u64>(boxes) + each * {box(ranks, rows, columns)};
  how.capacity = {capacity}, how.count = {size}, how.rank = rank, how.ranks = {ranks};
  how.flags = {FLAGS}, how.flag_pitch = {PITCH}, how.data = {data}, how.chunk_steps = 1;
  of_rank(blockIdx.x % {blocks}, {blocks}, x + rank * {size}, residual, s + rank * {size},
          y + rank * {size}, how);
}}
"""


def box(ranks: int, rows: int, columns: int) -> int:
    """Return the bytes of a mailbox."""
    capacity = 1 << (rows * columns * 4 - 1).bit_length()
    return FLAGS + 2 * ranks * PITCH + 2 * (ranks - 1) * capacity


def added(
    shape: tuple[int, int, int], blocks: int, folder: Path, orders: Sequence[Order] = (FIRST,),
    edit: Callable[[str], str] = str, turns: int = 3, dtype: DType = BF16,
) -> None:  # fmt: skip
    """Assert that all ranks have the sum, its residual and its norm, turn after turn."""
    ranks, rows, columns = shape
    planned, text = pushed(*shape, dtype.name)
    text = of_ranks(text, planned.name, ranks, rows, columns, blocks)
    names = ("x", "residual", "s")
    arguments = (
        *(TensorArgument(n, dtype, written=True, restrict=False) for n in names),
        TensorArgument("y", F32, written=True, restrict=False),
        TensorArgument("boxes", DTYPES["i32"], written=True, restrict=False),
    )
    grid = dim(ranks * blocks), dim(1), dim(1)
    kernel = replace(
        planned, name="kernel", grid=grid, arguments=arguments, cluster=(ranks * blocks, 1, 1)
    )
    function = build(kernel, text, folder, edit)
    for order in orders:
        memory, draw = Guarded(), np.random.default_rng(0)
        memory.add("x", np.zeros((ranks, rows, columns), dtype.numpy))
        memory.add("residual", np.zeros((rows, columns), dtype.numpy))
        memory.add("s", np.zeros((ranks, rows, columns), dtype.numpy))
        memory.add("y", np.zeros((ranks, rows, columns), np.float32))
        memory.add("boxes", np.zeros(ranks * box(ranks, rows, columns) // 4, np.int32))
        for _ in range(turns):
            x = draw.standard_normal((ranks, rows, columns)).astype(dtype.numpy)
            residual = draw.standard_normal((rows, columns)).astype(dtype.numpy)
            memory["x"][...] = x.reshape(-1)
            memory["residual"][...] = residual.reshape(-1)
            launch(function, memory, {}, {}, order)
            check(memory, x, residual)


def check(memory: Guarded, x: np.ndarray, residual: np.ndarray) -> None:
    """Assert what ranks have: the residual added to the sum to the bit, and its norm."""
    total = np.zeros(residual.shape, np.float32)
    for part in x.astype(np.float32):
        total += part
    dtype = residual.dtype
    r = (total.astype(dtype).astype(np.float32) + residual.astype(np.float32)).astype(dtype)
    f = r.astype(np.float64)
    y = f / np.sqrt((f * f).mean(1, keepdims=True) + 1e-5)
    for rank in range(len(x)):
        found = memory["s"].reshape(x.shape)[rank]
        np.testing.assert_array_equal(found, r)
        np.testing.assert_allclose(memory["y"].reshape(x.shape)[rank], y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("ranks", "rows", "columns", "blocks"),
    [(3, 5, 256, 2), (4, 3, 512, 3), (8, 2, 512, 1), (4, 7, 264, 1), (3, 2, 32, 2)],
)
def test_all_ranks_have_rows_of_the_sum(
    ranks: int, rows: int, columns: int, blocks: int, tmp_path: Path
) -> None:
    """In order of rank index, rounded once; of rows that blocks take in one turn or several."""
    added((ranks, rows, columns), blocks, tmp_path, ORDERS)


@pytest.mark.nightly
def test_rows_of_f32(tmp_path: Path) -> None:
    added((3, 4, 128), 2, tmp_path, dtype=F32)


LEFT_OUT = {
    "nobody waits": ("while (load_acquire", "while (false && load_acquire"),
    "parts are waited for too early": ("parts.wait(base + turn + 1)", "parts.wait(base + turn)"),
    "results are waited for too early": (
        "results.wait(base + turn + 1)", "results.wait(base + turn)",
    ),
    "results have the flags of parts": ("results(how, block, 1)", "results(how, block, 0)"),
    "flags are written too early": (
        "__syncthreads();\n    if (signals) store", "if (signals) store",
    ),
    "one thread alone has waited": (
        "guard.wait();\n    }\n    __syncthreads();", "guard.wait();\n    }",
    ),
    "the turn stays": ("== blocks - 1) turns[0] = turn + 1;", "== blocks - 1) {}"),
    "parts lie among the sums": ("* (kRowVectors + place * part)", "* (place * part)"),
    "parts of all ranks lie in one place": ("kRowVectors + place * part", "kRowVectors"),
    "a part is pushed to nobody": ("hop < ranks; ++hop) {\n      const int owner",
                                   "hop < ranks - 1; ++hop) {\n      const int owner"),
    "a result is pushed to all but one": ("hop < ranks; ++hop) totals_of",
                                          "hop < ranks - 1; ++hop) totals_of"),
    "a row is added that was not pushed": ("push(1);", ""),
    "the last vectors are nobody's": ("(kRowVectors + how.ranks - 1) / how.ranks",
                                      "kRowVectors / how.ranks"),
    "a row of another turn is read": ("return block + turn * blocks", "return block + turn"),
    "rows are read before they come": ("sums.receive(turn);\n", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_OUT)
def test_the_emulator_finds_rows_that_do_not_wait(name: str, tmp_path: Path) -> None:
    before, after = LEFT_OUT[name]
    edited: list[str] = []

    def edit(text: str) -> str:
        edited.extend([text] if before in text else [])
        return text.replace(before, after)

    with pytest.raises(AssertionError):
        added((3, 5, 272), 2, tmp_path, ORDERS, edit)
    assert edited, "nothing was edited"
