"""Plans over hundreds or thousands of devices: a strong search with a stated budget, and a proven bound."""

from ignite_scheduler.planner.large.search import search

__all__ = ["search"]
