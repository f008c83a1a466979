"""Takes the digests of templates anew in tuned entries that were current at another revision.

    python tests/retake_digests.py REVISION

For edits of templates after which the kernels of the entries are the same machine code: what was
measured holds for them. An entry that was not current at the revision stays as it is.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from fusec.tuned.templates import digest, digest_of

ROOT = Path(__file__).resolve().parents[1]
TUNED = ROOT / "fusec" / "tuned" / "sm_90a.toml"
ENTRY = re.compile(r"^templates = \{.*\}$", re.MULTILINE)


@cache
def digest_at(revision: str, template: str) -> str:
    """Return the digest of a template as another revision has it."""

    def read(name: str) -> str:
        command = ["git", "-C", str(ROOT), "show", f"{revision}:fusec/templates/{name}"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    return digest_of(template, read)


def retaken(text: str, revision: str) -> str:
    """Return the entries with the digests of today where they were current at a revision."""

    def each(match: re.Match[str]) -> str:
        pairs = re.findall(r'(\w+) = "(\w+)"', match[0])
        if any(digest_at(revision, name) != taken for name, taken in pairs):
            return match[0]
        listed = ", ".join(f'{name} = "{digest(name)}"' for name, _ in pairs)
        return f"templates = {{{listed}}}"

    return ENTRY.sub(each, text)


def main() -> int:
    """Write the entries, and print how many lines differ."""
    (revision,) = sys.argv[1:]
    old = TUNED.read_text(encoding="utf-8")
    new = retaken(old, revision)
    TUNED.write_text(new, encoding="utf-8")
    lines = zip(old.split("\n"), new.split("\n"), strict=True)
    print(f"{sum(a != b for a, b in lines)} entries have new digests")
    return 0


if __name__ == "__main__":
    sys.exit(main())
