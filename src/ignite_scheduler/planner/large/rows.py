"""Prefix sums over the layers of seconds by kind and samples, and of bytes: what every run of layers costs."""

from __future__ import annotations

import numpy as np

from ignite_scheduler.cost import (
    action_overhead,
    byte_scale,
    layer_seconds,
    memory_factors,
    resolved_precision,
)
from ignite_scheduler.model import MODEL_INPUT, Profile
from ignite_scheduler.planner.kernel import Floats
from ignite_scheduler.planner.large.world import World
from ignite_scheduler.planner.problem import Problem
from ignite_scheduler.planner.request import Request


class Rows:
    """Seconds and bytes of one problem over one world, each row made once.

    Attributes
    ----------
    overhead
        [kind]: seconds on top of every action.
    weights
        [layer]: prefix sums of bytes that every holder of a run of layers reduces at least; a weight that several
        layers share counts in equal parts for each of them.
    crossing
        [layer]: bytes a sample over the cut in front of the layer, every tensor once.
    """

    def __init__(self, problem: Problem, world: World) -> None:
        self.problem, self.world = problem, world
        job, profile = problem.job, problem.profile
        self.num_layers = len(profile.layers)
        self.precision = resolved_precision(job, profile)
        scale = byte_scale(job, profile)
        self.overhead: Floats = np.array([action_overhead(profile, device) for device in world.kinds])
        sharers = {name: len(group) for group in profile.tied for name in group}
        self._parameters = [layer.parameter_bytes / sharers.get(layer.name, 1) for layer in profile.layers]
        self.weights: Floats = np.concatenate(([0.0], np.cumsum(self._parameters))) * scale
        self.crossing = crossing_bytes(profile) * scale
        self._seconds: dict[tuple[int, int], Floats] = {}

    def least_need(self, request: Request, samples: int) -> Floats:
        """[layer]: prefix sums of the bytes that layers fill at least, with so many samples of one microbatch held."""
        job, profile = self.problem.job, self.problem.profile
        factors, scale = memory_factors(job, profile), byte_scale(job, profile)
        state = 0.0 if True in request.shard else factors.optimizer
        kept = 0.0 if True in (*request.recompute, *request.offload) else samples * scale
        need = np.array(self._parameters) * (factors.weights + factors.gradients + state)
        need += kept * np.array([layer.activation_bytes for layer in profile.layers])
        return np.concatenate(([0.0], np.cumsum(need)))

    def layers(self, kind: int, samples: int) -> Floats:
        """[forward or backward, layer]: seconds of each layer; infinite where the kind has no time for it."""
        key = (kind, samples)
        found = self._seconds.get(key)
        if found is None:
            device, profile = self.world.kinds[kind], self.problem.profile
            each = [layer_seconds(profile, i, device, samples, self.precision) for i in range(self.num_layers)]
            found = np.array(
                [
                    [np.inf if e is None else e.forward for e in each],
                    [np.inf if e is None else e.backward for e in each],
                ]
            )
            self._seconds[key] = found
        return found

    def rates(self, most: int) -> Floats:
        """[kind, layer]: least seconds of a forward and a backward per sample, over shares of 1 … ``most`` samples.

        Seconds are piecewise linear in the samples, so that seconds ÷ samples is least at an end or where pieces meet.
        The roofline's pieces are no matter: seconds ÷ samples never rises there.
        """
        best = np.full((self.world.num_kinds, self.num_layers), np.inf)
        for samples in self.sizes(most):
            for kind in range(self.world.num_kinds):
                np.minimum(best[kind], self.layers(kind, samples).sum(axis=0) / samples, out=best[kind])
        return best

    def sizes(self, most: int) -> list[int]:
        """Samples between which seconds are linear, up to ``most``."""
        return sorted({1, most, *(size for size in _sizes(self.problem.profile) if size < most)})


def _sizes(profile: Profile) -> set[int]:
    return {size for layer in profile.layers for table in layer.times.values() for size in table}


def crossing_bytes(profile: Profile) -> Floats:
    """[layer]: bytes a sample of the tensors made before the layer and read from it on, every tensor once."""
    position = {layer.name: index for index, layer in enumerate(profile.layers)}
    readers: dict[int, dict[int, float]] = {}
    for index, layer in enumerate(profile.layers):
        for edge in layer.inputs:
            if edge.source != MODEL_INPUT:
                producer = position[edge.source]
                num_bytes = profile.layers[producer].output_bytes if edge.bytes is None else edge.bytes
                found = readers.setdefault(producer, {})
                found[index] = max(found.get(index, 0.0), num_bytes)
    crossing = np.zeros(len(profile.layers))
    for producer, found in sorted(readers.items()):
        begin = producer + 1
        for reader in sorted(found):
            crossing[begin : reader + 1] += max(found[later] for later in found if later >= reader)
            begin = reader + 1
    return crossing
