"""Driver 1 of the scheduler: simulated devices and time. The deciding code is the same as in the live loop."""

from ignite_scheduler.simulation.driver import Costs, Planner, simulate
from ignite_scheduler.simulation.report import CSV_COLUMNS, JobRow, PolicyResult, csv_rows, report_document
from ignite_scheduler.simulation.world import NodeFault, Segment

__all__ = [
    "CSV_COLUMNS",
    "Costs",
    "JobRow",
    "NodeFault",
    "Planner",
    "PolicyResult",
    "Segment",
    "csv_rows",
    "report_document",
    "simulate",
]
