"""The models for rows of a table."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from ignite_scheduler.errors import InputError
from ignite_scheduler.zoo.air_quality import NUM_FEATURES


def mlp(features: int = 30, hidden: Sequence[int] = (64, 64), outputs: int = 2, dropout: float = 0.0) -> nn.Sequential:
    """Chain of linear layers with ReLU between them: ``linear0`` … ``head``.

    Input ``[samples, features]``, output ``[samples, outputs]``.
    """
    sizes = (features, *hidden)
    if min(sizes) < 1 or outputs < 1:
        raise InputError(f"mlp: features, hidden and outputs must be at least 1, found {features}, {hidden}, {outputs}")
    chain: OrderedDict[str, nn.Module] = OrderedDict()
    for index, (read, written) in enumerate(pairwise(sizes)):
        parts = [nn.Linear(read, written), nn.ReLU()]
        chain[f"linear{index}"] = nn.Sequential(*parts, nn.Dropout(dropout)) if dropout else nn.Sequential(*parts)
    chain["head"] = nn.Linear(sizes[-1], outputs)
    return nn.Sequential(chain)


def air_quality(hours: int = 24, hidden: Sequence[int] = (256, 128, 64), dropout: float = 0.0) -> nn.Sequential:
    """Chain ``linear0`` … ``head`` that predicts the fine dust of the next hour from the hours before.

    Input ``[samples, hours · 11]`` as the data set ``air_quality`` has it, output ``[samples, 1]``.
    """
    return mlp(features=hours * NUM_FEATURES, hidden=hidden, outputs=1, dropout=dropout)
