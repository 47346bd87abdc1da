"""The multi-job scheduler: events, commands, state, transition table, ``handle(event) → commands``, invariants."""

from ignite_scheduler.control.controller import Controller
from ignite_scheduler.control.forecast import forecast
from ignite_scheduler.control.options import Options
from ignite_scheduler.control.records import Gang, JobRecord, Promise
from ignite_scheduler.control.states import FINAL, HOLDING, TRANSITIONS, State

__all__ = [
    "FINAL",
    "HOLDING",
    "TRANSITIONS",
    "Controller",
    "Gang",
    "JobRecord",
    "Options",
    "Promise",
    "State",
    "forecast",
]
