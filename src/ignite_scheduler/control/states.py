"""The life of a job as a table: which state may follow which, and what brings it about.

The controller refuses any step that is not in the table, and the diagram in the documentation is printed from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class State(StrEnum):
    """Where a job is. The values are those that users see."""

    SUBMITTED = "submitted"
    """Its candidates are being made."""
    PLANNED = "planned"
    """It has candidates and is being admitted."""
    QUEUED = "queued"
    """It waits for devices that exist."""
    WAITING = "waiting"
    """Queued, but the devices that it needs do not exist at present."""
    STARTING = "starting"
    """Its gang holds devices and is coming up."""
    RUNNING = "running"
    STOPPING = "stopping"
    """Its gang still holds devices and has been told to end."""
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


HOLDING: Final = frozenset({State.STARTING, State.RUNNING, State.STOPPING})
"""States in which a job holds devices."""
FINAL: Final = frozenset({State.FINISHED, State.FAILED, State.CANCELLED})
"""States that a job never leaves."""

_ENDED = "the gang failed, was stopped or lost its node"
_LAST = "GangFailed for the last time, or its max_time is used up"

TRANSITIONS: Final[Mapping[State, Mapping[State, str]]] = MappingProxyType(
    {
        State.SUBMITTED: {
            State.PLANNED: "JobPlanned",
            State.WAITING: "JobRefused for what known devices may mend that are out of service",
            State.FAILED: "JobRefused",
            State.CANCELLED: "CancelRequested",
        },
        State.PLANNED: {
            State.QUEUED: "admitted",
            State.WAITING: "admitted, but no candidate fits the devices present",
            State.FAILED: "not admitted: deadline or budget cannot be met",
        },
        State.QUEUED: {
            State.STARTING: "the policy starts it",
            State.WAITING: "the devices that it needs went away",
            State.CANCELLED: "CancelRequested",
        },
        State.WAITING: {
            State.QUEUED: "a candidate fits the devices present",
            State.FAILED: "JobRefused for what no device can mend",
            State.CANCELLED: "CancelRequested",
        },
        State.STARTING: {
            State.RUNNING: "GangStarted",
            State.STOPPING: "preempted, cancelled, at its max_time, or part of its devices lost",
            State.FINISHED: "GangFinished (the answer to the start came late or never)",
            State.QUEUED: _ENDED,
            State.WAITING: _ENDED,
            State.FAILED: _LAST,
        },
        State.RUNNING: {
            State.FINISHED: "GangFinished",
            State.STOPPING: "preempted, cancelled, at its max_time, or part of its devices lost",
            State.QUEUED: _ENDED,
            State.WAITING: _ENDED,
            State.FAILED: _LAST,
        },
        State.STOPPING: {
            State.QUEUED: "GangStopped after a preemption or a lost node",
            State.WAITING: "GangStopped after a preemption or a lost node",
            State.FINISHED: "GangFinished before the stop came through",
            State.FAILED: "GangStopped with its max_time used up",
            State.CANCELLED: "GangStopped after a cancellation",
        },
        State.FINISHED: {},
        State.FAILED: {},
        State.CANCELLED: {},
    }
)


def format_transitions() -> str:
    """The table as lines of Mermaid's state diagram, for the documentation.

    >>> format_transitions().splitlines()[:2]
    ['stateDiagram-v2', '    [*] --> submitted']
    """
    lines = ["stateDiagram-v2", f"    [*] --> {State.SUBMITTED}"]
    for source, targets in TRANSITIONS.items():
        lines += [f"    {source} --> {target}: {cause}" for target, cause in targets.items()]
        if not targets:
            lines.append(f"    {source} --> [*]")
    return "\n".join(lines)
