"""`multidevice` of nvFuser's modules."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from loop_scripts import X, Y, Z, mesh_of, multidevice, nvfuser, one_tensor
from paths import ROOT

from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.graph import Fusion
from fusec.nvfuser.definition import DirectDefinition
from fusec.parse.dsl.session import recording
from fusec.shard.partition import partition


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


def run_ranks(code: str, size: int = 2) -> list[str]:
    """Return what the ranks of a script print that has no error."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    given = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    given |= {"WORLD_SIZE": f"{size}", "LOCAL_WORLD_SIZE": f"{size}"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env={**given, "RANK": f"{k}", "LOCAL_RANK": f"{k}"},
        )
        for k in range(size)
    ]  # fmt: skip
    said = [process.communicate(timeout=120) for process in ranks]
    assert [process.returncode for process in ranks] == [0] * size, said
    return [out for out, _ in said]


def test_a_barrier_waits_for_all_ranks(tmp_path: Path) -> None:
    """Each rank leaves a file behind, waits, and finds those of all others."""
    run_ranks(f"""
import pathlib
from fusec.nvfuser.multidevice import Communicator
one, folder = Communicator.instance(), pathlib.Path({str(tmp_path)!r})
for turn in range(2):
    (folder / f"{{turn}}.{{one.rank()}}").touch()
    one.barrier()
    assert len(list(folder.glob(f"{{turn}}.*"))) == one.size() == one.local_size() == 2
""")


def test_ranks_execute_a_definition_together() -> None:
    """As in nvFuser's own tests: each gives its parts, and gets its part of the result."""
    said = run_ranks("""
import numpy as np
import fusec.nvfuser
fusec.nvfuser.install()
import nvfuser_direct as nvfuser
from nvfuser_direct import FusionDefinition, multidevice
d = multidevice.Communicator.instance().size()
mesh = multidevice.DeviceMesh(np.arange(d))
with FusionDefinition() as fd:
    x = fd.define_tensor([-1, -1], contiguity=True)
    w = fd.define_tensor([-1, -1], contiguity=True)
    y = fd.ops.matmul(x, w)
    fd.add_output(y)
    for tv, at in ((x, 1), (w, 0), (y, 0)):
        tv.set_device_mesh(mesh)
        tv.outer_split(at, d)
        tv.axis(at).parallelize(nvfuser.ParallelType.mesh_x)
draw = np.random.default_rng(0)
whole = [draw.integers(-4, 4, shape).astype(np.float32) for shape in ((6, 4), (4, 5))]
for _ in range(2):
    (out,) = fd.execute([multidevice.shard_tensor(t, tv) for t, tv in zip(whole, (x, w))])
    np.testing.assert_array_equal(out, multidevice.shard_tensor(whole[0] @ whole[1], y))
(sharding,) = fd.fec.get_output_shardings()
print(out.shape, sharding.axis_sharded_on(nvfuser.ParallelType.mesh_x))
""")
    assert said == ["(3, 5) 0\n"] * 2


def test_one_process_is_no_mesh_of_two() -> None:
    fd = sharded()
    with pytest.raises(FusecError, match="has 4 ranks, but this run has 1"):
        fd.execute([np.ones((4, 3), np.float32)])


def test_unknown_parameters_are_refused() -> None:
    params = multidevice.MultiDeviceExecutorParams()
    with pytest.raises(AttributeError):
        params.streams = 3
    with pytest.raises(FusecError, match="a fusion is the `fusion`"):
        multidevice.MultiDeviceExecutor(3, params)


def sharded(parts: int = 2) -> DirectDefinition:
    """Return a sum over what two of four ranks have, for each of the others."""
    with DirectDefinition() as fd:
        x = fd.define_tensor([8, -1], contiguity=True, name="x")
        fd.add_output(fd.ops.sum(x, [1]))
        fd.add_output(fd.ops.relu(x))
        x.set_device_mesh(mesh_of(2, 2))
        x.outer_split(1, 2)
        x.axis(1).parallelize(X)
        x.split(0, parts, inner_split=False)
        x.axis(0 if parts == 2 else 1).parallelize(Y)
    return fd


def execute(fd: DirectDefinition, *given: np.ndarray[Any, Any]) -> list[Any]:
    """Return results of the right shapes, which nobody computed."""

    def run(fusion: Fusion, _: Any) -> list[Any]:
        local = partition(fusion)
        shapes = [[d.evaluate(local.hints) for d in o.value.shape] for o in local.outputs]
        return [np.zeros(shape, np.float32) for shape in shapes]

    with recording(run):
        return fd.execute(given)


def test_shardings_of_outputs() -> None:
    fd = sharded()
    total, same = execute(fd, np.ones((4, 3), np.float32))
    assert (total.shape, same.shape) == ((4,), (4, 3))
    first, second = fd.fec.get_output_shardings()
    assert (first.axis_sharded_on(Y), first.axis_sharded_on(X)) == (0, -1)
    assert (second.axis_sharded_on(Y), second.axis_sharded_on(X)) == (0, 1)
    assert second.axis_sharded_on(Z) == -1
    assert (second.mesh.shape, second.by_axis()) == ((2, 2), [0, 1])
    one, _ = one_tensor(4)
    execute(one, np.ones(4, np.float32))
    with pytest.raises(FusecError, match="no mesh"):
        one.fec.get_output_shardings()


@dataclass(frozen=True)
class Placed:
    """A DTensor that is no tensor of PyTorch."""

    local: Any
    device_mesh: Any
    placements: Any = ()

    @classmethod
    def from_local(cls, local: Any, mesh: Any, placements: Any) -> Placed:
        return cls(local, mesh, placements)

    def to_local(self) -> Any:
        return self.local


def test_dtensors(monkeypatch: pytest.MonkeyPatch) -> None:
    made = SimpleNamespace(DTensor=Placed, Shard=lambda d: f"S{d}", Replicate=lambda: "R")
    monkeypatch.setitem(sys.modules, "torch.distributed.tensor", made)
    x = Placed(np.ones((4, 3), np.float32), "mesh")

    def run(fusion: Fusion, _: Any) -> list[Any]:
        return [np.zeros(4, np.float32), np.zeros((4, 3), np.float32)]

    with recording(run):
        total, same = nvfuser.execute_with_dtensors(sharded(), [x])
        assert (total.placements, same.placements) == (["S0", "R"], ["S0", "S1"])
        assert same.device_mesh == "mesh"
        with pytest.raises(FusecError, match="several meshes"):
            nvfuser.execute_with_dtensors(sharded(), [x, Placed(1, "other")])
        with pytest.raises(FusecError, match="have no mesh"):
            nvfuser.execute_with_dtensors(sharded(), [])
        with pytest.raises(Unsupported, match="a DTensor of a tensor that is divided as"):
            nvfuser.execute_with_dtensors(sharded(4), [x])


def test_profiles_tell_what_ran() -> None:
    fd = sharded()
    with nvfuser.PythonProfiler() as outer:
        with nvfuser.PythonProfiler() as inner:
            execute(fd, np.ones((4, 3), np.float32))
        one, _ = one_tensor(4)
        execute(one, np.ones(4, np.float32))
    names = [kernel.scheduler for kernel in inner.profile.kernel_profiles]
    assert names.count("communication") == 1
    assert len(names) > 1
    assert [k.scheduler for k in outer.profile.kernel_profiles[len(names) :]] != []
    with pytest.raises(Unsupported, match="profile"):
        _ = outer.profile.kernel_profiles[0].time_ms
