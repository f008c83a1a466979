"""Compiled templates on disk: in `__pycache__`, by the rules of Python's byte code.

A user with write access to that folder can also write the byte code of fusec's modules, so it is
trusted like these. `PYTHONPYCACHEPREFIX` and `PYTHONDONTWRITEBYTECODE` apply.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from hashlib import sha256
from importlib.util import cache_from_source

import jinja2
from jinja2.bccache import Bucket, BytecodeCache

_DIGEST_BYTES = 32


class TemplateCache(BytecodeCache):
    """Caches the byte code of templates by their text, and by everything else that determines it.

    folder: of the templates; settings: of the environment that compiles them, where they are not
    Jinja's own. Jinja compares the digest of the text and the version of Python.
    """

    def __init__(self, folder: str, settings: object) -> None:
        """Read and write nothing yet."""
        about = f"{jinja2.__version__} {settings!r}"
        self._folder, self._about = folder, sha256(about.encode()).hexdigest()[:16]

    def load_bytecode(self, bucket: Bucket) -> None:
        """Load the byte code of a template; do nothing if it is missing, damaged or outdated."""
        try:
            with open(self._path(bucket), "rb") as file:
                content = file.read()
        except OSError:
            return
        taken, code = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if sha256(code).digest() == taken:
            bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write the byte code of a template to a temporary file and rename it, if possible."""
        if sys.dont_write_bytecode:
            return
        code, path = bucket.bytecode_to_string(), self._path(bucket)
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            descriptor, aside = tempfile.mkstemp(dir=os.path.dirname(path))
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(sha256(code).digest() + code)
                os.replace(aside, path)
            except BaseException:
                os.unlink(aside)
                raise

    def _path(self, bucket: Bucket) -> str:
        return cache_from_source(
            os.path.join(self._folder, f"template-{bucket.key}-{self._about}.py")
        )
