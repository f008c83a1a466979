"""Fails if the test run skipped for a reason that .ci/skips.txt does not list."""

import re
import sys
from pathlib import Path

allowed = [
    line.strip()
    for line in Path(".ci/skips.txt").read_text(encoding="utf-8").splitlines()
    if line.strip() and not line.startswith("#")
]
log = Path(sys.argv[1]).read_text(encoding="utf-8")
found = re.findall(r"^SKIPPED \[\d+\] ([^\s]+?)(?::\d+)?: (.*)$", log, re.M)
bad = [f"{place}: {reason}" for place, reason in found if not any(a in reason for a in allowed)]
for line in bad:
    print("skipped for a reason that is not listed:", line)
sys.exit(1 if bad else 0)
