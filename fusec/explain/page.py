"""A segmentation as one self-contained page: the graph, the CUDA source, the reasons.

The page has one script, for search and zoom. Its policy allows only that script, by its hash.
"""

from __future__ import annotations

import os
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError
from fusec.explain import refusals, text, units
from fusec.explain.charts import HEIGHT, WIDTH, Charts, charts
from fusec.explain.drawing import HUES, Drawing, draw, label_width
from fusec.explain.facts import Crossing, Segmentation, SegmentFacts, Taken
from fusec.explain.groups import Group
from fusec.explain.highlight import highlighted
from fusec.explain.measured import MeasuredTimes, compared, recorded
from fusec.explain.modules import nested
from fusec.segment.protocol import Estimate
from fusec.target import find

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from fusec.driver import Compilation


LARGE = 1200.0
"""Height in pixels above which a drawing first hides operations."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{}'"


class Explained(NamedTuple):
    """A fusion on a page; measured: times to show next to the predicted ones."""

    record: Segmentation
    program: Compilation
    measured: MeasuredTimes | None = None


@dataclass(frozen=True)
class Kernel:
    """The CUDA source of a kernel, marked up."""

    name: str
    lines: int
    text: Markup


@dataclass(frozen=True)
class Detail:
    """What the page shows of a segment in addition to the graph."""

    facts: SegmentFacts
    anchor: str
    hue: int
    kernels: tuple[Kernel, ...]
    read: tuple[Crossing, ...]
    passed: tuple[Crossing, ...]
    decisions: tuple[Taken, ...]


@dataclass(frozen=True)
class Picture:
    """A drawing with the kind of its boxes: `groups`, `segments` or `operations`."""

    kind: str
    drawing: Drawing


@dataclass(frozen=True)
class GroupDetail:
    """What the page shows of a group of segments, repeats included."""

    group: Group
    anchor: str
    details: tuple[Detail, ...]


@dataclass(frozen=True)
class View:
    """What the template shows of one fusion for one target.

    pictures: the first one is shown until the reader selects another one.
    """

    record: Segmentation
    anchor: str
    measured: MeasuredTimes | None
    pictures: tuple[Picture, ...]
    groups: tuple[GroupDetail, ...]
    charts: Charts
    details: tuple[Detail, ...]
    unfused: tuple[Taken, ...]
    saved: tuple[Taken, ...]
    others: tuple[Taken, ...]


def with_recorded(record: Segmentation, program: Compilation) -> Explained:
    """Return a fusion with the recorded tuning times for these sizes, if any."""
    return Explained(record, program, recorded(record))


def write_page(path: str, found: Sequence[Explained]) -> None:
    """Write the page to a temporary file and rename it; FusecError if it cannot be written."""
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
    views = [_view(each, f"f{number}") for number, each in enumerate(found)]
    names = ", ".join(dict.fromkeys(each.record.fusion for each in found))
    environment = _environment()
    template = environment.get_template("page.html.j2")
    said = {"text": text, "units": units, "refusals": refusals, "plot": (WIDTH, HEIGHT)}
    said |= {"label_width": label_width, "compared": compared, "nested": nested}
    return template.render(views=views, title=names, hues=HUES, **_script(environment), **said)


def _script(environment: Environment) -> dict[str, str]:
    """Return the script of the page, and the policy that allows it."""
    from markupsafe import Markup

    assert environment.loader is not None
    script = environment.loader.get_source(environment, "page.js")[0]
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return {"script": Markup(script), "policy": Markup(POLICY.format(digest))}


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("fusec.explain", "."),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _view(explained: Explained, anchor: str) -> View:
    record, program, measured = explained
    details = tuple(
        _detail(record, program, segment, f"{anchor}-{segment.name}") for segment in record.segments
    )
    rest = [d for d in record.decisions if d.action != "boundary"]
    pictures = tuple(_pictures(record))
    groups = tuple(
        GroupDetail(drawn.groups[each.name], f"{anchor}-{each.name}", _of(details, each.stands_for))
        for drawn in (picture.drawing for picture in pictures)
        for each in drawn.segments
        if each.name in drawn.groups
    )
    nothing = Estimate(bytes=0, ctas=0, kernels=0)
    estimates = [s.estimate or nothing for s in program.segmented.segments]
    return View(
        record,
        anchor,
        measured,
        pictures,
        groups,
        charts(record, estimates, find(record.target["arch"]), measured),
        details,
        tuple(d for d in record.decisions if d.action == "boundary"),
        tuple(d for d in rest if d.action in text.SAVING),
        tuple(d for d in rest if d.action not in text.SAVING),
    )


def _of(details: Sequence[Detail], numbers: Sequence[int]) -> tuple[Detail, ...]:
    return tuple(details[number] for number in sorted(numbers))


def _pictures(record: Segmentation) -> Iterator[Picture]:
    """Yield the drawings of a fusion, starting with the one with the fewest boxes."""
    full = draw(record)
    small = full is not None and full.height <= LARGE and not full.repeats
    if full is not None and (small or len(record.segments) == 1):
        yield Picture("operations", full)
        return
    grouped, segments = draw(record, groups=True), draw(record, operations=False)
    if grouped is not None and (grouped.groups or segments is None):
        yield Picture("groups", grouped)
    if segments is not None:
        yield Picture("segments", segments)
    if full is not None:
        yield Picture("operations", full)


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
    """Return whether a decision is about a segment, or about its outputs."""
    return segment.name in decision.subject or bool({*decision.subject} & {*segment.outputs})
