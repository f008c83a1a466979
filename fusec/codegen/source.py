"""The CUDA source of a kernel, and what the host needs to know about it."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

from fusec.dataclasses import dataclass, field
from fusec.properties import cached_property
from fusec.schedule.plan import Kernel

if TYPE_CHECKING:
    from fusec.codegen.render import Body


@dataclass(frozen=True)
class KernelSource:
    """The CUDA source of one kernel.

    kernel: as planned, with the arguments that the source reads; alignments: by buffer, in bytes,
    the required alignment of each address that it takes; headers: of device functions, those that
    the source includes, sorted; body: the parts of the source, None for a source that was produced
    earlier or elsewhere, which is equal to no other.
    """

    kernel: Kernel
    text: str
    alignments: Mapping[str, int] = field(compare=False)
    headers: tuple[str, ...] = field(default=(), compare=False)
    body: Body | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """Return the kernel's name."""
        return self.kernel.name

    @cached_property
    def digest(self) -> str:
        """Return a digest shared by kernels whose sources differ only in names and comments.

        It is that of the source with numbers for names derived from those of the fusion, without
        text that its comments quote; empty if the parts of the source are unknown.
        """
        return "" if self.body is None else sha256(self.body.numbered().encode()).hexdigest()
