"""Weights that two layers share: where their holders sit on different ranks, their gradients are added up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn


class TiedWeights:
    """The tied parameters of one rank.

    Each holder's copy starts equal (all ranks build the model from one seed); after the backwards each gets the sum of
    all holders' gradients, so that all copies take the same update and stay equal.

    Parameters
    ----------
    groups
        Names of parameters that are one tensor in the whole model.
    split
        Names of the layers of each stage.
    rank_of
        Rank of each stage.
    layers
        This rank's layers.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[str]],
        split: Sequence[Sequence[str]],
        rank_of: Sequence[int],
        layers: nn.Module,
        rank: int,
    ) -> None:
        rank_of_layer = {name: rank_of[stage] for stage, names in enumerate(split) for name in names}
        own = dict(layers.named_parameters(remove_duplicate=False))
        self._shared: list[tuple[Tensor, dist.ProcessGroup]] = []
        self._counted_elsewhere: set[int] = set()
        for names in groups:
            holders = list(dict.fromkeys(rank_of_layer[_layer(name, rank_of_layer)] for name in names))
            if len(holders) == 1:
                continue
            group = dist.new_group(sorted(holders))  # every rank must take part in making it
            if rank not in holders:
                continue
            parameter = next(own[name] for name in names if name in own)
            self._shared.append((parameter, group))
            if rank != holders[0]:
                self._counted_elsewhere.add(id(parameter))

    def reduce(self) -> None:
        """Add up the gradients of all holders."""
        for parameter, group in self._shared:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad, group=group)

    def counted(self, parameters: Iterable[Tensor]) -> list[Tensor]:
        """Those whose norm counts here; a tied weight counts once, on the rank of its first holder."""
        return [p for p in parameters if id(p) not in self._counted_elsewhere]


def _layer(parameter: str, layers: Iterable[str]) -> str:
    """The layer that a parameter's dotted name begins with."""
    return max((name for name in layers if parameter.startswith(name + ".")), key=len)
