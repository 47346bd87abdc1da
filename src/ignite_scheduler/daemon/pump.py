"""One event at a time: journal → handle → journal → dispatch; and the way back after a crash.

Theory of operation
-------------------
``Pump.feed`` takes four steps: (1) the event becomes durable, (2) the core decides, (3) the decision is written, (4)
the commands are carried out. A crash may come between any two of them:

- before (1): nothing happened. The gang or the user that caused the event still knows, or the next listing shows it.
- between (1) and (3): the journal ends in an event without a decision. The core is deterministic: :func:`recover`
  decides again and writes the decision down.
- between (3) and (4), or within (4): some commands were not carried out. Unanswered ``PlanJob`` and unfired
  ``SetTimer`` are handed back by :func:`recover` to be carried out (twice does no harm). Gangs are not started from
  the past: ``ClusterObserved`` tells the core what really runs, and the core commands what is missing. Reality wins.

:func:`replay` holds a journal against a fresh core: the same events must give the same commands, or the core is not
the pure function that everything here relies on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ignite_scheduler.control.commands import Command, PlanJob, SetTimer
from ignite_scheduler.control.events import Event, JobPlanned, JobRefused, TimerFired
from ignite_scheduler.daemon.ports import Core, Journal, Record
from ignite_scheduler.errors import ConflictError

Observer = Callable[[Record], None]
"""Told of each handled event, after its decision is written and before it is carried out."""


class Pump:
    """Feeds events to the core, with the journal before and after.

    Parameters
    ----------
    core, journal
        The ports.
    dispatch
        Carries one command out. It must not raise because of the world.
    observer
        Told of each record; for views and reports.
    last_at
        Time of the last event in the journal (0 for a new one): no event may be earlier than the one before it.
    """

    def __init__(
        self,
        *,
        core: Core,
        journal: Journal,
        dispatch: Callable[[Command], None],
        observer: Observer | None = None,
        last_at: float = 0.0,
    ) -> None:
        self._core = core
        self._journal = journal
        self._dispatch = dispatch
        self._observer = observer
        self._last_at = last_at

    def feed(self, event: Event) -> tuple[Command, ...]:
        """Handle one event durably and return the commands that were carried out.

        Notes
        -----
        Reports are stamped where they arise, so two of them can arrive a little out of order; their times are lifted
        to that of the event before, since the core counts on time that never falls.
        """
        if event.at < self._last_at:
            event = replace(event, at=self._last_at)
        self._last_at = event.at
        sequence = self._journal.append_event(event)
        commands = tuple(self._core.handle(event))
        self._journal.append_commands(sequence, commands)
        if self._observer is not None:
            self._observer(Record(sequence=sequence, event=event, commands=commands))
        for command in commands:
            self._dispatch(command)
        return commands


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """An event on which a fresh core decided otherwise than the journal says."""

    sequence: int
    event: Event
    recorded: tuple[Command, ...]
    replayed: tuple[Command, ...]


def replay(records: Iterable[Record], core: Core) -> tuple[Mismatch, ...]:
    """Events on which ``core``, fresh, decides otherwise than recorded; empty if the replay law holds.

    Notes
    -----
    One pass, one call of the core for each event. A last event without a decision is handled but cannot mismatch.
    """
    decided = ((record, tuple(core.handle(record.event))) for record in records)
    return tuple(
        Mismatch(sequence=record.sequence, event=record.event, recorded=record.commands, replayed=commands)
        for record, commands in decided
        if record.commands is not None and commands != record.commands
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What a journal leaves to do: timers that have not fired and plans that were not answered.

    ``last_at`` is the time of its last event, 0 where there is none.
    """

    last_at: float
    timers: tuple[SetTimer, ...]
    plans: tuple[PlanJob, ...]


def recover(journal: Journal, core: Core, observer: Observer | None = None) -> Recovery:
    """Bring a fresh ``core`` to the state at the journal's end, deciding a last undecided event.

    Raises
    ------
    ConflictError
        The core decides otherwise than recorded, so its state would not be that of the run: another version of the
        package, or other documents, wrote this journal. The message names the first such event.
    """
    last_at = 0.0
    timers: dict[str, SetTimer] = {}
    plans: dict[str, PlanJob] = {}
    for record in journal.records():
        commands = tuple(core.handle(record.event))
        if record.commands is None:
            journal.append_commands(record.sequence, commands)
        elif commands != record.commands:
            raise ConflictError(
                "this journal cannot be continued (was it written by another version, or for another cluster?): "
                f"expected that event {record.sequence}, {record.event}, leads to {record.commands}, found {commands}"
            )
        if observer is not None:
            observer(Record(sequence=record.sequence, event=record.event, commands=commands))
        last_at = record.event.at
        _settle(record.event, commands, timers, plans)
    return Recovery(last_at=last_at, timers=tuple(timers.values()), plans=tuple(plans.values()))


def _settle(
    event: Event, commands: tuple[Command, ...], timers: dict[str, SetTimer], plans: dict[str, PlanJob]
) -> None:
    """Strike off what the event answers, note down what the commands ask for."""
    match event:
        case TimerFired(timer_id=timer_id):
            timers.pop(timer_id, None)
        case JobPlanned() | JobRefused():
            asked = plans.get(event.job_id)
            if asked is not None and asked.planning == event.planning:
                del plans[event.job_id]
    for command in commands:
        match command:
            case SetTimer():
                timers[command.timer_id] = command
            case PlanJob():
                plans[command.job_id] = command
