"""How benchmarks end: errors of the environment or of usage are a message, not a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

from fusec.diagnostics import FusecError


def end_with(main: Callable[[], int | None]) -> NoReturn:
    """Run a benchmark's main function and exit with its code, or with that of its error."""
    try:
        sys.exit(main())
    except FusecError as error:
        print(error.render(), file=sys.stderr)
        sys.exit(error.exit_code)
