"""Frames over a socket (a line of JSON, and bytes), and mutual authentication by a token."""

from __future__ import annotations

import hmac
import json
import os
import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from fusec.diagnostics import FusecError
from fusec.foreign import decode_json, decoding

GREETING = b"fusec ranks 1\n"
_LENGTHS = struct.Struct("!IQ")
_HEAD_LIMIT = 1 << 20
_CHUNK = 1 << 20
_AHEAD = 1 << 26
"""Bytes allocated in advance for an announced frame; more only once as many have arrived."""
_NONCE, _PROOF = 16, 32

Head = Mapping[str, Any]


class Ended(Exception):
    """The other end has closed the connection."""


class Refused(Exception):
    """The other end is not a rank, does not know the token, or sends a malformed frame."""


def need(frame: Any, **kinds: type | tuple[type, ...]) -> None:
    """Raise Refused unless a frame has fields of the given types; a bool does not count as int."""
    for name, kind in kinds.items():
        value = frame.get(name) if isinstance(frame, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise Refused(f"a malformed frame: no `{name}`")


def pack(head: Head, size: int) -> bytes:
    """Return the header that precedes the `size` bytes of a frame."""
    text = json.dumps(head).encode()
    return _LENGTHS.pack(len(text), size) + text


def receive_exactly(
    link: socket.socket, size: int, progress: Callable[[int], None] | None = None
) -> bytearray:
    """Return `size` bytes; `progress` is called with each chunk's size. Ended at end of stream."""
    data, come = bytearray(min(size, _AHEAD)), 0
    while come < size:
        if come == len(data):
            with decoding(Refused):
                data.extend(bytes(min(come, size - come)))
        try:
            with memoryview(data)[come : come + _CHUNK] as free:
                count = link.recv_into(free)
        except OSError as error:
            raise Ended from error
        if not count:
            raise Ended
        come += count
        if progress is not None:
            progress(count)
    return data


def receive(
    link: socket.socket, progress: Callable[[int], None] | None = None, *, most: int = 0
) -> tuple[dict[str, Any], bytearray]:
    """Return the next frame; Ended at end of stream, Refused for a malformed frame.

    progress: called with the size of each chunk of bytes that has arrived. most: maximum number of
    bytes that may follow the head.
    """
    head_size, size = _LENGTHS.unpack(receive_exactly(link, _LENGTHS.size))
    if head_size > _HEAD_LIMIT or size > most:
        raise Refused("a malformed frame: too long")
    text = receive_exactly(link, head_size)
    try:
        head = decode_json(bytes(text), "a frame")
    except FusecError as error:
        raise Refused("a malformed frame: no JSON") from error
    if not isinstance(head, dict):
        raise Refused("a malformed frame: no table")
    return head, receive_exactly(link, size, progress)  # pyright: ignore[reportUnknownVariableType]


def send(
    link: socket.socket, head: Head, data: Any = b"", progress: Callable[[int], None] | None = None
) -> None:
    """Send a frame; `progress` is called with the size of each chunk of bytes that was sent.

    It blocks until all is sent. Ended where the other end is gone, or another thread calls `end`.
    """
    left = memoryview(data).cast("B")
    try:
        link.sendall(pack(head, left.nbytes), socket.MSG_NOSIGNAL)
        while left.nbytes:
            count = link.send(left[:_CHUNK], socket.MSG_NOSIGNAL)
            left = left[count:]
            if progress is not None:
                progress(count)
    except OSError as error:
        raise Ended from error


def admit(link: socket.socket, token: str) -> None:
    """Greet a client and authenticate it by the token; Refused where it fails."""
    nonce = os.urandom(_NONCE)
    try:
        link.sendall(GREETING + nonce)
        answer = receive_exactly(link, _NONCE + _PROOF)
        theirs, proof = bytes(answer[:_NONCE]), bytes(answer[_NONCE:])
        if not hmac.compare_digest(proof, _proof(token, b"joins", nonce, theirs)):
            raise Refused
        link.sendall(_proof(token, b"holds", nonce, theirs))
    except (OSError, Ended) as error:
        raise Refused from error


def join(link: socket.socket, token: str, seconds: float) -> bool:
    """Authenticate to the server with the token.

    Return False if the server is not a rank of fusec; Refused if it has another token. seconds: per
    answer, after the greeting.
    """
    try:
        greeting = bytes(receive_exactly(link, len(GREETING)))
        if greeting != GREETING:
            return False
        link.settimeout(seconds)
        theirs = bytes(receive_exactly(link, _NONCE))
    except Ended:
        return False
    nonce = os.urandom(_NONCE)
    try:
        link.sendall(nonce + _proof(token, b"joins", theirs, nonce))
        answer = bytes(receive_exactly(link, _PROOF))
    except (OSError, Ended) as error:
        raise Refused from error
    if not hmac.compare_digest(answer, _proof(token, b"holds", theirs, nonce)):
        raise Refused
    return True


def _proof(token: str, role: bytes, first: bytes, second: bytes) -> bytes:
    return hmac.digest(token.encode(), role + first + second, "sha256")


def end(link: socket.socket) -> None:
    """Shut a socket down in both directions, and wake threads that wait on it.

    It is not closed: a thread about to wait on it could otherwise wait on a new socket of the same
    number.
    """
    with suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)


def close(link: socket.socket) -> None:
    """Shut down and close a socket that no other thread waits on."""
    end(link)
    link.close()
