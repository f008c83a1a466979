"""The records of the kernels for any GPU: mma.sync fed by cp.async, and multiply-adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fusec.dataclasses import dataclass
from fusec.schedule.matmul.choice import OCTETS, MatmulParameters


@dataclass(frozen=True)
class MmaParameters(MatmulParameters):
    """One CTA per tile, asynchronous copies into mma.sync: `mma` in files."""

    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 32
    stages: int = 3
    kernel: ClassVar[str] = "mma"
    tile: ClassVar[Mapping[str, int]] = {"tile_m": 128, "tile_k": 32}
    tile_columns: ClassVar[tuple[int, ...]] = (128,)
    loads_chunks: ClassVar[bool] = True

    @property
    def widths(self) -> tuple[int, ...]:
        """Return the supported numbers of neighbouring columns per thread."""
        return OCTETS


@dataclass(frozen=True)
class SimtParameters(MatmulParameters):
    """One CTA per tile, multiply-adds in the results' type: `simt` in files."""

    tile_m: int = 64
    tile_n: int = 64
    tile_k: int = 16
    stages: int = 1
    kernel: ClassVar[str] = "simt"
    tile: ClassVar[Mapping[str, int]] = {"tile_m": 64, "tile_k": 16}
    tile_columns: ClassVar[tuple[int, ...]] = (64,)
    on_tensor_cores: ClassVar[bool] = False

    @property
    def has_stages(self) -> bool:
        """Return whether the kernel supports this number of stages."""
        return self.stages == 1
