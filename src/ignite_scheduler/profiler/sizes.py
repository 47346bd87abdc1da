"""Bytes and FLOPs of layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from ignite_scheduler.engine.chain import StageModule, Tensors
from ignite_scheduler.profiler.flops import count_flops
from ignite_scheduler.profiler.passes import Bench, Kept, as_leaves, backward, forward
from ignite_scheduler.profiler.request import Sizes

Storages = Mapping[int, torch.UntypedStorage]
"""Blocks of memory by what tells them apart. They are held, so that no identity is used twice."""


def layer_sizes(bench: Bench) -> tuple[Sizes, ...]:
    """Sizes of each layer, for one sample of the largest microbatch measured; nothing that passes is counted.

    Notes
    -----
    What layers keep for their backward are the distinct storages that autograd saves in them, parameters and buffers
    excluded. One that several layers save, such as an output that is also the next layer's input, counts as the last
    one's; so sums over layers count each storage once. A stage that ends between them holds it too: those are the
    bytes that a layer *carries*.
    """
    size = max(bench.batches)
    state = _identities(tensor for stage in bench.stages for tensor in _state(stage))
    values, found, kept, saved = bench.batches[size][0], [], [], []
    for index, stage in enumerate(bench.stages):
        last = index == len(bench.stages) - 1
        leaves = as_leaves(values)
        with count_flops() as counter:
            values, storages = _saved(bench, stage, leaves, size, last=last)
        saved.append({key: storage for key, storage in storages.items() if key not in state})
        output = stage(leaves, seed=bench.seed, step=0, samples=bench.samples(size)) if last else values
        kept.append(Kept(leaves=leaves, outputs=values))
        found.append(
            {
                "parameter_bytes": float(num_bytes_of(stage.layers.parameters())),
                "output_bytes": num_bytes_of(output) / size,
                "forward_flops": counter.get_total_flops() / size,
            }
        )
    held = shares(saved)
    return tuple(
        Sizes(
            **figures,
            backward_flops=flops / size,
            activation_bytes=share.own / size,
            carried_bytes=share.carried / size,
        )
        for figures, flops, share in zip(found, _backward_flops(kept), held, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Share:
    """Bytes that one layer keeps for a backward, and bytes that it keeps too but that count as a later layer's."""

    own: int
    carried: int


def shares(saved: Sequence[Storages]) -> list[Share]:
    """What each layer keeps, given the storages that each saves."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    num_bytes: dict[int, int] = {}
    for index, storages in enumerate(saved):
        for key, storage in storages.items():
            first.setdefault(key, index)
            last[key], num_bytes[key] = index, storage.nbytes()
    return [
        Share(
            own=sum(num_bytes[key] for key, owner in last.items() if owner == index),
            carried=sum(num_bytes[key] for key, owner in last.items() if first[key] <= index < owner),
        )
        for index in range(len(saved))
    ]


def _backward_flops(kept: Sequence[Kept]) -> list[int]:
    gradients: Tensors | None = None
    flops = []
    for current in reversed(kept):
        with count_flops() as counter:
            gradients = backward(current, gradients)
        flops.append(counter.get_total_flops())
    return flops[::-1]


def saved_bytes_whole(bench: Bench) -> float:
    """Bytes for one sample that autograd keeps for the chain as one stage."""
    size = max(bench.batches)
    _, storages = _saved(bench, bench.whole, as_leaves(bench.batches[size][0]), size, last=True)
    state = _identities(_state(bench.whole))
    return sum(storage.nbytes() for key, storage in storages.items() if key not in state) / size


def _saved(bench: Bench, stage: StageModule, leaves: Tensors, size: int, *, last: bool) -> tuple[Tensors, Storages]:
    """The stage's outputs, and the storages that autograd saves in it."""
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs = forward(bench, stage, leaves, size, last=last)
    return outputs, kept


def _state(stage: StageModule) -> tuple[Tensor, ...]:
    return (*stage.layers.parameters(), *stage.layers.buffers())


def _identities(tensors: Iterable[Tensor]) -> set[int]:
    """What tells storages apart, also those of tensors without data, which have no address."""
    return {tensor.untyped_storage()._cdata for tensor in tensors}


def num_bytes_of(tensors: Iterable[Tensor]) -> int:
    """Bytes of all elements of the tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
