"""Measures models: layer by layer, seconds, bytes and FLOPs on the machine at hand. Importing it needs no torch."""

from ignite_scheduler.profiler.assembly import merge
from ignite_scheduler.profiler.measurement import DEFAULT_REPEATS, DEFAULT_SAMPLES, DEFAULT_TIME_LIMIT, measure
from ignite_scheduler.profiler.partial import partial_path
from ignite_scheduler.profiler.request import Progress

__all__ = ["DEFAULT_REPEATS", "DEFAULT_SAMPLES", "DEFAULT_TIME_LIMIT", "Progress", "measure", "merge", "partial_path"]
