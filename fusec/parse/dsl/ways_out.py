"""Suggestions for errors that Python or another library raises in a script."""

from __future__ import annotations

import re

from fusec.diagnostics import FusecError, Span
from fusec.ir.dtype import find as find_dtype
from fusec.ops import TABLE
from fusec.ops.find import nearest
from fusec.ops.frameworks import find_bare
from fusec.parse.dsl.datatype import of_dtype
from fusec.parse.dsl.size import Size
from fusec.parse.dsl.written import written_call
from fusec.parse.scope import number_called

_IMPORTS = {
    "torch": "import torch", "F": "import torch.nn.functional as F", "nn": "import torch.nn as nn",
    "np": "import numpy as np", "numpy": "import numpy", "math": "import math",
    "FusionDefinition": "from fusec import DataType, FusionDefinition",
    "DataType": "from fusec import DataType, FusionDefinition",
}  # fmt: skip
_CALL = re.compile(r"([A-Za-z_][\w.]*)\((.*)\)")
_RANGE = re.compile(r"range\(\s*(?:\w+\s*,\s*)?([A-Za-z_]\w*)\s*\)")


def way_out(error: Exception, span: Span) -> str | None:
    """Return a suggestion for a Python error at a location of a script; None if there is none."""
    if isinstance(error, NameError):
        return _named(str(error.name), span) or _variable(str(error.name), error)
    if isinstance(error, ModuleNotFoundError):
        return _imported(str(error.name))
    if isinstance(error, AttributeError) and isinstance(error.obj, Size) and error.name in TABLE:
        return f"a dim has no methods: write `fd.ops.{error.name}({error.obj})`"
    if not isinstance(error, TypeError):
        return None
    if str(error) == "'Tensor' object is not iterable" and "sum(" not in span.text:
        return "`fd.ops.unbind(x, dim)` returns the parts along a dim of constant extent"
    said = span.text[span.column - 1 : span.column - 1 + span.width]
    called, counted = _CALL.fullmatch(said), _RANGE.fullmatch(said)
    if counted is not None:
        name = counted[1]
        told = "a dim of a fusion has no value while the fusion is being defined"
        return f"{told}: give `{name}` a number of its own, as in `{name} = 4`, and use that"
    if called is not None and called[1] in ("float", "int") and "'Size'" in str(error):
        line = span.text.strip().replace(said, called[2])
        return f"a dim of a fusion is used as it is: write `{line}`"
    written = None if called is None else written_call(span)
    if called is None or written is None:
        return None
    return f"`{called[1]}` takes no tensor of a fusion: write `{written}`"


def _named(name: str, span: Span) -> str | None:
    """Return a suggestion for a name that the script does not define."""
    if name in _IMPORTS:
        return f"write `{_IMPORTS[name]}` above"
    if name == "ops":
        return "operations are methods of `fd.ops`"
    try:
        return f"write `{of_dtype(find_dtype(name))}`"
    except FusecError:
        pass
    is_called = span.text[span.column - 1 + span.width :].startswith("(")
    if is_called and (name in TABLE or find_bare(name) is not None):
        return f"operations are methods of `fd.ops`: write `fd.ops.{name}(...)`"
    return None


def _variable(name: str, error: NameError) -> str:
    """Return the variable that a name is a misspelling of, or how to define it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    known = set[str]() if trace is None else {*trace.tb_frame.f_locals, *trace.tb_frame.f_globals}
    meant = nearest(name, sorted(known)) if len(name) > 2 else None
    if meant is not None:
        return f"did you mean `{meant}`?"
    number = number_called(name)
    if number is not None:
        return f"write `{name} = {number}` above"
    if name[0].isupper() and len(name) < 3:
        return f'for a size write `{name} = fd.define_dim("{name}", 1024)` above'
    return f"define `{name}` above; an input is `{name} = fd.define_tensor(...)`"


def _imported(name: str) -> str:
    """Return a suggestion for a module that is not installed."""
    if name == "einops":
        return "remove the line: `fd.ops.rearrange` takes patterns of einops"
    return "install it, or remove the line"
