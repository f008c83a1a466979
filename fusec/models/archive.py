"""The members of a zip archive, as views of the mapped file; nothing is unpickled."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any
from zlib import crc32

from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError
from fusec.foreign import RECORD_BYTES, Name, decode_json, decoding, mapped_zip, not_a

WHAT = "an archive of torch.export"
HELP = "write one with `torch.export.save(torch.export.export(model, inputs), 'MODEL.pt2')`"
GRAPH_BYTES = 16 * RECORD_BYTES
"""Maximum bytes of a model's graph: about half a million nodes."""


@dataclass(frozen=True)
class Archive:
    """A zip file whose members are in one folder, as torch.export writes it."""

    path: str
    folder: str
    members: Mapping[str, tuple[memoryview, int]]

    def bytes_of(self, name: str) -> memoryview:
        """Return the bytes of a member; FusecError where there is none."""
        found = self.members.get(f"{self.folder}{name}")
        if found is None:
            raise FusecError(f"`{self.path}` is not {WHAT}", notes=(f"no `{name}`",), help=HELP)
        data, checksum = found
        if crc32(data) != checksum:
            raise FusecError(f"`{self.path}` is damaged: member `{name}` has another checksum")
        return data

    def has(self, name: str) -> bool:
        """Return whether there is a member of this name."""
        return f"{self.folder}{name}" in self.members

    def text_of(self, name: str) -> str:
        """Return a short text."""
        data = bytes(self.bytes_of(name)[:64])
        with decoding(not_a(f"{self.path}/{name}", "text")):
            return data.decode("ascii").strip()

    def json_of(self, name: str) -> Any:
        """Return the contents of a JSON member."""
        data = self.bytes_of(name)
        if len(data) > GRAPH_BYTES:
            raise FusecError(f"`{self.path}/{name}` is too long (over {GRAPH_BYTES} bytes)")
        return decode_json(bytes(data), f"{self.path}/{name}")


@contextmanager
def opened_archive(path: Name) -> Generator[Archive]:
    """Open the archive of a file; FusecError if it is not one."""
    with mapped_zip(path, WHAT, HELP) as members:
        folders = [n.removesuffix("archive_format") for n in members if _is_format(n)]
        if len(folders) != 1:
            reason = "no `archive_format`" if not folders else "several models in one archive"
            raise FusecError(f"`{path}` is not {WHAT}", notes=(reason,), help=HELP)
        yield Archive(str(path), folders[0], members)


def _is_format(name: str) -> bool:
    return name == "archive_format" or (name.count("/") == 1 and name.endswith("/archive_format"))
