"""`fusec cache`: the contents of the kernel cache, and how to empty it."""

from __future__ import annotations

from fusec import trust
from fusec.commands.report import count
from fusec.commands.terminal.diagnose import Report
from fusec.diagnostics import FusecError
from fusec.explain.units import bytes_text
from fusec.run.cache_size import VARIABLE, clear, entries, size_limit
from fusec.run.entries import cache_directory


def show_cache(report: Report) -> int:
    """Print the path of the cache, its number of kernels, its size and its limit."""
    found = list(entries(cache_directory()))
    report.facts["cache"] = {
        "place": str(cache_directory()), "entries": len(found),
        "bytes": sum(entry.size for entry in found), "limit_bytes": size_limit(), "untrusted": None,
    }  # fmt: skip
    rows = {
        "place": str(cache_directory()),
        "entries": str(len(found)),
        "size": bytes_text(sum(entry.size for entry in found)),
        "limit": f"{bytes_text(size_limit())} ({VARIABLE} sets it)",
    }
    for name, value in rows.items():
        print(f"{name:<10} {value}")
    try:
        trust.check(cache_directory())
    except trust.Untrusted as problem:
        print(f"{'not used':<10} {problem}")
        report.facts["cache"]["untrusted"] = str(problem)
    return 0


def clear_cache(report: Report) -> int:
    """Remove every kernel and plan from the cache, and print how much was removed."""
    directory = cache_directory()
    try:
        removed, size = clear(directory)
    except OSError as error:
        raise FusecError(f"cannot clear `{directory}`: {error.strerror or error}") from None
    report.facts["removed"] = {"entries": removed, "bytes": size}
    print(f"{count(removed, 'file')}, {bytes_text(size)} removed from {directory}")
    return 0
