"""Emulated links: when a message that is ready now would arrive over a slow wire.

The sender books the wire and writes the time of delivery into the message; the message itself travels at once, and the
receiver waits until that time. So nobody needs a thread, sender and receiver go on computing, and each direction is one
serial resource, exactly as in the cost model. All processes must share one monotonic clock: one machine.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from ignite_scheduler.model import Link

_FREE_FROM = struct.Struct("<d")


class Wire(Protocol):
    """A serial resource."""

    def book(self, ready: float, seconds: float) -> tuple[float, float]:
        """Start and end of a message that takes ``seconds`` and is ready at ``ready``."""
        ...


class OwnWire:
    """A wire with one sender."""

    def __init__(self) -> None:
        self._free_from = 0.0

    def book(self, ready: float, seconds: float) -> tuple[float, float]:
        """Start and end of the message."""
        start = max(ready, self._free_from)
        self._free_from = start + seconds
        return start, self._free_from


class SharedWire:
    """A wire that several processes book, through a small file that all of them map."""

    def __init__(self, file: Path) -> None:
        self._descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self._descriptor, _FREE_FROM.size)
        self._map = mmap.mmap(self._descriptor, _FREE_FROM.size)

    def book(self, ready: float, seconds: float) -> tuple[float, float]:
        """Start and end of the message; senders are served in the order in which they ask."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        try:
            start = max(ready, _FREE_FROM.unpack_from(self._map)[0])
            _FREE_FROM.pack_into(self._map, 0, start + seconds)
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)
        return start, start + seconds


def open_wires(rank: int, links: Mapping[tuple[int, int], Link], directory: Path) -> dict[int, tuple[Link, Wire]]:
    """By target rank, the link and wire that ``rank`` sends over. Wires that several ranks use lie in ``directory``."""
    wires: dict[int, tuple[Link, Wire]] = {}
    names = sorted({repr(link.wire) for link in links.values()})
    for (source, target), link in links.items():
        if source != rank:
            continue
        shared = len({s for (s, _), other in links.items() if other.wire == link.wire}) > 1
        same = [wire for known, wire in wires.values() if known.wire == link.wire]
        if shared:
            directory.mkdir(parents=True, exist_ok=True)
            wires[target] = link, SharedWire(directory / f"wire-{names.index(repr(link.wire))}")
        else:
            wires[target] = link, same[0] if same else OwnWire()
    return wires
