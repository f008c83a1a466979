"""Reader of sections and symbols of 64-bit little-endian ELF files."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from fusec.dataclasses import dataclass
from fusec.properties import cached_property

# Offsets in the file header, and the table formats, as in the System V ABI.
_SECTIONS_AT = 0x28
_SECTION_COUNTS_AT = 0x3A  # bytes of an entry, entries, the entry of the section names
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_TABLE = 2
_NO_BITS = 8


@dataclass(frozen=True)
class Section:
    """A section: its offset and size in the file, and fields of its header."""

    number: int
    name: str
    kind: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True)
class Symbol:
    """A symbol; kind: the low 4 bits of its info byte, other: its visibility and further bits."""

    number: int
    name: str
    kind: int
    other: int
    section: int


@dataclass(frozen=True)
class Elf:
    """The bytes of an ELF file; reads past their end raise struct.error or ValueError."""

    image: bytes

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """Return the sections, in table order."""
        if self.image[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not a 64-bit ELF file")
        (start,) = struct.unpack_from("<Q", self.image, _SECTIONS_AT)
        size, count, names = struct.unpack_from("<HHH", self.image, _SECTION_COUNTS_AT)
        headers = [_SECTION.unpack_from(self.image, start + k * size) for k in range(count)]
        return tuple(
            Section(k, self._text(headers[names][4] + h[0]), h[1], h[4], h[5], h[6])
            for k, h in enumerate(headers)
        )

    @cached_property
    def by_name(self) -> dict[str, Section]:
        """Return the sections by name."""
        return {section.name: section for section in self.sections}

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """Return the symbols, in table order."""
        return tuple(self._symbols())

    def content(self, section: Section) -> bytes:
        """Return a section's bytes; empty where the loader fills it with zeros."""
        if section.kind == _NO_BITS:
            return b""
        return self.image[section.offset : section.offset + section.size]

    def _symbols(self) -> Iterator[Symbol]:
        for table in self.sections:
            if table.kind != _SYMBOL_TABLE:
                continue
            names = self.sections[table.link].offset
            for number, fields in enumerate(_SYMBOL.iter_unpack(self.content(table))):
                name, info, other, section, _, _ = fields
                yield Symbol(number, self._text(names + name), info & 15, other, section)

    def _text(self, start: int) -> str:
        return self.image[start : self.image.index(b"\0", start)].decode()
