"""Untrusted bytes: read with limits, decoded without leaking exceptions.

Every file that a user names, every file of a compiled folder and every frame of another rank is
read here; `tests/project/test_foreign.py` finds modules that read one directly. It imports only the
standard library, as the process that watches a rank does.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from fusec.diagnostics import FusecError

TEXT_BYTES = 64 << 20
"""Maximum bytes of a fusion file, a script or a kernel's CUDA source."""
RECORD_BYTES = 16 << 20
"""Maximum bytes of a JSON or TOML file."""
CODE_BYTES = 1 << 30
"""Maximum bytes of a cubin, or of another file of a compiled folder."""

Name = str | os.PathLike[str]
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISSOCK, "a socket"),
)


class MissingFile(FusecError):
    """The file does not exist."""


class Undecodable(FusecError):
    """The bytes are not of their format; `reason` is the decoder's message, without the file."""

    reason = ""


@contextmanager
def opened(path: Name, what: str, most: int) -> Generator[tuple[BinaryIO, os.stat_result]]:
    """Open a regular file of at most `most` bytes, with its status; FusecError for any other.

    what: the expected kind of file, with its article. A FIFO does not block and a device is not
    read.
    """
    name = os.fspath(path)
    try:
        number = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFile(f"no such file: `{name}`") from None
    except (OSError, ValueError) as error:
        raise unreadable(name, error) from None
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            kind = next((text for fits, text in _KINDS if fits(status.st_mode)), "a special file")
            raise FusecError(f"`{name}` is {kind}, not {what}")
        if status.st_size > most:
            raise _too_large(name, what, most)
        with open(number, "rb", closefd=False) as file:
            yield file, status
    finally:
        os.close(number)


def check_file(path: Name, what: str, most: int) -> None:
    """Raise FusecError if `path` cannot be read as a regular file of at most `most` bytes."""
    with opened(path, what, most):
        pass


def read_bytes(path: Name, what: str, most: int) -> bytes:
    """Return the bytes of a regular file; FusecError if it is not one, too large or unreadable."""
    with opened(path, what, most) as (file, status):
        try:
            return file.read(status.st_size)
        except (OSError, MemoryError) as error:
            raise unreadable(os.fspath(path), error) from None


def read_text(path: Name, what: str, most: int, help: str | None = None) -> str:
    """Return the text of a regular file in UTF-8; FusecError if it is not one."""
    return decode_text(read_bytes(path, what, most), path, help)


def read_standard_input(what: str, most: int) -> bytes:
    """Return the content of standard input; FusecError if it is too large."""
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise FusecError("standard input is closed", help="pass a file instead of `-`")
    data = sys.stdin.buffer.read(most + 1)
    if len(data) > most:
        raise _too_large("<stdin>", what, most)
    return data


def unreadable(name: str, error: Exception) -> FusecError:
    """Return the error for a file that the system does not let read."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return FusecError(f"cannot read `{name}`: {reason}")


def _too_large(name: str, what: str, most: int) -> FusecError:
    return FusecError(f"`{name}` is too long for {what} (over {most} bytes)")


@contextmanager
def decoding(fail: Callable[[str], Exception]) -> Generator[None]:
    """Raise `fail(reason)` for any exception of a decoder that is not a FusecError.

    Decoders raise many types on damaged bytes: only their call belongs inside.
    """
    try:
        yield
    except FusecError:
        raise
    except Exception as error:
        raise fail(_reason(error)) from None


def not_a(path: Name, what: str, help: str | None = None) -> Callable[[str], Undecodable]:
    """Return a function from a decoder's reason to the error for a file that is not `what`."""

    def fail(reason: str) -> Undecodable:
        error = Undecodable(f"`{os.fspath(path)}` is not {what}", notes=(reason,), help=help)
        error.reason = reason
        return error

    return fail


def _reason(error: Exception) -> str:
    """Return the first line of a decoder's message, short enough for an error."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, MemoryError):
        return "it does not fit in memory"
    lines = str(error).splitlines() or [""]
    text = lines[0].strip()[:300] or type(error).__name__
    return f"it has no {text}" if isinstance(error, KeyError) else text


def decode_text(data: bytes, path: Name, help: str | None = None) -> str:
    """Return bytes as text in UTF-8; FusecError if they are not valid."""
    with decoding(not_a(path, "UTF-8 text", help)):
        return data.decode("utf-8")


def decode_json(data: bytes | str, path: Name) -> Any:
    """Return the content of a JSON text; FusecError if it is not valid."""
    import json

    with decoding(not_a(path, "JSON")):
        return json.loads(data)


def decode_toml(text: str, path: Name) -> dict[str, Any]:
    """Return the content of a TOML text; FusecError if it is not valid."""
    import tomllib

    with decoding(not_a(path, "TOML")):
        return tomllib.loads(text)


def read_json(path: Name, what: str) -> Any:
    """Return the content of a JSON file; FusecError if it is not valid."""
    return decode_json(read_bytes(path, what, RECORD_BYTES), path)


def read_toml(path: Name, what: str) -> dict[str, Any]:
    """Return the content of a TOML file; FusecError if it is not valid."""
    return decode_toml(read_text(path, what, RECORD_BYTES), path)


def yaml_events(text: str, path: Name) -> Iterator[Any]:
    """Yield the events of a YAML text; yaml.YAMLError, or FusecError if the parser fails."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    parse: Any = yaml.parse  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    events: Iterator[Any] = parse(text, Loader=loader)
    while True:
        event: Any = None
        wrong: yaml.YAMLError | None = None
        with decoding(not_a(path, "YAML")):
            try:
                event = next(events, None)
            except yaml.YAMLError as error:
                wrong = error
        if wrong is not None:
            raise wrong
        if event is None:
            return
        yield event


