"""Losses as sums over samples, so that parts of a batch add up to the whole whatever their sizes.

The gradient of a step is that of (sum over all samples) ÷ (number of samples); a mean of the means of unequal
microbatches would be another number.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from ignite_scheduler.errors import InputError


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Sum over samples of −log p(target); for sequences the mean over the tokens of each sample.

    Parameters
    ----------
    output
        Logits ``[samples, …, classes]``: the class dimension is the last.
    target
        Class indices ``[samples, …]``, int64.

    Raises
    ------
    InputError
        Shapes or type of the target do not suit the output.
    """
    if target.is_floating_point() or output.shape[:-1] != target.shape:
        raise InputError(
            f"cross_entropy needs whole-number targets of shape {tuple(output.shape[:-1])} for outputs of shape "
            f"{tuple(output.shape)}, found {target.dtype} of shape {tuple(target.shape)}"
        )
    tokens_per_sample = max(1, target[0].numel()) if len(target) else 1
    logits = output.reshape(-1, output.shape[-1])
    return functional.cross_entropy(logits, target.reshape(-1), reduction="sum") / tokens_per_sample


def mse(output: Tensor, target: Tensor) -> Tensor:
    """Sum over samples of the squared error, mean over the elements of each sample.

    A target of ``[samples]`` suits an output of ``[samples, 1]``: elements are matched, never broadcast.

    Raises
    ------
    InputError
        Output and target have not the same number of elements for each sample.
    """
    if len(output) != len(target) or output.numel() != target.numel():
        raise InputError(
            f"mse needs a target with the elements of the output {tuple(output.shape)}, found {tuple(target.shape)}"
        )
    elements_per_sample = max(1, output[0].numel()) if len(output) else 1
    difference = output - target.reshape(output.shape).to(output.dtype)
    return (difference * difference).sum() / elements_per_sample
