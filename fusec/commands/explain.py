"""`fusec explain`: why a fusion was partitioned this way, as text, JSON or a page."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fusec import driver
from fusec.commands.terminal.diagnose import Report, report_to
from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import FusecError
from fusec.escape import visible
from fusec.models.folder import ModelFolder, is_model_folder, read_model_folder
from fusec.options import CompileOptions

if TYPE_CHECKING:
    from fusec.explain.facts import Segmentation


@dataclass(frozen=True)
class ExplainOptions:
    """How to answer: as JSON, as a page at a path; with ranges of sizes, with the exact bound.

    build: whether kernels are built, for their registers. every: with all refusals, and the
    instructions of kernels.
    """

    json: bool = False
    html: str | None = None
    exact: bool = False
    ranges: Sequence[str] = ()
    build: bool = False
    every: bool = False


def explain_file(path: str, options: CompileOptions, chosen: ExplainOptions) -> int:
    """Explain every fusion of a file for every target; for an error code, print its page.

    For a file with errors, the JSON contains the diagnostics, as with other commands.
    """
    if not chosen.json:
        return _explain_file(path, options, chosen)
    report = Report()
    with report_to(report):
        code = _explain_file(path, options, chosen)
        report.silent = True  # the record is the one object
        return code


def _explain_file(path: str, options: CompileOptions, chosen: ExplainOptions) -> int:
    from fusec.commands.error_pages import explain_code, names_code

    if names_code(path):
        return explain_code(path, as_json=chosen.json)
    from fusec.explain.record import Questions, explain
    from fusec.explain.sizes import ranges_of

    if chosen.html == "":
        raise FusecError("--html is empty", help="e.g. --html explain.html")
    counts = chosen.json or chosen.every
    folder = read_model_folder(path) if is_model_folder(path) else None
    questions = Questions(ranges_of(chosen.ranges), chosen.exact, chosen.build, counts)
    if folder is not None:
        questions = replace(questions, modules=folder.modules)
    programs = [p.on((t,)) for p in driver.programs(path, options) for t in options.targets]
    found = [(explain(program, questions), program) for program in programs]
    records = [record for record, _ in found]
    if chosen.html is not None:
        from fusec.explain.page import with_recorded, write_page

        write_page(chosen.html, [with_recorded(*each) for each in found])
    if chosen.json:
        texts = [record.json() for record in records]
        sys.stdout.write((texts[0] if len(texts) == 1 else f"[{','.join(texts)}]") + "\n")
    elif chosen.html is None:
        from fusec.explain.text import explanation

        texts = [explanation(r, every=chosen.every) for r in records]
        if folder is not None:
            texts = [*_of_model(folder, records, every=chosen.every), *texts]
        sys.stdout.write("\n".join(texts))
    else:
        print(visible(f"{chosen.html}: {', '.join(record.fusion for record in records)}"))
    return 0


def _of_model(
    folder: ModelFolder, records: Sequence[Segmentation], *, every: bool
) -> Iterator[str]:
    """Yield the text about a whole model, for each target."""
    from fusec.explain.model_text import model_explanation

    counts = Counter(call.target for call in folder.calls)
    calls = [f"{target} ({number})" for target, number in counts.items()]
    for arch in dict.fromkeys(r.target["arch"] for r in records):
        own = [r for r in records if r.target["arch"] == arch]
        yield model_explanation(own, calls, every=every)