ARRAYS = "a file of arrays"
_READABLE = "a readable .safetensors or .npz file"


def load_npz(path: Name) -> dict[str, Any]:
    """Return the arrays of a .npz file by name; FusecError if it is damaged or not one."""
    import numpy as np

    with opened(path, ARRAYS, memory_bytes()) as (file, _), decoding(not_a(path, _READABLE)):
        archive: Any = np.load(file, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("a .npy file with one array")
        if sum(member.file_size for member in archive.zip.infolist()) > memory_bytes():
            raise MemoryError
        arrays = {str(name): archive[name] for name in archive.files}
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray):
                raise ValueError(f"member `{name}` is not an array")
        return arrays


_HEADER_BYTES = 100_000_000
"""Maximum size of the header of a .safetensors file, by its format."""


def load_safetensors(path: Name) -> list[tuple[str, dict[str, Any]]]:
    """Return the entries of a .safetensors file; FusecError if it is damaged or not one."""
    import safetensors

    module: Any = safetensors
    with opened(path, ARRAYS, memory_bytes()) as (file, status), decoding(not_a(path, _READABLE)):
        header = int.from_bytes(file.read(8), "little")
        if not 0 < header <= min(_HEADER_BYTES, status.st_size - 8):
            raise ValueError("invalid header length")
        file.seek(0)
        return module.deserialize(file.read(status.st_size))


def map_safetensors(path: Name) -> dict[str, tuple[str, tuple[int, ...], memoryview]]:
    """Return (dtype, shape, bytes) of the entries of a .safetensors file, as views of the file.

    FusecError if it is damaged or not one.
    """
    with mapped(path, ARRAYS, 1 << 48) as data, decoding(not_a(path, _READABLE)):
        length = int.from_bytes(data[:8], "little")
        if not 0 < length <= min(_HEADER_BYTES, len(data) - 8):
            raise ValueError("invalid header length")
        entries = decode_json(bytes(data[8 : 8 + length]), path)
        entries.pop("__metadata__", None)
        return {str(n): _mapped_entry(e, data[8 + length :]) for n, e in entries.items()}


def _mapped_entry(entry: Any, data: memoryview) -> tuple[str, tuple[int, ...], memoryview]:
    begin, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    if not all(type(n) is int and n >= 0 for n in (begin, end, *shape)):
        raise ValueError("an offset or a size is not an integer")
    if not begin <= end <= len(data):
        raise ValueError("a tensor exceeds the file")
    return str(entry["dtype"]), shape, data[begin:end]


@contextmanager
def mapped(path: Name, what: str, most: int) -> Generator[memoryview]:
    """Yield the bytes of a regular file as a memory mapping; nothing is read eagerly.

    Views that outlive the block keep the mapping.
    """
    import mmap

    with opened(path, what, most) as (file, status):
        if status.st_size == 0:
            yield memoryview(b"")
            return
        try:
            whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise unreadable(os.fspath(path), error) from None
    yield memoryview(whole)


@contextmanager
def mapped_zip(path: Name, what: str, help: str) -> Generator[dict[str, tuple[memoryview, int]]]:
    """Yield the members of a zip file by name, as (view of the mapped file, CRC-32 of its bytes).

    FusecError for a file that is not one, and for members that are compressed or encrypted.
    """
    import zipfile

    with mapped(path, what, 1 << 48) as data, decoding(not_a(path, what, help)):
        with opened(path, what, 1 << 48) as (file, _):
            found = zipfile.ZipFile(file).infolist()
        members = {entry.filename: (_stored(entry, data), entry.CRC) for entry in found}
        if len(members) != len(found):
            raise ValueError("two members of one name")
    yield members


_LOCAL_HEADER, _LOCAL_MAGIC = 30, b"PK\3\4"


def _stored(entry: Any, data: memoryview) -> memoryview:
    """Return the bytes of a member that is stored uncompressed."""
    if entry.compress_type != 0 or entry.flag_bits & 1:
        raise ValueError(f"member `{entry.filename}` is compressed or encrypted")
    at = entry.header_offset
    head = bytes(data[at : at + _LOCAL_HEADER])
    if len(head) < _LOCAL_HEADER or head[:4] != _LOCAL_MAGIC:
        raise ValueError(f"member `{entry.filename}` has no header")
    start = at + _LOCAL_HEADER + sum(int.from_bytes(head[k : k + 2], "little") for k in (26, 28))
    found = data[start : start + entry.file_size]
    if len(found) != entry.file_size or entry.file_size != entry.compress_size:
        raise ValueError(f"member `{entry.filename}` ends before its size")
    return found


def memory_bytes() -> int:
    """Return the bytes of this machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
