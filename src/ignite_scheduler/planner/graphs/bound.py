"""A step time that no plan of any graph of stages goes below."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ignite_scheduler.planner.graphs.dag import Tensor
from ignite_scheduler.planner.instance import Arrays
from ignite_scheduler.planner.kernel import Floats
from ignite_scheduler.planner.problem import Family
from ignite_scheduler.planner.setup import Setup, layer_figures


def graph_bound(setup: Setup, arrays: Arrays, family: Family, tensors: Sequence[Tensor]) -> float:
    """Seconds that a step of the family takes at least, whatever the graph of stages, one device a stage.

    Three bounds hold of every such graph, chains included; the largest counts.

    - *Pace*: the work of a step is done by stages that are busy one after the other
      (:func:`ignite_scheduler.planner.setup.layer_figures`).
    - *Heaviest path*: along a path of layers the forwards of the first microbatch follow each other, then, backwards,
      the backwards of the last: the fill of its layers.
    - *Both*: some stage is busy for the pace. It holds a layer; the stages on a heaviest path of layers through that
      one are on a path through the stage, so that their fill comes beside the stage's share of its busy time, by the
      same argument as in a chain (:func:`ignite_scheduler.planner.tables.stage_pace`): what lies in front of a stage
      and behind it counts along any path, and the microbatches that it holds are at most as many as there are stages.
      Which layer that is, is not known: the path through the layer where it is lightest.
    """
    figures = layer_figures(setup, arrays, family)
    through = fill_through(figures.fill, tensors)
    return float(max(figures.pace, through.max(), through.min() + figures.share * figures.pace))


def fill_through(fill: Floats, tensors: Sequence[Tensor]) -> Floats:
    """[layer]: fill of the heaviest path that passes through it; layers stand in a topological order."""
    head, tail = fill.copy(), fill.copy()
    for tensor in tensors:  # by producer: what leads to it is known
        for reader, _ in tensor.readers:
            head[reader] = max(head[reader], head[tensor.producer] + fill[reader])
    for tensor in reversed(tensors):
        behind = max(tail[reader] for reader, _ in tensor.readers)
        tail[tensor.producer] = fill[tensor.producer] + behind
    return np.asarray(head + tail - fill)
