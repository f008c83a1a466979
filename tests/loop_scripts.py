"""What tests of scripts that divide tensors share."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from fusec import FusionDefinition
from fusec.nvfuser.definition import DirectDefinition
from fusec.nvfuser.modules import make_modules
from fusec.parse.dsl.loops import ParallelType
from fusec.parse.dsl.mesh import DeviceMesh

nvfuser: Any = make_modules()["nvfuser_direct"]
multidevice: Any = make_modules()["nvfuser_direct.multidevice"]
X, Y, Z, STREAM = (ParallelType[n] for n in ("mesh_x", "mesh_y", "mesh_z", "stream"))


@dataclass(frozen=True)
class Ranks:
    """A rank that no process is."""

    rank: int
    size: int = 4
    local_rank: int = 0
    local_size: int = 1


def said(fd: FusionDefinition) -> dict[str, str]:
    """Return what a definition says of its values."""
    return {name: str(sharding) for name, sharding in fd.graph().shardings.items()}


def mesh_of(*shape: int) -> DeviceMesh:
    return DeviceMesh(np.arange(prod(shape)).reshape(shape))


def one_tensor(*shape: int, **options: Any) -> tuple[DirectDefinition, Any]:
    """Return a definition with one tensor, which is its output too."""
    with DirectDefinition() as fd:
        tv = fd.define_tensor(list(shape), **options)
        fd.add_output(tv)
    return fd, tv
