"""Measures links between devices: seconds by size of the message, a line through them, asymmetry, congestion.

Importing it needs no torch.

Theory of operation
-------------------
Every device is a process (a *rank*); they meet in a store. One ordered pair of ranks measures at a time, while the
others wait at a barrier: a message, and a short answer when it is there. Where both read the same clock (one machine)
the seconds of one way are read off directly; else half of the shortest round trip is taken off the whole trip, so that
latencies of the two directions cannot be told apart. The line ``latency + bytes ÷ bandwidth`` goes through what is
typical of each size, the median of the faster half.

Then messages stream: each pair alone, the pairs between two nodes together, all pairs at once. Pairs with wires of
their own take as long together as the slowest of them alone; pairs on one wire take the sum.

Links of a cluster file are played by the engine's wires, the same that slow its training: what is measured then is
what the engine makes of the file.
"""

from ignite_scheduler.profiler.links.crew import measure_here
from ignite_scheduler.profiler.links.fit import LineFit, fit_line
from ignite_scheduler.profiler.links.meeting import Meeting, measure_joined
from ignite_scheduler.profiler.links.nouns import (
    DEFAULT_SIZES,
    Endpoint,
    LinksMeasured,
    NodePair,
    Options,
    PairLink,
    Spread,
)
from ignite_scheduler.profiler.links.section import links_document, links_section

__all__ = [
    "DEFAULT_SIZES",
    "Endpoint",
    "LineFit",
    "LinksMeasured",
    "Meeting",
    "NodePair",
    "Options",
    "PairLink",
    "Spread",
    "fit_line",
    "links_document",
    "links_section",
    "measure_here",
    "measure_joined",
]
