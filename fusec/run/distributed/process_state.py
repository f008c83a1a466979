"""Whether another process of this host is running, stopped or gone, from /proc."""

from __future__ import annotations

from pathlib import Path

RUNNING, STOPPED, GONE = "running", "stopped", "gone"
_STATE, _FLAGS, _START = 0, 6, 19
"""Fields of /proc/PID/stat, counted from 0 after the name (proc(5) counts them from 3)."""
_EXITING = 0x4
"""PF_EXITING of Linux: the process is releasing its files and memory and runs no more."""


class Observed:
    """A process, identified by pid and start time, since pids are reused."""

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
