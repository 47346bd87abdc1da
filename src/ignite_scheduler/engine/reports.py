"""What a gang says of itself, oldest first. Past participles, like the controller's events; times are the reader's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """All ranks are up, hold their layers and begin with the first step.

    ``done`` steps were finished by earlier attempts, ``total`` is how many the job has, ``process_ids`` are by rank.
    """

    done: int
    total: int
    process_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed:
    """One more step is finished: ``done`` in all attempts together.

    ``grad_norm`` is the global norm before clipping; ``step`` is in seconds; ``busy`` are seconds of computing by rank,
    waiting left out; ``held_loss`` is the loss on held-out data where this step took it.
    """

    done: int
    loss: float
    grad_norm: float
    step: float
    busy: tuple[float, ...] = ()
    held_loss: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A whole checkpoint of ``num_bytes`` after ``done`` steps stands in ``directory``; it took ``seconds``."""

    done: int
    directory: str
    seconds: float
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """All steps are done and saved; every process is gone."""

    done: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The gang ended because it was told to; every process is gone. ``saved`` steps survive."""

    done: int
    saved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The gang died; every process is gone. ``saved`` steps survive.

    ``fault`` says who is to blame: a ``device`` (a process was killed, a peer fell silent) or the ``job`` (its model,
    data or settings raised). ``layer`` is named where one raised.
    """

    reason: str
    fault: Literal["device", "job"]
    saved: int
    rank: int | None = None
    device: str | None = None
    layer: str | None = None


Report = Started | Progressed | Saved | Finished | Stopped | Failed
Ending = Finished | Stopped | Failed
"""Reports after which the gang is gone."""
