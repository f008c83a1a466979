"""Ranks as processes that share one GPU: peer copies, peer reads and their graphs, as they run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from gpu_check import DRY
from paths import TESTS

from fusec.run.distributed.ranks import LOCAL

WORKER = TESTS / "ranks_on_one_gpu.py"


@pytest.mark.gpu
@pytest.mark.skipif(bool(DRY), reason="needs a GPU")
@pytest.mark.parametrize("ranks", [2, 4])
def test_calls_and_graphs_of_ranks_that_share_a_gpu(ranks: int) -> None:
    pytest.importorskip("torch")
    with socket.create_server((LOCAL, 0)) as free:
        port = str(free.getsockname()[1])
    told = {
        "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": LOCAL,
        "MASTER_PORT": port, "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip
    processes = [
        subprocess.Popen(
            [sys.executable, str(WORKER)],
            env={**os.environ, **told, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * ranks, "\n".join(said)
