"""Why a gang died: which rank is the cause, of several that ended within a moment."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """From a rank: why it ends. ``kind`` ``peer`` means that the cause lies elsewhere."""

    kind: Literal["job", "device", "peer"]
    reason: str
    layer: str | None = None
    peer: int | None = None
    """The rank that fell silent, where it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The rank to blame, and why."""

    rank: int
    reason: str
    fault: Literal["device", "job"]
    layer: str | None = None


def find_cause(codes: Sequence[int | None], troubles: Mapping[int, Trouble]) -> Cause:
    """The cause among exit statuses by rank (None = still alive, negative = killed by that signal) and last words.

    A rank that reported an error of its own comes first, then one that a signal killed, then one that left without a
    word, then one of which others say that it fell silent, or that alone has said nothing, and last a witness itself.
    """
    for rank, trouble in sorted(troubles.items()):
        if trouble.kind != "peer":
            return Cause(rank=rank, reason=trouble.reason, fault=trouble.kind, layer=trouble.layer)
    killed = {rank: -code for rank, code in enumerate(codes) if code is not None and code < 0}
    wordless = {rank: code for rank, code in enumerate(codes) if code and rank not in troubles}
    silent = [t.peer for t in troubles.values() if t.peer is not None and t.peer not in troubles]
    quiet = [rank for rank, code in enumerate(codes) if code is None and rank not in troubles]
    if not silent and len(quiet) == 1:  # an exchange among several does not tell who was missing
        silent = quiet
    if killed:
        rank, number = next(iter(killed.items()))
        return Cause(rank=rank, reason=f"died: signal {number}{_signal_name(number)}", fault="device")
    if wordless:
        rank, status = next(iter(wordless.items()))
        return Cause(rank=rank, reason=f"exited with status {status} without a word", fault="device")
    witness, trouble = next(iter(troubles.items()))
    if silent:
        return Cause(rank=silent[0], reason=f"fell silent, says rank {witness}: {trouble.reason}", fault="device")
    return Cause(rank=witness, reason=trouble.reason, fault="device")


def _signal_name(number: int) -> str:
    known = {member.value: member.name for member in signal.Signals}
    return f" ({known[number]})" if number in known else ""
