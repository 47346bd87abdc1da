"""Weights that two layers share: where their holders are in different stages, their gradients are added up."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ignite_scheduler.engine.crew import Crew
from ignite_scheduler.engine.replica_sum import exchange_seconds
from ignite_scheduler.model import Link

_FIRST_TAG: Final = 1 << 28
"""Above all tags of activations and gradients between stages."""


class _Shared(NamedTuple):
    """``leaders`` are the first replicas of the holding stages, ``holders`` all replicas."""

    tag: int
    parameter: Tensor
    leaders: list[int]
    holders: list[int]
    seconds: float


class TiedWeights:
    """The tied parameters of one rank.

    Each holder's copy starts equal (all ranks build the model from one seed); after the backwards, and after the
    replicas of each stage have added up theirs, each gets the sum of all holding stages' gradients, added in the order
    of the chain, so that all copies take the same update and stay equal.

    Parameters
    ----------
    groups
        Names of parameters that are one tensor in the whole model.
    split
        Names of the layers of each stage.
    crew
        Ranks of each stage.
    layers
        This rank's layers.
    links
        (source rank, target rank) → link to emulate; the exchange takes what the cost model says of an all-reduce. A
        pair of holders that is missing is real.
    wire
        Where messages lie while they travel.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[str]],
        split: Sequence[Sequence[str]],
        crew: Crew,
        layers: nn.Module,
        rank: int,
        links: Mapping[tuple[int, int], Link],
        wire: torch.device,
    ) -> None:
        stage_of = {name: stage for stage, names in enumerate(split) for name in names}
        own = dict(layers.named_parameters(remove_duplicate=False))
        self._rank, self._wire = rank, wire
        self._shared: list[_Shared] = []
        self._counted_elsewhere: set[int] = set()
        for number, names in enumerate(groups):
            stages = sorted({stage_of[_layer(name, stage_of)] for name in names})
            leaders = list(dict.fromkeys(crew.ranks[stage][0] for stage in stages))
            holders = list(dict.fromkeys(each for stage in stages for each in crew.ranks[stage]))
            if len(leaders) == 1 or rank not in holders:
                continue
            parameter = next(own[name] for name in names if name in own)
            seconds = exchange_seconds(parameter.nbytes, holders, links)
            self._shared.append(_Shared(_FIRST_TAG + number, parameter, leaders, holders, seconds))
            if rank != leaders[0]:
                self._counted_elsewhere.add(id(parameter))

    def reduce(self) -> float:
        """Add up the gradients of all holders: the first one gathers them and sends the sum back.

        Returns
        -------
        float
            When the sums are there, on the monotonic clock; 0 where nothing is shared.
        """
        done = 0.0
        for shared in self._shared:
            parameter = shared.parameter
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradient = parameter.grad.to(self._wire).contiguous()
            due = self._exchange(shared, gradient)
            parameter.grad.copy_(gradient)  # also where it is in place already: it tells that there is a gradient
            now = time.monotonic()
            done = max(due, now)
            time.sleep(done - now)
        return done

    def _exchange(self, shared: _Shared, gradient: Tensor) -> float:
        """Make ``gradient`` the sum over holding stages; the time at which an emulated exchange is over."""
        (first, *others), tag = shared.holders, shared.tag
        due = torch.zeros(1, dtype=torch.float64, device=gradient.device)
        if self._rank != first:
            dist.send(gradient if self._rank in shared.leaders else due, first, tag=tag)
            dist.recv(gradient, first, tag=tag)
            dist.recv(due, first, tag=tag)
            return due.item()
        for other in others:
            part = torch.empty_like(gradient) if other in shared.leaders else torch.empty_like(due)
            dist.recv(part, other, tag=tag)
            if other in shared.leaders:
                gradient += part
        due += time.monotonic() + shared.seconds
        for other in others:
            dist.send(gradient, other, tag=tag)
            dist.send(due, other, tag=tag)
        return due.item()

    def counted(self, parameters: Iterable[Tensor]) -> list[Tensor]:
        """Those whose norm counts here; a tied weight counts once, on the rank of its first holder."""
        return [p for p in parameters if id(p) not in self._counted_elsewhere]


def _layer(parameter: str, layers: Iterable[str]) -> str:
    """The layer that a parameter's dotted name begins with."""
    return max((name for name in layers if parameter.startswith(name + ".")), key=len)
