"""The barrier kernel on the CPU: ranks are blocks of one launch, which the emulator interleaves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cuda_on_cpu import FIRST, Order, build, launch
from guards import Guarded

from fusec.ir.dim import dim
from fusec.ir.dtype import DTYPES
from fusec.run.transports import barriers
from fusec.schedule.plan import Kernel, TensorArgument

RANKS, TURNS, LAUNCHES = 3, 4, 2
WORDS = 2 * RANKS
"""Of a barrier of one rank."""
ORDERS = [Order(seed, backwards=bool(seed % 2)) for seed in range(4)]
HEADER = barriers.SOURCE.parents[2] / "templates" / "device" / "barrier.cuh"

TEXT = f"""#include "barrier.cuh"
// Ranks write x, read that of all between two barriers, and write it again in the next turn.
extern "C" __global__ void kernel(int* x, int* y, int* words) {{
  const int rank = blockIdx.x, ranks = {RANKS};
  const bool leads = threadIdx.x == 0;
  fusec::BarrierPeers peers[2] = {{}};
  fusec::BarrierWords* own[2];
  for (int k = 0; k < 2; ++k) {{
    const auto of = [&](int each) {{
      return reinterpret_cast<fusec::BarrierWords*>(words + (each * 2 + k) * {WORDS});
    }};
    own[k] = of(rank);
    for (int each = 0; each < ranks; ++each) {{
      if (each == rank) continue;
      peers[k].arrived[each] = reinterpret_cast<fusec::u64>(&of(each)[rank].arrived);
    }}
  }}
  for (int turn = 0; turn < {TURNS}; ++turn) {{
    if (leads) x[rank] = 10 * x[rank] + rank + 1;
    __syncthreads();
    fusec::arrive_and_wait(own[0], peers[0]);
    __syncthreads();
    if (leads)
      for (int each = 0; each < ranks; ++each) y[(rank * {TURNS} + turn) * ranks + each] = x[each];
    __syncthreads();
    fusec::arrive_and_wait(own[1], peers[1]);
    __syncthreads();
  }}
}}
"""


def meet(folder: Path, order: Order = FIRST, before: str = "", after: str = "") -> None:
    """Assert that each rank reads what all have written in its turn, launch after launch."""
    memory = Guarded()
    memory.add("x", np.zeros(RANKS, np.int32))
    memory.add("y", np.zeros(RANKS * TURNS * RANKS, np.int32))
    memory.add("words", np.zeros(RANKS * 2 * WORDS, np.int32))
    i32 = DTYPES["i32"]
    arguments = tuple(
        TensorArgument(name, i32, written=True, restrict=False) for name in ("x", "y", "words")
    )
    grid = dim(RANKS), dim(1), dim(1)
    # Blocks of a cluster run together, as do those of ranks.
    kernel = Kernel("kernel", "", grid, (RANKS, 1, 1), arguments, cluster=(RANKS, 1, 1))
    function = build(kernel, TEXT, folder, lambda text: text.replace(before, after))
    for number in range(LAUNCHES):
        memory["x"][...] = number
        launch(function, memory, {}, {}, order)
        x = np.full(RANKS, number, np.int32)
        found = memory["y"].reshape(RANKS, TURNS, RANKS)
        for turn in range(TURNS):
            x = 10 * x + np.arange(1, RANKS + 1)
            np.testing.assert_array_equal(found[:, turn], np.tile(x, (RANKS, 1)))


def test_ranks_read_what_all_have_written_in_a_turn(tmp_path: Path) -> None:
    for order in ORDERS:
        meet(tmp_path, order)


INJECTED = {
    "nobody waits": ("while (static_cast<i32>(load", "while (false && (load"),
    "the last turn is enough": (" - turn) < 0", " - turn + 1) < 0"),
    "the turn is not counted": ("own.turn = turn;", ""),
}


@pytest.mark.parametrize("name", INJECTED)
def test_the_emulator_finds_barriers_that_do_not_wait(name: str, tmp_path: Path) -> None:
    before, after = INJECTED[name]
    assert before in HEADER.read_text()

    def in_all_orders() -> None:
        for order in ORDERS:
            meet(tmp_path, order, before, after)

    with pytest.raises(AssertionError):
        in_all_orders()


def test_parameters_are_laid_out_as_the_kernel_takes_them() -> None:
    text = HEADER.read_text()
    assert f"kMostBarrierRanks = {barriers.MOST_BARRIER_RANKS};" in text
    assert "u32 turn, arrived;" in text
    assert (barriers.STATE_BYTES, barriers.WORD) == (8, 4)
