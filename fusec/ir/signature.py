"""What a call has to know of a fusion: its inputs, its outputs and the sizes of its dims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Protocol

from fusec.dataclasses import dataclass
from fusec.ir.graph import DimFact, Fusion, Input, Output
from fusec.ir.sharding import Mesh


class Signature(Protocol):
    """A fusion, or a record of one that was compiled before: it has no nodes."""

    @property
    def name(self) -> str:
        """Return the fusion's name."""
        ...

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Return all inputs."""
        ...

    @property
    def given(self) -> tuple[Input, ...]:
        """Return the inputs that a caller gives."""
        ...

    @property
    def outputs(self) -> tuple[Output, ...]:
        """Return the outputs."""
        ...

    @property
    def dims(self) -> tuple[DimFact, ...]:
        """Return the symbols."""
        ...

    @property
    def hints(self) -> Mapping[str, int]:
        """Return the default size of each symbol."""
        ...

    @property
    def mesh(self) -> Mesh | None:
        """Return the ranks that run it together."""
        ...


@dataclass(frozen=True)
class RecordedSignature:
    """The signature of a fusion for one rank that an earlier process has compiled."""

    name: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    dims: tuple[DimFact, ...]

    @property
    def given(self) -> tuple[Input, ...]:
        """Return the inputs that a caller gives."""
        return tuple(i for i in self.inputs if not i.generator)

    @cached_property
    def hints(self) -> Mapping[str, int]:
        """Return the default size of each symbol."""
        return {d.name: d.default for d in self.dims}

    @property
    def mesh(self) -> Mesh | None:
        """Return None: programs of several ranks are not recorded."""
        return None


@dataclass(frozen=True)
class RecordedFusion:
    """A fusion that is not read yet; read: reads it from its file."""

    signature: RecordedSignature
    read: Callable[[], Fusion]
