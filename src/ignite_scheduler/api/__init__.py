"""The Python API: load documents, measure, plan, simulate, run. Small and stable; heavy parts load when called."""

from ignite_scheduler.api.planned import Planned
from ignite_scheduler.api.planning import load_cluster, load_job, load_profile, pareto, plan

__all__ = ["Planned", "load_cluster", "load_job", "load_profile", "pareto", "plan"]
