"""A model as text: predicted time by module, and the boundaries between its segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusec.explain.facts import Break, ModuleFacts, Segmentation
from fusec.explain.modules import parents_of, tree_of
from fusec.explain.text import LABEL, count, fitted_elsewhere, moved, names, row, rows
from fusec.explain.units import bytes_text, share_text, time_text

MOST_ROWS = 40
"""Of the table of modules: deeper ones are only shown with `--all`."""
MOST_BREAKS = 8


def model_explanation(
    records: Sequence[Segmentation], calls: Sequence[str], *, every: bool = False
) -> str:
    """Return a model's modules and breaks; records: of its fusions for one target.

    calls: the external calls, as `aten.conv2d.default (10)`. every: all modules and breaks.
    """
    lines = [*_overview(records, calls), "", *_modules(records, every), *_breaks(records, every)]
    return "\n".join(lines) + "\n"


def _overview(records: Sequence[Segmentation], calls: Sequence[str]) -> Iterator[str]:
    target, segments = records[0].target, sum(len(r.segments) for r in records)
    kernels = sum(s.kernels for r in records for s in r.segments)
    parts = f"{count(len(records), 'fusion')}, " if len(records) > 1 else ""
    yield (
        f"The model on {target['device']} ({target['arch']}): {parts}"
        f"{count(segments, 'segment')}, {count(kernels, 'kernel')}"
    )
    traffic = sum(r.bytes for r in records), sum(r.floor_bytes for r in records)
    yield from row("traffic", moved(*traffic))
    yield from row("time", f"{time_text(sum(r.seconds for r in records))} predicted")
    fitted = fitted_elsewhere(target)
    yield from row("cost model", fitted) if fitted else ()
    yield from row("external", f"{', '.join(calls)}; not in these figures") if calls else ()


def _modules(records: Sequence[Segmentation], every: bool) -> Iterator[str]:
    tree = list(tree_of([s for r in records for s in r.segments]))
    whole = sum(r.seconds for r in records)
    shown = tree if every else _upper(tree)
    labels = ["  " * path.count(".") + _label(path) for path in (m.module for m in shown)]
    width = max(LABEL, *map(len, labels)) + 2
    yield f"{'Modules':<{width + 2}}{'time':>9}{'share':>8}{'segments':>10}  traffic"
    for label, module in zip(labels, shown, strict=True):
        time, share = time_text(module.seconds), share_text(module.seconds, whole)
        figures = f"{time:>9}{share:>8}{len(module.segments):>10}"
        yield f"  {label:<{width}}{figures}  {moved(module.bytes, module.floor_bytes)}"
    if len(shown) < len(tree):
        yield f"  {count(len(tree) - len(shown), 'inner module')} not shown: use `--all`"


def _label(path: str) -> str:
    return path.rpartition(".")[2] or "(the model)"


def _upper(tree: Sequence[ModuleFacts]) -> list[ModuleFacts]:
    """Return the modules down to the deepest level at which the table is short."""
    shown: list[ModuleFacts] = []
    for depth in range(1, 1 + max(len(parents_of(m.module)) for m in tree)):
        found = [m for m in tree if len(parents_of(m.module)) <= depth]
        if shown and len(found) > MOST_ROWS:
            break
        shown = found
    return shown


def _breaks(records: Sequence[Segmentation], every: bool) -> Iterator[str]:
    several = len(records) > 1
    found = [(r.fusion if several else "", b) for r in records for b in r.breaks]
    found.sort(key=lambda pair: -pair[1].bytes)
    shown = found if every else found[:MOST_BREAKS]
    if shown:
        yield ""
        yield "Breaks, by the traffic that one kernel would save"
    for fusion, each in shown:
        yield from _break(fusion, each)
    if len(shown) < len(found):
        yield f"  {count(len(found) - len(shown), 'smaller break')} not shown: use `--all`"


def _break(fusion: str, each: Break) -> Iterator[str]:
    inside = f" of {fusion}" if fusion else ""
    modules = dict.fromkeys(_label_of(m) for m in (each.producer_module, each.consumer_module))
    yield f"  {' -> '.join(modules)} ({each.producer} -> {each.consumer}{inside})"
    saved = f"at most {bytes_text(each.bytes)} and {time_text(each.seconds)}"
    yield from row("saves", f"{saved}: {names(each.tensors)}")
    yield from rows("because", each.because)
    yield from row("fix", each.fix or "none is known")


def _label_of(path: str) -> str:
    return path or "the model"
