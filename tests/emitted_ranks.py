"""Emitted C with loops over streams and ranks, on stand-ins whose streams run late and mixed."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from emitted import Called, Emitted, FakeCuda, stand_in
from named_kernels import named_kernels
from rank_verdicts import LOOPED

from fusec import driver
from fusec.commands.running.rank import assembled, parts_of
from fusec.hostir.instructions import Launch
from fusec.ir.graph import Fusion
from fusec.ir.sharding import Mesh
from fusec.lowering import division
from fusec.options import CompileOptions
from fusec.run.arrays import lay_out, layout_of
from fusec.target import find
from fusec.variants import compile_variants

ALONE = Mesh((("alone", 1),), (0,))


class Late(Called):
    """Calls whose kernels run when streams do, on whatever stream they were put."""

    def _check(self, launch: Launch, stream: int, parameters: Any) -> None:
        """Nothing: slices lie elsewhere in each iteration, and results tell."""


class UniqueId(ctypes.Structure):
    """ncclUniqueId."""

    _fields_ = (("internal", ctypes.c_char * 128),)


def packaged(fusion: Fusion, *, target: str = "sm_80", **options: Any) -> driver.Package:
    """Return a fusion compiled with loops also where they are not worth it."""
    given = {"targets": (target,), "targets_given": True, "without": LOOPED.without, **options}
    with named_kernels():
        return compile_variants([driver.Compilation(fusion, CompileOptions(**given))])


class Ranks:
    """The ranks of an emitted program, each on a device of its own."""

    def __init__(
        self,
        emitted: Emitted,
        inputs: Mapping[str, Any],
        folder: Path,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        """Connect the ranks, and give each its part of the inputs of the whole.

        sizes: others than the program was planned for, of one rank.
        """
        self.emitted, program = emitted, emitted.program
        self.fusion = program.original
        self.divided = division(self.fusion, program.options).partition
        self.mesh = self.fusion.mesh or ALONE
        self.sizes = sizes or self.divided.fusion.hints
        FakeCuda(find(program.targets[0]).capability)
        self.gpus = [FakeCuda(device=k, new=False) for k in range(self.mesh.size)]
        self.library = self.gpus[0].library
        self.nccl = ctypes.CDLL(str(stand_in().parent / "libnccl.so"), mode=ctypes.RTLD_GLOBAL)
        self.ranks = self.connect() if emitted.view.axes else []
        self.programs, self.spaces = list[Any](), list[Any]()
        self.calls = list[Late]()
        for rank, gpu in enumerate(self.gpus):
            gpu.use()
            own = parts_of(self.fusion, inputs, self.divided.placed, self.mesh, rank, self.sizes)
            self.programs.append(emitted.create())
            self.spaces.append(emitted.workspace(gpu, self.programs[-1], self.sizes))
            for buffer in program.host.inputs:
                array = np.asarray(own[buffer.name])
                own[buffer.name] = lay_out(array, layout_of(buffer, self.sizes)[1])
            self.calls.append(Late(emitted, gpu, own, self.sizes, folder))
            if self.ranks:
                self.calls[-1].arguments.ranks = self.ranks[rank]

    def connect(self) -> list[Any]:
        """Return the communicators of all ranks, which threads connect at once."""
        made = [self.emitted.Ranks() for _ in self.gpus]
        identity = UniqueId()
        assert self.nccl.ncclGetUniqueId(ctypes.byref(identity)) == 0
        errors = dict[int, int]()

        def one(rank: int) -> None:
            function = self.emitted.function("connect")
            errors[rank] = function(ctypes.byref(made[rank]), ctypes.byref(identity), rank)

        threads = [threading.Thread(target=one, args=(k,)) for k in range(len(made))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(errors.values()) == {0}
        return made

    def poison(self) -> None:
        """Let nothing be left of earlier runs in outputs and workspaces."""
        for call, space in zip(self.calls, self.spaces, strict=True):
            ctypes.memset(space.memory, 0xFF, space.bytes)
            space.zeroed = 0
            buffers = self.emitted.program.host.buffer
            for name, address in call.addresses.items():
                if buffers[name].role == "output":
                    ctypes.memset(address, 0xFF, buffers[name].bytes(self.sizes))

    def issue(self) -> list[int]:
        """Run the program on each rank, and return the errors; nothing has been done yet."""
        self.poison()
        errors = list[int]()
        for gpu, call, program, space in zip(
            self.gpus, self.calls, self.programs, self.spaces, strict=True
        ):
            gpu.use()
            errors.append(call.run(program, space))
        return errors

    def finish(self) -> None:
        """Let all ranks do what they were given, as events allow."""
        for gpu, call in zip(self.gpus, self.calls, strict=True):
            gpu.use()
            assert gpu.library.cuStreamSynchronize(gpu.stream) == 0, gpu.complaint
            assert not gpu.complaint, gpu.complaint
            for failure in call.failures:
                raise failure

    def outputs(self) -> dict[str, np.ndarray]:
        """Return the outputs of the whole, put together."""
        names = [o.value.name for o in self.fusion.outputs]
        parts = [{name: call.output(name) for name in names} for call in self.calls]
        found, copies = assembled(self.fusion, parts, self.divided.placed, self.mesh, self.sizes)
        assert copies == []
        return found

    def close(self) -> None:
        """Destroy what was made."""
        for k, (gpu, space) in enumerate(zip(self.gpus, self.spaces, strict=True)):
            gpu.use()
            streams = ctypes.c_void_p(space.streams)
            if self.emitted.view.streams:
                assert self.emitted.function("streams_destroy")(streams) == 0
            if self.ranks:
                given = ctypes.byref(self.calls[k].arguments.ranks)
                assert self.emitted.function("disconnect")(given) == 0
            assert self.emitted.function("destroy")(self.programs[k]) == 0


def results(
    package: driver.Package,
    inputs: Mapping[str, Any],
    folder: Path,
    seeds: Iterable[int],
    sizes: Mapping[str, int] | None = None,
) -> list[dict[str, np.ndarray]]:
    """Return what an emitted program computes with its streams mixed by each of some seeds."""
    ranks = Ranks(Emitted(package, folder), inputs, folder, sizes)
    found = list[dict[str, np.ndarray]]()
    for seed in seeds:
        ranks.gpus[0].defer(seed)
        assert set(ranks.issue()) == {0}
        ranks.finish()
        found.append(ranks.outputs())
    ranks.close()
    return found
