"""One job, several objectives: the plans of which no other is better in all of them."""

from ignite_scheduler.planner.pareto.objectives import CRITERIA, Criterion, Figures
from ignite_scheduler.planner.pareto.search import ParetoSet, Point, pareto

__all__ = ["CRITERIA", "Criterion", "Figures", "ParetoSet", "Point", "pareto"]
