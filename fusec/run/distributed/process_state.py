"""Whether another process of this host runs, is stopped, or is gone, by /proc."""

from __future__ import annotations

from pathlib import Path

RUNNING, STOPPED, GONE = "running", "stopped", "gone"
_STATE, _FLAGS, _START = 0, 6, 19
"""Fields of /proc/PID/stat, counted behind the name (proc(5) counts them from 3)."""
_EXITING = 0x4
"""PF_EXITING of the kernel: the process gives its files and memory back and runs no more."""


class Observed:
    """A process, told apart from a later one with the same id by when it started."""

    def __init__(self, pid: int) -> None:
        """Observe a process from now on."""
        self.pid = pid
        fields = self._fields()
        self._start = fields[_START] if fields else ""

    def state(self) -> str:
        """Return RUNNING, STOPPED (as by SIGSTOP) or GONE; RUNNING where there is no /proc."""
        if not self._start:
            return RUNNING
        fields = self._fields()
        if not fields or fields[_START] != self._start or fields[_STATE] in "ZXx":
            return GONE
        if int(fields[_FLAGS]) & _EXITING:
            return GONE
        return STOPPED if fields[_STATE] == "T" else RUNNING

    def _fields(self) -> list[str]:
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text(errors="replace")
        except OSError:
            return []
        return text.rpartition(")")[2].split()
