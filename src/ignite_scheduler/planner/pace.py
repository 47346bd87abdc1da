"""A step time that no plan of any kind goes below: the work of a step shared out among the devices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ignite_scheduler.cost import layer_seconds, resolved_precision
from ignite_scheduler.model import Device
from ignite_scheduler.planner.kernel import Floats
from ignite_scheduler.planner.request import Request


def least_step(request: Request) -> float:
    """Seconds that a step takes at least, whatever the cuts, shares, stages, replicas and memory actions.

    Notes
    -----
    Every sample passes forward and backward through every layer on some device, in portions of at most the largest
    permitted microbatch. Of a layer, a device of a kind takes at least ρ seconds a sample, its least over all portions.
    With r = the largest ratio, over layers, of the least ρ of all kinds to that of the kind, the device does at most r
    seconds of that least work in a second; so a step lasts at least the least work of all samples ÷ Σ r over the
    devices that may be held. O(kinds · layers · largest microbatch).
    """
    kinds: dict[Device, int] = {}
    for device in request.devices:
        figures = _figures(device)
        kinds[figures] = kinds.get(figures, 0) + 1
    most = max(family.samples for family in request.families)
    each = np.array([_least_seconds(request, device, most) for device in kinds])
    least = each.min(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(least > 0, least / each, 0.0).max(axis=1)
    rates = np.sort(np.repeat(ratio, list(kinds.values())))[::-1][: request.max_devices]
    work = float(least.sum()) * request.problem.job.batch.total
    return work / float(rates.sum()) if rates.sum() > 0 else 0.0


def _figures(device: Device) -> Device:
    """The device without what its times do not depend on."""
    return replace(device, id="", node="", memory=0.0, price=None, busy_power=None, idle_power=None)


def _least_seconds(request: Request, device: Device, most: int) -> Floats:
    """[layer]: least seconds a sample over portions of 1 … ``most`` samples; infinite without times.

    Seconds are affine in the samples between measured sizes and beyond them, so that seconds a sample are least at the
    ends of these pieces.
    """
    profile = request.problem.profile
    precision = resolved_precision(request.problem.job, profile)
    found = np.full(len(profile.layers), np.inf)
    for index, layer in enumerate(profile.layers):
        measured = {size for table in layer.times.values() for size in table if size < most}
        for samples in (1, *measured, most):
            seconds = layer_seconds(profile, index, device, samples, precision)
            if seconds is not None:
                found[index] = min(found[index], (seconds.forward + seconds.backward) / samples)
    return found
