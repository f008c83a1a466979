"""`nvfuser` and `nvfuser_direct` implemented by fusec, for programs that use nvFuser's API."""

from __future__ import annotations

import sys

from fusec.diagnostics import FusecError


def install() -> None:
    """Make `import nvfuser` and `import nvfuser_direct` import fusec from now on, in all modules.

    FusecError if nvFuser itself is imported already.
    """
    from fusec.nvfuser.modules import NvFuserModule, make_modules

    for root in ("nvfuser", "nvfuser_direct"):
        loaded = sys.modules.get(root)
        if isinstance(loaded, NvFuserModule):
            return
        if loaded is not None:
            raise FusecError(
                f"`{root}` is already imported from {getattr(loaded, '__file__', 'elsewhere')}",
                help="call fusec.nvfuser.install() before the first import of it",
            )
    sys.modules.update(make_modules())
