"""Bytes and FLOPs of layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from ignite_scheduler.engine.chain import StageModule, Tensors
from ignite_scheduler.profiler.flops import count_flops
from ignite_scheduler.profiler.passes import Bench, Kept, as_leaves, backward, forward
from ignite_scheduler.profiler.request import Sizes


def layer_sizes(bench: Bench) -> tuple[Sizes, ...]:
    """Sizes of each layer, for one sample of the largest microbatch measured.

    Notes
    -----
    What a layer keeps for its backward are the distinct storages that autograd saves in it, parameters and buffers
    excluded. Its input always counts, its output never (but for the last layer, whose forward ends with the loss): an
    output that is needed again is the input of the next layer, so that sums over layers count each storage once.
    """
    size = max(bench.batches)
    values, found, kept = bench.batches[size][0], [], []
    for index, stage in enumerate(bench.stages):
        last = index == len(bench.stages) - 1
        leaves = as_leaves(values)
        with count_flops() as counter:
            values, saved = _saved(bench, stage, leaves, size, last=last)
        output = stage(leaves, seed=bench.seed, step=0, samples=bench.samples(size)) if last else values
        kept.append(Kept(leaves=leaves, outputs=values))
        found.append(
            {
                "parameter_bytes": float(sum(p.numel() * p.element_size() for p in stage.layers.parameters())),
                "output_bytes": _num_bytes(output) / size,
                "activation_bytes": saved / size,
                "forward_flops": counter.get_total_flops() / size,
            }
        )
    return tuple(
        Sizes(**figures, backward_flops=flops / size)
        for figures, flops in zip(found, _backward_flops(kept), strict=True)
    )


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
    _, saved = _saved(bench, bench.whole, as_leaves(bench.batches[size][0]), size, last=True)
    return saved / size


def _saved(bench: Bench, stage: StageModule, leaves: Tensors, size: int, *, last: bool) -> tuple[Tensors, int]:
    """The stage's outputs, and bytes kept for its backward."""
    kept: list[torch.UntypedStorage] = []  # held until counted, so that no identity is used twice

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor.untyped_storage())
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs = forward(bench, stage, leaves, size, last=last)
    storages = {storage._cdata: storage.nbytes() for storage in kept}
    state = (*stage.layers.parameters(), *stage.layers.buffers())
    for left_out in _identities((*state, *outputs)):
        storages.pop(left_out, None)
    for leaf in leaves:
        storages[leaf.untyped_storage()._cdata] = leaf.untyped_storage().nbytes()
    return outputs, sum(storages.values())


def _identities(tensors: Iterable[Tensor]) -> set[int]:
    """What tells storages apart, also those of tensors without data, which have no address."""
    return {tensor.untyped_storage()._cdata for tensor in tensors}


def _num_bytes(tensors: Tensors) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
