"""The page of `run --html` and `bench --html`: `explain --html` with measured times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fusec.dataclasses import dataclass, field
from fusec.diagnostics import FusecError
from fusec.escape import visible

if TYPE_CHECKING:
    from fusec.driver import Compilation, Package
    from fusec.explain.page import Explained
    from fusec.run.measure import Timing


@dataclass
class RunPage:
    """A page to write at a path; each fusion that runs is added to it."""

    path: str
    found: list[Explained] = field(default_factory=list["Explained"])

    def __post_init__(self) -> None:
        """Raise FusecError for an empty path, before anything runs."""
        if not self.path:
            raise FusecError("--html is empty", help="e.g. --html run.html")

    def add(
        self,
        program: Compilation,
        package: Package | None,
        sizes: Mapping[str, int],
        timing: Timing | None = None,
        device: str = "",
        limit: float | None = None,
    ) -> None:
        """Add a fusion, with the registers of its package and its measured times if known.

        limit: seconds of kernels that only move the compulsory traffic. Predictions are for the
        sizes that kernels were planned for: times at other sizes are omitted.
        """
        from fusec.explain.measured import of_launches
        from fusec.explain.page import Explained, with_recorded
        from fusec.explain.record import record_of

        target = program.options.target if package is None else package.targets[0]
        record = record_of(program, target, None if package is None else package.artifacts)
        if timing is None or not program.is_planned_for(sizes):
            self.found.append(with_recorded(record, program))
            return
        how = f"median of {timing.repeats} runs with a cold L2, on {device}"
        measured = of_launches(record, timing.kernels, timing.seconds, how, limit)
        self.found.append(Explained(record, program, measured))

    def write(self) -> None:
        """Write the page, and print its path."""
        from fusec.explain.page import write_page

        if self.found:
            write_page(self.path, self.found)
            print(visible(f"{self.path}: {', '.join(each.record.fusion for each in self.found)}"))
