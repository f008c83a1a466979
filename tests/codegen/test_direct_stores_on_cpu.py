"""What GEMM epilogues store past shared memory, on the host: no thread stores past the result."""

from __future__ import annotations

from pathlib import Path

import pytest
from nightly import mostly_nightly
from segments_on_cpu import kernels_of, planned, wrong
from test_regressions import FOLDER

from fusec.codegen.matmul.view import PersistentView
from fusec.codegen.matmul.views import view
from fusec.kernel.lowering.nest import StoreKind

STAGED = "kernel: wgmma, tile_m: 128, epilogue_smem: true"
STORES = {
    "transposed": (("y = permute(add(c, r), [1, 0])",), "y"),
    "second transposed": (("y = add(c, r)", "t = permute(relu(y), [1, 0])"), "y, t"),
    "flipped": (("y = add(c, r)", "f = flip(y, [1])"), "y, f"),
    "rows flipped": (("f = flip(add(c, r), [0])",), "f"),
    "sliced": (("y = add(c, r)", "f = slice(y, [3, 5], [120, 60])"), "y, f"),
    "padded": (("y = pad(add(c, r), [1, 2, 0, 3])",), "y"),
    "f8": (("y = add(c, r)", "z = cast(y, f8e4m3)"), "y, z"),
    "row sums": (("s = sum(cast(add(c, r), f32), dims=[1])", "t = permute(c, [1, 0])"), "s, t"),
    "column maxima": (("s = max(add(c, r), dims=[0])", "t = flip(c, [1])"), "c, s, t"),
}
"""Operations on c = a @ b^T and a residual r, and outputs, that are stored element by element."""


def gemm(graph: tuple[tuple[str, ...], str], m: int, n: int, schedule: str = STAGED) -> str:
    """Return the text of a fusion of c = a @ b^T and r, bf16[m, n]."""
    lines, outputs = graph
    body = "\n".join(f"  - {line}" for line in ("c = linear(a, b)", *lines))
    text = (
        f"fusion: gemm\ninputs:\n  a: bf16[{m}, 64]\n  b: bf16[{n}, 64]\n  r: bf16[{m}, {n}]\n"
        f"ops:\n{body}\noutputs: [{outputs}]\n"
    )
    return f"{text}schedules:\n  matmul: {{{schedule}}}\n" if schedule else text


@pytest.mark.parametrize(("m", "n"), mostly_nightly([(127, 72), (131, 65)], 2))
@pytest.mark.parametrize("name", STORES)
def test_stores_by_element(name: str, m: int, n: int, tmp_path: Path) -> None:
    schedule = "" if "s = " in "".join(STORES[name][0]) else STAGED
    assert wrong(gemm(STORES[name], m, n, schedule), tmp_path) == ""


@pytest.mark.parametrize(("m", "n"), mostly_nightly([(1, 2), (2, 1), (1, 1)], 3))
@pytest.mark.nightly
def test_clusters_whose_last_tile_is_none(m: int, n: int, tmp_path: Path) -> None:
    """M and N are multiples of the tile, not of the cluster's two."""
    schedule = f"{STAGED}, tile_n: 128, cluster_m: {m}, cluster_n: {n}"
    assert wrong(gemm(STORES["transposed"], 384, 384, schedule), tmp_path) == ""


def kinds(m: int, n: int, schedule: str) -> tuple[bool, tuple[StoreKind, ...]]:
    """Return whether an epilogue with a direct and a staged output is guarded, and its stores."""
    program = planned(gemm(STORES["second transposed"], m, n, f"{schedule}, tile_n: 128"))
    found = view(program.plans[0], program.plans[0].kernels[0])  # pyright: ignore[reportArgumentType]
    assert isinstance(found, PersistentView)
    return found.is_guarded, found.epilogue.store_kinds


def test_each_store_is_staged_guarded_or_exact() -> None:
    pair = f"{STAGED}, cluster_m: 2"
    assert kinds(256, 256, STAGED) == (False, (StoreKind.STAGED, StoreKind.EXACT))
    assert kinds(255, 256, STAGED) == (True, (StoreKind.STAGED, StoreKind.GUARDED))
    assert kinds(256, 264, STAGED) == (True, (StoreKind.STAGED, StoreKind.GUARDED))
    assert kinds(256, 256, pair) == (False, (StoreKind.STAGED, StoreKind.EXACT))
    assert kinds(384, 256, pair) == (True, (StoreKind.STAGED, StoreKind.GUARDED))


@pytest.mark.nightly
def test_an_epilogue_without_its_guard_is_seen(tmp_path: Path) -> None:
    def edit(text: str) -> str:
        return text.replace("if (m < M && n < N) finish(", "finish(")

    assert wrong(gemm(STORES["transposed"], 127, 72), tmp_path, edit=edit) != ""


@pytest.mark.parametrize("dtype", ["bf16", "f32", "f8e4m3"])
@pytest.mark.parametrize(("tile_n", "n"), mostly_nightly([(8, 40), (16, 48), (24, 40)], 3))
def test_tiles_of_few_columns(dtype: str, tile_n: int, n: int, tmp_path: Path) -> None:
    lines = (f"y = cast(add(cast(c, f32), cast(r, f32)), {dtype})",)
    assert wrong(gemm((lines, "y"), 131, n, f"{STAGED}, tile_n: {tile_n}"), tmp_path) == ""


def test_a_warp_that_stores_32_rows_is_seen(tmp_path: Path) -> None:
    def edit(text: str) -> str:
        return text.replace("if (first >= 16) return;", "")

    text = gemm((("y = relu(c)",), "y"), 131, 40, f"{STAGED}, tile_n: 8")
    assert wrong(text, tmp_path, edit=edit) != ""


@pytest.mark.parametrize("path", sorted(FOLDER.glob("gemm_*.yaml")), ids=lambda p: p.stem)
def test_a_gemm_that_was_wrong(path: Path, tmp_path: Path) -> None:
    assert wrong(path.read_text(), tmp_path, name=path.name) == ""


@pytest.mark.nightly
def test_a_backward_that_was_wrong(tmp_path: Path) -> None:
    text = (FOLDER / "attention_backward_of_17_queries.yaml").read_text().replace(" 64]", " 40]")
    assert "attention_backward" not in kernels_of(planned(text))
    assert wrong(text, tmp_path) == ""
