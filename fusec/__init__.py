"""fusec compiles fusion definitions into readable CUDA kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fusec import executor
from fusec.diagnostics import FusecError
from fusec.version import __version__

if TYPE_CHECKING:
    from fusec.api import compile, dump, load
    from fusec.call.program import Program
    from fusec.explain.record import segmentation
    from fusec.generator import manual_seed
    from fusec.ir.dim import ceildiv, maximum, minimum
    from fusec.ir.graph import Fusion
    from fusec.parse.dsl import DataType, FusionDefinition
    from fusec.run.distributed.loss import RankFailure

__all__ = [
    "DataType",
    "FusecError",
    "FusionDefinition",
    "Program",
    "RankFailure",
    "__version__",
    "ceildiv",
    "compile",
    "dump",
    "load",
    "manual_seed",
    "maximum",
    "minimum",
    "segmentation",
]


def _execute(fusion: Fusion, arrays: Sequence[Any]) -> list[Any]:
    from fusec import eager, rank

    several = fusion.mesh is not None and fusion.mesh.size > 1
    return (rank if several else eager).execute(fusion, arrays)


def _describe(fusion: Fusion, what: str) -> str:
    if what == "page":
        from fusec.explain.notebook import embedded

        return embedded(fusion)
    from fusec import eager

    return eager.describe(fusion, what)


def _program(fusion: Fusion) -> Program:
    from fusec import api

    return api.program_for(fusion)


def _ranks() -> executor.Ranks:
    from fusec.run.distributed import ranks

    return ranks.from_environment()


def _barrier() -> None:
    from fusec.run.distributed import process

    process.barrier()


executor.give(_execute, _program, _describe, _ranks, _barrier)


def __getattr__(name: str) -> Any:
    # Looked up on first use, so that `import fusec` loads nothing else.
    if name in ("DataType", "FusionDefinition"):
        from fusec.parse import dsl

        return getattr(dsl, name)
    if name in ("compile", "dump", "load"):
        from fusec import api

        return getattr(api, name)
    if name == "Program":
        from fusec.call import program

        return program.Program
    if name == "RankFailure":
        from fusec.run.distributed import loss

        return loss.RankFailure
    if name in ("ceildiv", "maximum", "minimum"):
        from fusec.ir import dim

        return getattr(dim, name)
    if name == "manual_seed":
        from fusec import generator

        return generator.manual_seed
    if name == "segmentation":
        from fusec.explain import record

        return record.segmentation
    raise AttributeError(f"module 'fusec' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
