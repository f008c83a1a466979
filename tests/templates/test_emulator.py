"""What the emulator notices: guard zones, hangs, races, asynchronous work not waited for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import Order, build, launch
from guards import Guarded
from paths import TESTS

from fusec.ir.dim import dim
from fusec.ir.dtype import BF16, F32, I32, U32
from fusec.schedule.plan import Kernel, TensorArgument, TensorMapArgument

ORDERS = [Order(seed, backwards=seed % 2 == 1) for seed in range(6)]
DTYPES = {"float32": F32, "int32": I32, "uint32": U32, "uint16": BF16}


@dataclass
class Raw:
    """A kernel `kernel` written by hand, with pointers to buffers as its parameters."""

    text: str
    buffers: dict[str, np.ndarray]
    grid: int = 1
    block: int = 64
    shared_bytes: int = 0
    cluster: int = 1
    maps: tuple[TensorMapArgument, ...] = ()
    memory: Guarded = field(default_factory=Guarded)

    def run(
        self, folder: Path, order: Order = ORDERS[0], edit: Callable[[str], str] = str
    ) -> Guarded:
        """Return the buffers after a launch."""
        self.memory = Guarded()
        for name, content in self.buffers.items():
            self.memory.add(name, content)
        pointers = [
            TensorArgument(n, DTYPES[b.dtype.name], written=True, restrict=False)
            for n, b in self.buffers.items()
        ]
        kernel = Kernel(
            name="kernel",
            template="",
            grid=(dim(self.grid), dim(1), dim(1)),
            block=(self.block, 1, 1),
            arguments=(*self.maps, *pointers),
            shared_bytes=self.shared_bytes,
            cluster=(self.cluster, 1, 1),
        )
        function = build(kernel, self.text, folder, edit)
        launch(function, self.memory, {}, {}, order)
        return self.memory


def fails(raw: Raw, folder: Path, message: str, order: Order = ORDERS[0]) -> None:
    """Assert that a launch fails with a message."""
    with pytest.raises(AssertionError, match=message):
        raw.run(folder, order)


def zeros(count: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(count, dtype)


def numbers(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.float32)


def right_in_all_orders(
    raw: Raw, expected: dict[str, Any], folder: Path, edit: Callable[[str], str] = str
) -> None:
    """Assert what buffers hold after a launch, in all orders."""
    for order in [*ORDERS, Order(at_once=True)]:
        found = raw.run(folder, order, edit)
        for name, values in expected.items():
            assert np.array_equal(found[name], values), order


# Bounds.


@pytest.mark.parametrize("place", [64, 100, -1, -100])
def test_writes_outside_of_a_buffer_are_seen(place: int, tmp_path: Path) -> None:
    text = f"""extern "C" __global__ void kernel(float* y) {{
      y[threadIdx.x] = 0.0f;
      if (threadIdx.x == 0) y[{place}] = 1.0f;
    }}"""
    fails(Raw(text, {"y": zeros(64)}), tmp_path, rf"`y`: wrote outside, at byte {4 * place} of 256")


@pytest.mark.parametrize("place", [64, -1])
@pytest.mark.parametrize("read", ["y[{}]", "__ldg(y + {})"])
def test_reads_outside_of_a_buffer_are_seen(read: str, place: int, tmp_path: Path) -> None:
    text = f"""extern "C" __global__ void kernel(float* y) {{
      if ({read.format(place)}) y[threadIdx.x] = 1.0f;
    }}"""
    fails(Raw(text, {"y": zeros(64)}), tmp_path, "reads outside of a buffer")


@pytest.mark.parametrize("place", [100, -1])
def test_reads_outside_of_shared_memory_are_seen(place: int, tmp_path: Path) -> None:
    text = f"""extern "C" __global__ void kernel(float* y) {{
      __shared__ char tile[100];
      const char* at = tile;
      if (at[{place}] == 1) y[threadIdx.x] = 1.0f;
    }}"""
    fails(Raw(text, {"y": zeros(64)}), tmp_path, "reads outside of shared memory")


def test_a_word_beyond_its_own_variable_is_seen(tmp_path: Path) -> None:
    text = """extern "C" __global__ void kernel(int* n, int* y) {
      unsigned pair[2];
      for (int i = 0; i <= *n; ++i) reinterpret_cast<unsigned long long*>(&pair)[i] = 1;
      y[threadIdx.x] = pair[1];
    }"""
    y = zeros(64, np.int32)
    fails(Raw(text, {"n": y[:1] + 1, "y": y}), tmp_path, "an index beyond an array")
    assert not Raw(text, {"n": y[:1], "y": y}).run(tmp_path)["y"].any()


def test_registers_start_with_garbage(tmp_path: Path) -> None:
    text = """extern "C" __global__ void kernel(int* y) {
      int sum;
      if (threadIdx.x == 100) sum = 1;
      y[threadIdx.x] = sum;
    }"""
    assert Raw(text, {"y": zeros(64, np.int32)}).run(tmp_path)["y"].all()


@pytest.mark.parametrize(
    ("declaration", "place"),
    [
        ("extern __shared__ __align__(16) char tile[];", 256),
        ("extern __shared__ __align__(16) char tile[];", -1),
        ("__shared__ char tile[100];", 100),
        ("__shared__ char tile[100];", -1),
    ],
)
def test_writes_outside_of_shared_memory_are_seen(
    declaration: str, place: int, tmp_path: Path
) -> None:
    text = f"""extern "C" __global__ void kernel(float* y) {{
      {declaration}
      y[threadIdx.x] = threadIdx.x;
      char* at = tile;
      if (threadIdx.x == 0) at[{place}] = 1;
    }}"""
    fails(Raw(text, {"y": zeros(64)}, shared_bytes=256), tmp_path, "wrote (beyond|below).* shared")


@pytest.mark.parametrize("place", [4, -1])
def test_elements_outside_of_a_vector_are_seen(place: int, tmp_path: Path) -> None:
    text = f"""#include "vector.cuh"
    extern "C" __global__ void kernel(float* y) {{
      fusec::Vec<float, 4> own = {{}};
      const int last = threadIdx.x == 63 ? {place} : 3;
      own[last] = 1.0f;
      y[threadIdx.x] = own[3];
    }}"""
    fails(Raw(text, {"y": zeros(64)}), tmp_path, f"element {place} of a vector of 4")


# Hangs.


def test_a_barrier_that_some_do_not_reach_is_a_hang(tmp_path: Path) -> None:
    text = """extern "C" __global__ void kernel(float* y) {
      if (threadIdx.x < 48) __syncthreads();
      y[threadIdx.x] = 1.0f;
    }"""
    fails(
        Raw(text, {"y": zeros(64)}),
        tmp_path,
        "hangs:\n.*block 0, 0, 0: 48 of 64 threads, from 0 on, wait for its block's barrier",
    )


def test_a_flag_that_nobody_raises_is_a_hang(tmp_path: Path) -> None:
    text = """#include "grid.cuh"
    extern "C" __global__ void kernel(fusec::u32* flag) {
      fusec::wait_turn(flag, blockIdx.x == 0 ? 2 : 1);
      fusec::release_turn(flag, 3);
    }"""
    raw = Raw(text, {"flag": zeros(1, np.uint32)}, grid=2)
    fails(raw, tmp_path, "1 of 64 threads, from 0 on, wait for a flag that holds 0")


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_blocks_that_wait_for_each_other_are_no_hang(order: Order, tmp_path: Path) -> None:
    text = (TESTS / "device" / "gpu" / "grid.cu").read_text()
    text = text.replace("void turns(", "void kernel(")
    buffers = {
        n: zeros(c, np.uint32) for n, c in (("c", 3), ("trace", 8), ("parts", 320), ("t", 1))
    }
    found = Raw(text, buffers, grid=5).run(tmp_path, order)
    assert found["trace"].tolist()[:6] == [5, 0, 1, 2, 3, 4]
    assert found["t"][0] == 320 * 321 // 2
    assert not found["c"].any()


# Races: each must be seen in one of a few orders, and the kernel without it in none.

REDUCED = """#include "reduce.cuh"
extern "C" __global__ void kernel(float* x, float* y) {
  for (int k = 0; k < 4; ++k) {
    const float sum = fusec::block_reduce_rows<fusec::Sum<float>, 128, 1>(x[128 * k + threadIdx.x]);
    y[128 * k + threadIdx.x] = sum;
  }
}"""
LAST = """#include "grid.cuh"
extern "C" __global__ void kernel(fusec::u32* counter, float* parts, float* y) {
  parts[blockIdx.x * 128 + threadIdx.x] = 1.0f;
  if (!fusec::last_block(counter, gridDim.x)) return;
  float sum = 0.0f;
  for (unsigned k = 0; k < gridDim.x * 128; ++k) sum += parts[k];
  y[threadIdx.x] += sum;
}"""
COPIED = """#include "async_copy.cuh"
extern "C" __global__ void kernel(float* x, float* y) {
  __shared__ __align__(16) float tile[2][256];
  const int place = threadIdx.x * 4;
  for (int k = 0; k < 2; ++k) {
    fusec::copy_async_16(tile[k] + place, x + 256 * k + place);
    fusec::copy_commit();
  }
  fusec::copy_wait<1>();
  __syncthreads();
  y[threadIdx.x] = tile[0][threadIdx.x * 3];
  fusec::copy_wait<0>();
  __syncthreads();
  y[threadIdx.x + 64] = tile[1][threadIdx.x * 3];
}"""
LOADED = """#include "tma.cuh"
extern "C" __global__ void kernel(float* x, float* y) {
  __shared__ __align__(128) float ring[2][64];
  __shared__ fusec::Barrier full[2];
  __shared__ fusec::Barrier empty[2];
  if (threadIdx.x == 0) {
    for (int s = 0; s < 2; ++s) {
      full[s].init(1);
      empty[s].init(64);
    }
    fusec::fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 64) {
    for (int k = 0; k < 6; ++k) {
      empty[k % 2].wait(k / 2 % 2 ^ 1);
      full[k % 2].arrive_expect_tx(256);
      fusec::bulk_load(ring[k % 2], x + 64 * k, 256, &full[k % 2]);
    }
  }
  if (threadIdx.x >= 64) return;
  for (int k = 0; k < 6; ++k) {
    full[k % 2].wait(k / 2 % 2);
    y[64 * k + threadIdx.x] = ring[k % 2][threadIdx.x ^ 1];
    empty[k % 2].arrive();
  }
}"""
STORED = """#include "bulk_reduce.cuh"
#include "grid.cuh"
extern "C" __global__ void kernel(fusec::u32* turn, float* y, float* z) {
  __shared__ __align__(128) float tile[128];
  tile[threadIdx.x] = 1.0f;
  fusec::fence_proxy_async_shared_cta();
  __syncthreads();
  if (threadIdx.x == 0) {
    fusec::spin_until(turn, blockIdx.x);
    fusec::fence_proxy_async();
    fusec::bulk_reduce_add(y, tile, 512);
    fusec::commit_group();
    fusec::wait_group_read<0>();
    fusec::wait_group<0>();
    z[blockIdx.x] = y[5];
    fusec::store_release(turn, blockIdx.x + 1);
  }
}"""
CLUSTER = """#include "matmul_semaphores.cuh"
extern "C" __global__ void kernel(float* y) {
  __shared__ fusec::u32 own[64];
  own[threadIdx.x] = fusec::cluster_rank() + 1;
  fusec::cluster_sync();
  float sum = 0.0f;
  for (int peer = 0; peer < 4; ++peer) sum += fusec::cluster_load(&own[threadIdx.x], peer);
  y[blockIdx.x * 64 + threadIdx.x] = sum;
  fusec::cluster_sync();
}"""
TOTALS = np.repeat(numbers(512).reshape(4, 128).sum(1), 128)
RAW = {
    "reduced": (Raw(REDUCED, {"x": numbers(512), "y": zeros(512)}, block=128), {"y": TOTALS}),
    "last": (
        Raw(LAST, {"c": zeros(1, np.uint32), "p": zeros(384), "y": zeros(128)}, grid=3, block=128),
        {"y": np.full(128, 384.0), "c": [0]},
    ),
    "copied": (
        Raw(COPIED, {"x": numbers(512), "y": zeros(128)}),
        {"y": [*range(0, 192, 3), *range(256, 448, 3)]},
    ),
    "loaded": (
        Raw(LOADED, {"x": numbers(384), "y": zeros(384)}, block=96),
        {"y": np.arange(384) ^ 1},
    ),
    "stored": (
        Raw(STORED, {"turn": zeros(1, np.uint32), "y": zeros(128), "z": zeros(3)}, 3, 128),
        {"y": np.full(128, 3.0), "z": [1.0, 2.0, 3.0]},
    ),
    "cluster": (Raw(CLUSTER, {"y": zeros(512)}, grid=8, cluster=4), {"y": np.full(512, 10.0)}),
}  # fmt: skip
FENCE = "fusec::fence_proxy_async_shared_cta();"
MUTANTS = [
    ("reduced", "(partials[row]);\n    __syncthreads();", "(partials[row]);"),
    ("reduced", "__syncthreads();\n    value = combine", "value = combine"),
    ("last", "shared_last;\n  __syncthreads();\n  if", "shared_last;\n  if"),
    ("last", "count - 1;\n  __syncthreads();", "count - 1;"),
    ("copied", "fusec::copy_wait<1>();", ""),
    ("copied", "fusec::copy_wait<0>();", ""),
    ("copied", "fusec::copy_wait<1>();\n  __syncthreads();", "fusec::copy_wait<1>();"),
    ("loaded", "k / 2 % 2);\n    y", "k / 2 % 2 ^ 1);\n    y"),
    ("loaded", "k / 2 % 2 ^ 1", "0"),
    ("loaded", "empty[k % 2].wait(k / 2 % 2 ^ 1);", ""),
    ("loaded", "empty[k % 2].arrive();", ""),
    ("loaded", "full[k % 2].wait(k / 2 % 2);", ""),
    ("loaded", "arrive_expect_tx(256)", "arrive_expect_tx(240)"),
    ("loaded", "arrive_expect_tx(256)", "arrive()"),
    ("loaded", "empty[s].init(64)", "empty[s].init(63)"),
    ("loaded", "fusec::fence_barrier_init();", ""),
    ("stored", FENCE, ""),
    ("stored", "fusec::fence_proxy_async();", ""),
    ("stored", "fusec::commit_group();", ""),
    ("stored", "fusec::wait_group<0>();", ""),
    ("stored", "fusec::wait_group_read<0>();\n    fusec::wait_group<0>();", ""),
    ("stored", "fusec::store_release(turn, blockIdx.x + 1);", ""),
    ("stored", f"{FENCE}\n  __syncthreads();", f"__syncthreads();\n  {FENCE}"),
    ("cluster", "+ 1;\n  fusec::cluster_sync();", "+ 1;"),
    ("cluster", "sum;\n  fusec::cluster_sync();", "sum;"),
]  # fmt: skip


@pytest.mark.parametrize("name", RAW)
def test_kernels_without_races_are_right_in_every_order(name: str, tmp_path: Path) -> None:
    raw, expected = RAW[name]
    right_in_all_orders(raw, expected, tmp_path)


@pytest.mark.parametrize(("name", "old", "new"), MUTANTS)
def test_a_race_is_seen_in_some_order(name: str, old: str, new: str, tmp_path: Path) -> None:
    raw, expected = RAW[name]
    edited: list[bool] = []

    def edit(text: str) -> str:
        edited.append(old in text)
        return text.replace(old, new)

    with pytest.raises(AssertionError, match="seed="):
        right_in_all_orders(raw, expected, tmp_path, edit)
    assert any(edited)


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize(("name", "old", "new"), [MUTANTS[i] for i in (1, 2, 3)])
def test_what_nothing_orders_before_a_read_is_seen_in_every_order(
    name: str, old: str, new: str, order: Order, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match="without a barrier or a release since"):
        RAW[name][0].run(tmp_path, order, lambda text: text.replace(old, new))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("y[1ll << 50] = 1.0f;", "touched memory that nobody has"),
        ("y[0] = 7 / static_cast<int>(y[1]);", "an integer divided by zero"),
        (
            "float own[4] = {}; for (int i = 0; i <= blockDim.x / 16; ++i) own[i] += y[i]; "
            "y[0] = own[threadIdx.x % 4];",
            "an index beyond an array",
        ),
    ],
)
def test_what_would_end_the_process_ends_the_launch(
    statement: str, message: str, tmp_path: Path
) -> None:
    text = f'extern "C" __global__ void kernel(float* y) {{ {statement} }}'
    fails(Raw(text, {"y": zeros(64)}), tmp_path, message)
    text = 'extern "C" __global__ void kernel(float* y) { y[threadIdx.x] = 1.0f; }'
    (tmp_path / "again").mkdir()
    assert (Raw(text, {"y": zeros(64)}).run(tmp_path / "again")["y"] == 1.0).all()
