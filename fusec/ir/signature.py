"""The part of a fusion that a call needs: its inputs, its outputs and the sizes of its dims."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fusec.dataclasses import dataclass
from fusec.ir.graph import DimFact, Fusion, Input, Output
from fusec.ir.sharding import Mesh
from fusec.properties import cached_property


@dataclass(frozen=True)
class RecordedSignature:
    """The signature of a fusion for one rank that an earlier process compiled.

    It has the attributes of the fusion, without nodes, and its entries have no spans.
    """

    name: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    dims: tuple[DimFact, ...]

    @property
    def given(self) -> tuple[Input, ...]:
        """Return the inputs that a caller passes."""
        return tuple(i for i in self.inputs if not i.generator)

    @cached_property
    def hints(self) -> Mapping[str, int]:
        """Return the default size of each symbol."""
        return {d.name: d.default for d in self.dims}

    @property
    def mesh(self) -> Mesh | None:
        """Return None: programs of several ranks are not recorded."""
        return None


Signature = Fusion | RecordedSignature


@dataclass(frozen=True)
class RecordedFusion:
    """A fusion that is read lazily; read: reads it from its file."""

    signature: RecordedSignature
    read: Callable[[], Fusion]
