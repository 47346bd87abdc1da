"""Bytes that cross a cut, and seconds that collectives take."""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate

from ignite_scheduler.model import MODEL_INPUT, Profile


def cut_bytes(profile: Profile, split: tuple[int, ...]) -> tuple[float, ...]:
    """Bytes per sample over each of the S−1 cuts, one way; the gradient going back has the same.

    The sum over the tensors made before the cut and read after it. A skip connection counts at every cut that it
    spans; a tensor that several later stages read counts once for each of them.

    Parameters
    ----------
    split
        Numbers of layers per stage, in the profile's order, summing to the number of layers.
    """
    ends = list(accumulate(split))
    stage_of = [stage for stage, count in enumerate(split) for _ in range(count)]
    position = {layer.name: index for index, layer in enumerate(profile.layers)}
    readers: dict[tuple[int, int], float] = defaultdict(float)  # (producer, reading stage) → bytes
    for index, layer in enumerate(profile.layers):
        for edge in layer.inputs:
            if edge.source == MODEL_INPUT:
                continue
            producer = position[edge.source]
            num_bytes = profile.layers[producer].output_bytes if edge.bytes is None else edge.bytes
            if stage_of[producer] != stage_of[index]:
                key = (producer, stage_of[index])
                readers[key] = max(readers[key], num_bytes)
    cuts = [0.0] * (len(ends) - 1)
    for (producer, stage), num_bytes in readers.items():
        for cut in range(stage_of[producer], stage):
            cuts[cut] += num_bytes
    return tuple(cuts)


def ring_seconds(num_bytes: float, bandwidth: float, latency: float, holders: int) -> float:
    """Seconds of a ring all-reduce between ``holders`` devices over their slowest link.

    2(r−1)/r · bytes ÷ bandwidth + 2(r−1) · latency.

    References: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009.
    """
    rounds = 2 * (holders - 1)
    return rounds / holders * num_bytes / bandwidth + rounds * latency
