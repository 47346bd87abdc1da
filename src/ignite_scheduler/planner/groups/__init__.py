"""Chains whose stages are groups of devices, with memory actions: searched exactly on small clusters."""

from ignite_scheduler.planner.groups.search import fits_here, search

__all__ = ["fits_here", "search"]
