"""Folders of the repository and of its tests, which mirror `fusec/`.

To import this module lets tests and helpers in all folders be imported by name. No folder has the
name of a module that scripts import: `nvfuser` is found by its absence.
"""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent

sys.path += sorted({str(path.parent) for path in TESTS.glob("*/test_*.py")} - {*sys.path})
