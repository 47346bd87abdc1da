"""One iteration of one pipeline: what each worker does in which order, and when.

A schedule is a list of actions for each worker. The cost model times it, pictures draw it, the engine executes it:
there is one definition of each order in the tree. This package knows numbers of seconds only as given; where they
come from is :mod:`ignite_scheduler.cost`.
"""

from ignite_scheduler.pipeline.actions import Action
from ignite_scheduler.pipeline.metrics import Busiest, bottleneck, bubble_fraction, critical_path
from ignite_scheduler.pipeline.schedules import (
    SCHEDULES,
    Schedule,
    format_schedule,
    graph_depths,
    in_flight,
    make_schedule,
    parse_schedule,
)
from ignite_scheduler.pipeline.timeline import Durations, Edge, Interval, Reduction, Timeline, Transfer, timeline
from ignite_scheduler.pipeline.validation import validate

__all__ = [
    "SCHEDULES",
    "Action",
    "Busiest",
    "Durations",
    "Edge",
    "Interval",
    "Reduction",
    "Schedule",
    "Timeline",
    "Transfer",
    "bottleneck",
    "bubble_fraction",
    "critical_path",
    "format_schedule",
    "graph_depths",
    "in_flight",
    "make_schedule",
    "parse_schedule",
    "timeline",
    "validate",
]
