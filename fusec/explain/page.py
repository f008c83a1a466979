"""A segmentation as one page that needs nothing else: the graph, the CUDA source, the reasons."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fusec.diagnostics import FusecError
from fusec.explain import refusals, text, units
from fusec.explain.charts import HEIGHT, WIDTH, Charts, charts
from fusec.explain.drawing import HUES, LARGE, Drawing, draw
from fusec.explain.facts import Crossing, Segmentation, SegmentFacts, Taken
from fusec.explain.highlight import highlighted
from fusec.segment.protocol import Estimate
from fusec.target import find

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from fusec.driver import Compilation


Explained = tuple[Segmentation, "Compilation"]


@dataclass(frozen=True)
class Kernel:
    """The CUDA text of a kernel, marked up."""

    name: str
    lines: int
    text: Markup


@dataclass(frozen=True)
class Detail:
    """What the page shows of a segment beside the graph."""

    facts: SegmentFacts
    anchor: str
    hue: int
    kernels: tuple[Kernel, ...]
    read: tuple[Crossing, ...]
    passed: tuple[Crossing, ...]
    decisions: tuple[Taken, ...]


@dataclass(frozen=True)
class View:
    """What the template shows of one fusion for one target.

    full: the drawing with operations, where `drawing` has none because it is large.
    """

    record: Segmentation
    anchor: str
    drawing: Drawing | None
    full: Drawing | None
    charts: Charts
    details: tuple[Detail, ...]
    unfused: tuple[Taken, ...]
    saved: tuple[Taken, ...]
    others: tuple[Taken, ...]


def write_page(path: str, found: Sequence[Explained]) -> None:
    """Write the page aside and rename it; FusecError where it cannot be written."""
    content = page(found)
    target, aside = Path(path), None
    try:
        if target.is_dir():
            raise FusecError(f"`{path}` is a directory", help="e.g. --html explain.html")
        handle, aside = tempfile.mkstemp(prefix=f".{target.name[:80]}.", dir=target.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
        os.chmod(aside, 0o644)
        os.replace(aside, target)
    except OSError as error:
        if aside is not None:
            Path(aside).unlink(missing_ok=True)
        raise FusecError(f"cannot write `{path}`: {error.strerror or error}") from None


def page(found: Sequence[Explained]) -> str:
    """Return the page; every name and text in it is escaped."""
    views = [_view(*each, f"f{number}") for number, each in enumerate(found)]
    names = ", ".join(dict.fromkeys(record.fusion for record, _ in found))
    template = _environment().get_template("page.html.j2")
    said = {"text": text, "units": units, "refusals": refusals, "plot": (WIDTH, HEIGHT)}
    return template.render(views=views, title=names, hues=HUES, **said)


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("fusec.explain", "."),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _view(record: Segmentation, program: Compilation, anchor: str) -> View:
    details = tuple(
        _detail(record, program, segment, f"{anchor}-{segment.name}") for segment in record.segments
    )
    rest = [d for d in record.decisions if d.action != "boundary"]
    full = draw(record)
    is_large = full is None or full.height > LARGE or bool(full.repeats)
    overview = draw(record, operations=False) if is_large else None
    nothing = Estimate(bytes=0, ctas=0, kernels=0)
    estimates = [s.estimate or nothing for s in program.segmented.segments]
    return View(
        record,
        anchor,
        overview if is_large else full,
        full if is_large else None,
        charts(record, estimates, find(program.options.target)),
        details,
        tuple(d for d in record.decisions if d.action == "boundary"),
        tuple(d for d in rest if d.action in text.SAVING),
        tuple(d for d in rest if d.action not in text.SAVING),
    )


def _detail(
    record: Segmentation, program: Compilation, segment: SegmentFacts, anchor: str
) -> Detail:
    launched, texts = program.kernels_launched, {s.name: s for s in program.kernel_sources}
    sources = (texts[launched[s.name]] for s in program.sources[segment.id])
    kernels = (Kernel(s.name, s.text.count("\n"), highlighted(s.text)) for s in sources)
    return Detail(
        segment,
        anchor,
        segment.id % HUES,
        tuple(kernels),
        tuple(c for c in record.crossing if segment.id in c.consumers),
        tuple(c for c in record.crossing if segment.id == c.producer),
        tuple(d for d in record.decisions if _concerns(d, segment)),
    )


def _concerns(decision: Taken, segment: SegmentFacts) -> bool:
    """Return whether a decision is about a segment, or about values that it puts out."""
    return segment.name in decision.subject or bool({*decision.subject} & {*segment.outputs})
