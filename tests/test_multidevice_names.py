"""`multidevice` of nvFuser's modules."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from loop_scripts import X, Y, Z, mesh_of, multidevice, one_tensor

from fusec.diagnostics import FusecError

# -- nvFuser's modules

ROOT = Path(__file__).parent.parent


def test_several_devices_by_nvfusers_names() -> None:
    code = """
import fusec.nvfuser
fusec.nvfuser.install()
import nvfuser_direct as nvfuser
import nvfuser_direct.multidevice
from nvfuser_direct import CommunicatorBackend, DataType, FusionDefinition, TensorView
one = nvfuser.multidevice.Communicator.instance()
assert one is nvfuser.multidevice.Communicator.instance()
print(one.size(), one.rank(), one.local_size(), one.local_rank(), one.barrier())
params = nvfuser.multidevice.MultiDeviceExecutorParams()
params.backend_type = CommunicatorBackend.cuda
params.use_allocation_cache = True
params.offset_stream_indexing_by_rank = True
mesh = nvfuser.multidevice.DeviceMesh(range(1))
assert (mesh.size, mesh.shape) == (1, (1,))
with FusionDefinition() as fd:
    x = fd.define_tensor([-1], dtype=DataType.Float)
    fd.add_output(fd.ops.relu(x))
    x.set_device_mesh(mesh)
    x.axis(0).parallelize(nvfuser.ParallelType.mesh_x)
    assert isinstance(x, TensorView)
nvfuser.multidevice.MultiDeviceExecutor(fd.fusion, params)
try:
    params.backend_type = CommunicatorBackend.ucc
except RuntimeError as error:
    print(error.exit_code)
assert "torch" not in __import__("sys").modules
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "0", "1", "0", "None", "3"]


def test_a_barrier_waits_for_all_ranks(tmp_path: Path) -> None:
    """Each rank leaves a file behind, waits, and finds those of all others."""
    code = f"""
import pathlib
import fusec.nvfuser
from fusec.nvfuser.multidevice import Communicator
one, folder = Communicator.instance(), pathlib.Path({str(tmp_path)!r})
for turn in range(2):
    (folder / f"{{turn}}.{{one.rank()}}").touch()
    one.barrier()
    assert len(list(folder.glob(f"{{turn}}.*"))) == one.size() == one.local_size() == 2
"""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    given = {**os.environ, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": port}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True,
            env={**given, "MASTER_ADDR": "127.0.0.1", "RANK": str(k), "LOCAL_RANK": str(k)},
        )
        for k in range(2)
    ]  # fmt: skip
    said = [process.communicate(timeout=60)[1] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], said


def test_unknown_parameters_are_refused() -> None:
    params = multidevice.MultiDeviceExecutorParams()
    with pytest.raises(AttributeError):
        params.streams = 3
    with pytest.raises(FusecError, match="a fusion is the `fusion`"):
        multidevice.MultiDeviceExecutor(3, params)


def test_shardings_of_nvfuser() -> None:
    _, tv = one_tensor(8, 8)
    tv.set_device_mesh(mesh_of(2, 2))
    tv.outer_split(1, 2)
    tv.axis(1).parallelize(Y)
    graph = tv.definition.graph()
    found = multidevice.Sharding(mesh_of(2, 2), graph.shardings["tv"])
    assert (found.axis_sharded_on(Y), found.axis_sharded_on(X), found.axis_sharded_on(Z)) == (
        1,
        -1,
        -1,
    )
    assert found.mesh.shape == (2, 2)
