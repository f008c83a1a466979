"""Suggestions for a class of PyTorch modules where a fusion is expected."""

from __future__ import annotations

import re

MODULE_CLASS = re.compile(r"(?m)^\s*class \w+\((?:[\w.]+\.)?Module\)")
EXPORTED = (
    "export the module: `torch.export.save(torch.export.export(model, inputs), 'MODEL.pt2')`, "
    "and import it: `fusec import MODEL.pt2 -o DIR`; or write the lines of its forward as op lines"
)
