"""`multidevice` of nvFuser's modules: ranks, meshes, parts of tensors, multi-GPU execution."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, ClassVar

from fusec import executor
from fusec.diagnostics import FusecError, Unsupported, WrongType
from fusec.ir.dim import dim
from fusec.nvfuser.caches import Fusion
from fusec.nvfuser.shardings import Sharding
from fusec.parse.dsl.handles import Tensor
from fusec.parse.dsl.mesh import DeviceMesh, part_of
from fusec.parse.dsl.place import placed

__all__ = [
    "Communicator", "CommunicatorBackend", "DeviceMesh", "MultiDeviceExecutor",
    "MultiDeviceExecutorParams", "Sharding", "shard_tensor",
]  # fmt: skip


class CommunicatorBackend(Enum):
    """Communication backends of nvFuser; fusec chooses its transport itself."""

    nccl = "nccl"
    ucc = "ucc"
    cuda = "cuda"


class Communicator:
    """The ranks of this run."""

    _one: ClassVar[Communicator | None] = None

    @staticmethod
    def instance() -> Communicator:
        """Return the singleton."""
        Communicator._one = Communicator._one or Communicator()
        return Communicator._one

    def size(self) -> int:
        """Return the number of ranks."""
        return executor.ranks().size

    def rank(self) -> int:
        """Return the rank of this process."""
        return executor.ranks().rank

    def local_size(self) -> int:
        """Return the number of ranks on this host."""
        known = executor.ranks()
        return known.local_size or known.size

    def local_rank(self) -> int:
        """Return the rank of this process on this host."""
        return executor.ranks().local_rank

    def barrier(self) -> None:
        """Wait for all ranks."""
        with placed():
            executor.barrier()


class MultiDeviceExecutorParams:
    """Parameters of nvFuser's executor. They are checked, and have no effect."""

    __slots__ = (
        "_backend", "inter_stream_synchronization", "number_of_streams",
        "offset_stream_indexing_by_rank", "use_allocation_cache",
    )  # fmt: skip

    def __init__(self) -> None:
        """Set nvFuser's defaults."""
        self._backend = CommunicatorBackend.nccl
        self.use_allocation_cache = False
        self.number_of_streams = 4
        self.offset_stream_indexing_by_rank = False
        self.inter_stream_synchronization = False

    @property
    def backend_type(self) -> CommunicatorBackend:
        """Return the selected communication backend."""
        return self._backend

    @backend_type.setter
    def backend_type(self, backend: CommunicatorBackend) -> None:
        with placed():
            if backend not in (CommunicatorBackend.nccl, CommunicatorBackend.cuda):
                raise Unsupported(
                    f"nvFuser's backend {backend!r}", help="CommunicatorBackend.nccl, or .cuda"
                )
            self._backend = backend


class MultiDeviceExecutor:
    """Runs a fusion on this rank, while the other ranks of its mesh run it too."""

    def __init__(self, fusion: Fusion, params: MultiDeviceExecutorParams | None = None) -> None:
        """Run `fusion`, a definition's `fusion`."""
        with placed():
            if not isinstance(fusion, Fusion):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise WrongType(f"a fusion is the `fusion` of a FusionDefinition, got {fusion!r}")
        self._fusion = fusion

    def run(self, args: Iterable[Any]) -> list[Any]:
        """Return this rank's outputs for its inputs."""
        return self._fusion.execute(args)

    def __str__(self) -> str:
        return self._fusion.print_math()


def shard_tensor(tensor: Any, tv: Tensor) -> Any:
    """Return this rank's part of a whole tensor in the sharding of `tv`; all of it if undivided.

    `tensor`: any type with `shape`, `reshape` and indexing.
    """
    with placed():
        if not isinstance(tv, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongType(f"expected a tensor of a fusion, got {tv!r}")
        shape = tuple(dim(int(extent)) for extent in tensor.shape)
        if len(shape) != tv.ndim:
            raise FusecError(f"the tensor has {len(shape)} dims, `{tv!r}` has {tv.ndim}")
        mesh, said = tv.definition.divided_as(tv, shape)
        return tensor if mesh is None else part_of(tensor, said, mesh)
