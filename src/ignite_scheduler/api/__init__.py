"""The Python API: load documents, measure, plan, simulate, run. Small and stable; heavy parts load when called."""

from ignite_scheduler.api.calibrating import Calibrated, calibrate
from ignite_scheduler.api.measuring import profile, resolve_source
from ignite_scheduler.api.planned import Planned
from ignite_scheduler.api.planning import pareto, plan, retimed
from ignite_scheduler.api.running import Ran, resume, run
from ignite_scheduler.api.simulating import Simulated, catalogue_planner, simulate
from ignite_scheduler.api.tracing import Traced, trace
from ignite_scheduler.formats import load_calibration, load_cluster, load_job, load_profile

__all__ = [
    "Calibrated",
    "Planned",
    "Ran",
    "Simulated",
    "Traced",
    "calibrate",
    "catalogue_planner",
    "load_calibration",
    "load_cluster",
    "load_job",
    "load_profile",
    "pareto",
    "plan",
    "profile",
    "resolve_source",
    "resume",
    "retimed",
    "run",
    "simulate",
    "trace",
]
