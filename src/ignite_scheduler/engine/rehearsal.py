"""Which tensors that leave a stage run over the samples: found by passing a single sample through it.

A stage's outputs are dealt out sample by sample only where they run over the samples. Their shapes do not tell: a mask
of 8 × 8 that all samples share looks like 8 samples. What changes its dimension 0 with the number of samples does.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ignite_scheduler.engine.chain import StageModule, Tensors, describe
from ignite_scheduler.errors import InputError


@torch.no_grad()
def per_sample(
    stage: StageModule, inputs: Tensors, over: Sequence[bool], outputs: Tensors, *, samples: int
) -> tuple[bool, ...]:
    """Whether dimension 0 of each output runs over the samples.

    Parameters
    ----------
    inputs
        What the stage was given for so many ``samples``; ``over`` says which of these tensors run over them.
    outputs
        What it returned.

    Raises
    ------
    InputError
        An output has its samples along another dimension, or there are other outputs for another number of samples.

    Notes
    -----
    The stage runs once more, in evaluation mode: running statistics and random numbers stay as they are.
    """
    few = 1 if samples != 1 else 2
    places = torch.arange(few, device=inputs[0].device) % samples
    given = tuple(t.detach()[places] if along else t.detach() for t, along in zip(inputs, over, strict=True))
    training = stage.layers.training
    stage.layers.eval()
    try:
        found = stage(given, seed=0, step=0, samples=torch.arange(few))
    finally:
        stage.layers.train(training)
    if len(found) != len(outputs):
        raise InputError(
            f"stage {stage.index}: expected {describe(outputs)} whatever the samples, found {describe(found)} for "
            f"{few} of them; a model whose outputs differ so cannot be dealt to replicas: plan with replicas: 1"
        )
    return tuple(_runs_over(stage, output, other, samples, few) for output, other in zip(outputs, found, strict=True))


def _runs_over(stage: StageModule, output: Tensor, other: Tensor, samples: int, few: int) -> bool:
    if output.shape == other.shape:
        return False
    if output.shape[1:] == other.shape[1:] and (len(output), len(other)) == (samples, few):
        return True
    raise InputError(
        f"stage {stage.index}: its output is {describe([output])} for {samples} samples and {describe([other])} for "
        f"{few}: dimension 0 must run over the samples to deal them to replicas; plan with replicas: 1"
    )
