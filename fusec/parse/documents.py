"""Files of other programs that contain a definition as formatted text: report their format."""

from __future__ import annotations

import re

_RICH = "save it as plain text"
_BINARY = (
    (b"%PDF-", "a PDF file", "copy its text into a plain text file"),
    (b"PK\x03\x04", "a Word file or another archive", _RICH),
    (b"\xd0\xcf\x11\xe0", "a Word file", _RICH),
)
_TEXTS = (
    (r"\{\\rtf", "an RTF file", _RICH),
    (r"(?i)<(?:!doctype\s|html\b|head\b|body\b|\?xml\b)",
     "an HTML or XML file", "save the text that it shows as plain text"),
    (r'\{\s*"(?:cells"\s*:\s*\[|nbformat|metadata"\s*:\s*\{(?s:.*)"nbformat")',
     "a notebook", "save the text of its cell as plain text"),
)  # fmt: skip


def document_of(data: bytes) -> tuple[str, str] | None:
    """Return the kind of a file of formatted text and what to do with it; None for all others."""
    for mark, what, help in _BINARY:
        if data.startswith(mark):
            return what, help
    text = data[:65536].decode("utf-8", errors="replace").lstrip()
    if not text.startswith(("{", "<")):
        return None
    return next(((what, help) for form, what, help in _TEXTS if re.match(form, text)), None)
