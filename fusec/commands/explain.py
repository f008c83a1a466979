"""`fusec explain`: why a fusion is cut as it is, as text, JSON or a page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from fusec import driver
from fusec.commands.diagnose import Report, told_to
from fusec.diagnostics import FusecError
from fusec.escape import visible
from fusec.options import CompileOptions


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
    """Explain every fusion of a file for every target; of the number of an error its page.

    A file that cannot be explained has its diagnostics in JSON, too, as from other commands.
    """
    if not chosen.json:
        return _explain_file(path, options, chosen)
    report = Report()
    with told_to(report):
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
    questions = Questions(ranges_of(chosen.ranges), chosen.exact, chosen.build, counts)
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

        sys.stdout.write("\n".join(explanation(r, every=chosen.every) for r in records))
    else:
        print(visible(f"{chosen.html}: {', '.join(record.fusion for record in records)}"))
    return 0
