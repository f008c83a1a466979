"""Meshes and shardings in the syntax of a fusion file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fusec.ir.dim import Dim
from fusec.ir.sharding import STREAM, Mesh, Part, Sharding

DEFAULT_AXES = (("mesh",), ("mesh_y", "mesh_x"), ("mesh_z", "mesh_y", "mesh_x"))
"""Default axis names of a mesh, outermost first: x is nvFuser's innermost."""
_PLAIN = r"[A-Za-z0-9_](?:[A-Za-z0-9_.+*/% ()-]*[A-Za-z0-9_)])?"


def mesh_text(mesh: Mesh) -> str:
    """Return the sizes of a mesh, with the names of its axes unless they are the defaults."""
    names = tuple(name for name, _ in mesh.axes)
    return f"[{', '.join(map(str, mesh.shape))}]" if names in DEFAULT_AXES else f"{{{mesh}}}"


def sharding_text(sharding: Sharding, mesh: Mesh | None) -> Iterator[str]:
    """Yield the clauses `shard: {...}` and `stream: {...}` of a sharding.

    The factors of a dim are listed under `shard`, except for an innermost stream.
    """
    if sharding.ranks is not None:
        yield f"ranks: [{', '.join(map(str, sharding.ranks))}]"
    if sharding.is_whole:
        if sharding.ranks is None:
            yield "stream: {}" if mesh is None else "shard: {}"
        return
    shards, streams = list[str](), list[str]()
    for k, parts in enumerate(sharding.dims):
        listed = list(parts)
        if listed and listed[-1].axis == STREAM:
            streams.append(f"{k}: {_size(listed.pop().parts)}")
        texts = [_factor(part) for part in listed]
        if texts:
            plain = len(texts) == 1 and listed[0].axis not in (None, STREAM)
            shards.append(f"{k}: {texts[0]}" if plain else f"{k}: [{', '.join(texts)}]")
    if shards:
        yield f"shard: {{{', '.join(shards)}}}"
    if streams:
        yield f"stream: {{{', '.join(streams)}}}"


def _factor(part: Part) -> str:
    if part.axis is None or part.axis == STREAM:
        return f"{{{part.axis or 'whole'}: {_size(part.parts)}}}"
    return part.axis


def _size(size: Dim) -> str:
    text = str(size)
    return text if re.fullmatch(_PLAIN, text) else f'"{text}"'
