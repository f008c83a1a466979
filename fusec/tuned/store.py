"""Files of measured schedules: found by target, looked up by structure, merged as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from pathlib import Path

from fusec import trust
from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError, Span
from fusec.foreign import RECORD_BYTES, read_text
from fusec.options import environment
from fusec.properties import cached_property
from fusec.tuned.entry import Entry, damaged, read_entry
from fusec.tuned.key import Key, distance
from fusec.user_files import NO_FILES, TUNED, check_own, user_file

FOLDER = Path(__file__).parent
LEAST_DISTANCE = 1e-6
"""The minimum distance of different sizes."""
SHIPPED = "fusec"
"""The source name of the files that come with fusec."""

VERSION = 2
"""Version of the file format; earlier versions, and files without one, are read, too."""

_HEAD = f"""\
# Schedules that `fusec tune` measured: docs/tuning.md says what each field is.
version = {VERSION}
"""
_VERSION = re.compile(r"version = (\d{1,9})")
_ENTRY = re.compile(r"^\[\[entry\]\]", re.MULTILINE)
_STRUCTURE = re.compile(r'^structure = "(\w+)"$', re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """The text of an entry, parsed on demand."""

    text: str
    line: int


@dataclass(frozen=True)
class Store:
    """The text of one file; source: the name of its origin in reports."""

    path: str
    text: str
    source: str

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Return the blocks; FusecError for text before the first one."""
        starts = [m.start() for m in _ENTRY.finditer(self.text)]
        ends = [*starts[1:], len(self.text)]
        for number, line in enumerate(self.text[: (starts or ends)[0]].split("\n"), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            version = _VERSION.fullmatch(line.rstrip())
            if version is None:
                raise damaged(self.path, number, line, "a file must begin with `[[entry]]`", 0)
            if int(version[1]) > VERSION:
                raise _of_another_version(self.path, number, line, version[1])
        lines = 1
        found: list[Block] = []
        for start, end, before in zip(starts, ends, [0, *starts], strict=False):
            lines += self.text.count("\n", before, start)
            found.append(Block(self.text[start:end], lines))
        return tuple(found)

    @cached_property
    def by_structure(self) -> Mapping[str, Sequence[Block]]:
        """Return the blocks by structure, without parsing them."""
        found: dict[str, list[Block]] = {}
        for block in self.blocks:
            named = _STRUCTURE.search(block.text)
            if named is None:
                raise damaged(self.path, block.line, "[[entry]]", "the entry has no `structure`", 0)
            found.setdefault(named[1], []).append(block)
        return found

    def entries(self, structure: str | None = None) -> list[Entry]:
        """Return the entries, in order, or those of a structure; FusecError for a damaged one."""
        blocks = self.blocks if structure is None else self.by_structure.get(structure, ())
        return [read_entry(b.text, self.path, b.line) for b in blocks]


def _of_another_version(path: str, number: int, line: str, version: str) -> FusecError:
    return FusecError(
        f"tuned schedules: version {version} of the format; this fusec reads up to {VERSION}",
        span=Span(path, number, 1, len(line), line),
        help="use the fusec that wrote the file, or remove it: `fusec tune` measures again",
    )


def store_of(path: Path, source: str | None = None) -> Store:
    """Return the store of a file; a missing file has no entries."""
    text = read_text(path, "a file of tuned schedules", RECORD_BYTES) if path.exists() else ""
    return Store(str(path), text, source or str(path))


def shipped_file(arch: str) -> Path:
    """Return the file of a target that comes with fusec, where there is one."""
    return FOLDER / f"{arch}.toml"


def is_usable(path: Path) -> bool:
    """Return whether only this user can write the user's file; warn if not."""
    try:
        check_own(path)
    except trust.Untrusted as problem:
        trust.warn_unused("the file of measured schedules", problem, TUNED)
        return False
    return True


_READ: dict[tuple[Path, int, int], Store] = {}


def store_for(arch: str, folder: Path | None = None) -> list[Store]:
    """Return the stores of a target that have entries: the user's first, then the shipped ones.

    folder: if given, the only one used, as that of a compiled folder.
    """
    if folder is not None:
        files = [(folder / f"{arch}.toml", str(folder))]
    elif environment(TUNED) == NO_FILES:
        files = []
    else:
        own = user_file(arch)
        files = [(own, str(own))] if is_usable(own) else []
        files.append((shipped_file(arch), SHIPPED))
    stores = (_known(path, source) for path, source in files)
    return [store for store in stores if store is not None]


def _known(path: Path, source: str) -> Store | None:
    """Return the store of a file, read now or cached; None where there is no file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    key = (path, stat.st_mtime_ns, stat.st_size)
    if key not in _READ:
        _READ[key] = store_of(path, source)
    return _READ[key]


@dataclass(frozen=True)
class Found:
    """An entry of a segment's structure; doublings: the distance of its sizes, 0 if equal."""

    entry: Entry
    source: str
    doublings: float


def find(stores: Iterable[Store], scheduler: str, key: Key) -> list[Found]:
    """Return the entries of a segment's structure, the nearest sizes first.

    At equal distance, entries of the first store come first, then the fastest.
    """
    found: list[Found] = []
    for store in stores:
        own = [e for e in store.entries(key.structure) if e.scheduler == scheduler]
        own.sort(key=lambda e: e.us)
        found += (Found(e, store.source, _distance(e, key)) for e in own)
    return sorted(found, key=lambda each: each.doublings)


def _distance(entry: Entry, key: Key) -> float:
    if entry.is_of(key):
        return 0.0
    try:
        return max(distance(entry.sizes, key.sizes), LEAST_DISTANCE)
    except ValueError:  # another number of extents: the sizes were edited
        return inf


def merged(entries: Iterable[Entry]) -> list[Entry]:
    """Return the fastest entry for each place, preferring current templates; sorted."""
    best: dict[tuple[str, str, str], Entry] = {}
    for entry in entries:
        known = best.get(entry.place)
        if known is None or _worth(entry) < _worth(known):
            best[entry.place] = entry
    return [best[place] for place in sorted(best)]


def _worth(entry: Entry) -> tuple[bool, float, str]:
    return not entry.is_current, entry.us, entry.text()


def text_of(entries: Iterable[Entry]) -> str:
    """Return the text of a file."""
    return "\n".join([_HEAD, *(e.text() for e in entries)])


def write(path: Path, entries: Iterable[Entry]) -> None:
    """Write a file atomically; FusecError where that fails."""
    aside = path.with_name(f".{path.name}.part")
    try:
        trust.make_private(path.parent)
        aside.write_text(text_of(entries), encoding="utf-8")
        aside.chmod(0o644)  # files that others can write are not used
        aside.replace(path)
    except OSError as error:
        raise FusecError(f"cannot write `{path}`: {error.strerror or error}") from None
