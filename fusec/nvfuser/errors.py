"""Errors of definitions that clients of nvFuser catch as Python's built-in classes."""

from __future__ import annotations

from fusec.diagnostics import FusecError


class Undefined(FusecError, NotImplementedError):
    """There is nothing to run yet."""


class NotExecuted(FusecError):
    """Something that only an execution produces is accessed before it."""


class BadArgument(FusecError, ValueError):
    """An argument of the right type has an invalid value."""
