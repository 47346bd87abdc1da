"""One job: the best pipeline for it, what is proven about it, or why there is none."""

from ignite_scheduler.planner.catalogue import catalogue
from ignite_scheduler.planner.exhaustive import exhaustive
from ignite_scheduler.planner.problem import DEFAULT_WORK, Objective, Problem, microbatch_choices
from ignite_scheduler.planner.search import plan

__all__ = ["DEFAULT_WORK", "Objective", "Problem", "catalogue", "exhaustive", "microbatch_choices", "plan"]
