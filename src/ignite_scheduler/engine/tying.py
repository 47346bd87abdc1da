"""Weights that two layers share: where their holders sit on different ranks, their gradients are added up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor, nn

_FIRST_TAG: Final = 1 << 28
"""Above all tags of activations and gradients between stages."""


class TiedWeights:
    """The tied parameters of one rank.

    Each holder's copy starts equal (all ranks build the model from one seed); after the backwards each gets the sum of
    all holders' gradients, added in the order of the chain, so that all copies take the same update and stay equal.

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
        self._rank = rank
        self._shared: list[tuple[int, Tensor, list[int]]] = []
        self._counted_elsewhere: set[int] = set()
        for number, names in enumerate(groups):
            holders = list(dict.fromkeys(rank_of_layer[_layer(name, rank_of_layer)] for name in names))
            if len(holders) == 1 or rank not in holders:
                continue
            parameter = next(own[name] for name in names if name in own)
            self._shared.append((_FIRST_TAG + number, parameter, holders))
            if rank != holders[0]:
                self._counted_elsewhere.add(id(parameter))

    def reduce(self) -> None:
        """Add up the gradients of all holders: the first one gathers them and sends the sum back."""
        for tag, parameter, holders in self._shared:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradient = parameter.grad.contiguous()
            if self._rank == holders[0]:
                for other in holders[1:]:
                    part = torch.empty_like(gradient)
                    dist.recv(part, other, tag=tag)
                    gradient += part
                for other in holders[1:]:
                    dist.send(gradient, other, tag=tag)
            else:
                dist.send(gradient, holders[0], tag=tag)
                dist.recv(gradient, holders[0], tag=tag)
            parameter.grad = gradient

    def counted(self, parameters: Iterable[Tensor]) -> list[Tensor]:
        """Those whose norm counts here; a tied weight counts once, on the rank of its first holder."""
        return [p for p in parameters if id(p) not in self._counted_elsewhere]


def _layer(parameter: str, layers: Iterable[str]) -> str:
    """The layer that a parameter's dotted name begins with."""
    return max((name for name in layers if parameter.startswith(name + ".")), key=len)
