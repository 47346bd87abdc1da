"""Weights that two layers share: where their holders sit on different ranks, their gradients are added up."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from typing import Final, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ignite_scheduler.cost.communication import ring_seconds
from ignite_scheduler.model import Link

_FIRST_TAG: Final = 1 << 28
"""Above all tags of activations and gradients between stages."""


class _Shared(NamedTuple):
    tag: int
    parameter: Tensor
    holders: list[int]
    seconds: float


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
        rank_of: Sequence[int],
        layers: nn.Module,
        rank: int,
        links: Mapping[tuple[int, int], Link],
        wire: torch.device,
    ) -> None:
        rank_of_layer = {name: rank_of[stage] for stage, names in enumerate(split) for name in names}
        own = dict(layers.named_parameters(remove_duplicate=False))
        self._rank, self._wire = rank, wire
        self._shared: list[_Shared] = []
        self._counted_elsewhere: set[int] = set()
        for number, names in enumerate(groups):
            holders = list(dict.fromkeys(rank_of_layer[_layer(name, rank_of_layer)] for name in names))
            if len(holders) == 1 or rank not in holders:
                continue
            parameter = next(own[name] for name in names if name in own)
            seconds = _exchange_seconds(parameter.nbytes, holders, links)
            self._shared.append(_Shared(_FIRST_TAG + number, parameter, holders, seconds))
            if rank != holders[0]:
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
        """Make ``gradient`` the sum over holders; the time at which an emulated exchange is over."""
        (first, *others), tag = shared.holders, shared.tag
        due = torch.zeros(1, dtype=torch.float64, device=gradient.device)
        if self._rank != first:
            dist.send(gradient, first, tag=tag)
            dist.recv(gradient, first, tag=tag)
            dist.recv(due, first, tag=tag)
            return due.item()
        for other in others:
            part = torch.empty_like(gradient)
            dist.recv(part, other, tag=tag)
            gradient += part
        due += time.monotonic() + shared.seconds
        for other in others:
            dist.send(gradient, other, tag=tag)
            dist.send(due, other, tag=tag)
        return due.item()

    def counted(self, parameters: Iterable[Tensor]) -> list[Tensor]:
        """Those whose norm counts here; a tied weight counts once, on the rank of its first holder."""
        return [p for p in parameters if id(p) not in self._counted_elsewhere]


def _exchange_seconds(num_bytes: int, holders: list[int], links: Mapping[tuple[int, int], Link]) -> float:
    """Seconds of an emulated all-reduce; 0 where the links are real."""
    between = [links[pair] for pair in permutations(holders, 2) if pair in links]
    if not between:
        return 0.0
    bandwidth, latency = min(link.bandwidth for link in between), max(link.latency for link in between)
    return ring_seconds(num_bytes, bandwidth, latency, len(holders))


def _layer(parameter: str, layers: Iterable[str]) -> str:
    """The layer that a parameter's dotted name begins with."""
    return max((name for name in layers if parameter.startswith(name + ".")), key=len)
