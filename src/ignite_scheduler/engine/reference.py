"""One process that trains a job on the whole batch: what every pipeline must agree with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn

from ignite_scheduler import zoo
from ignite_scheduler.engine.chain import StageModule, build_chain, element_type
from ignite_scheduler.engine.data import SampleOrder, Samples, num_steps
from ignite_scheduler.engine.optimization import clip, learning_rate, squared_norm
from ignite_scheduler.engine.rule import Rule
from ignite_scheduler.model import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What came out of some steps.

    ``losses`` and ``grad_norms`` are by step; ``gradients`` are those of the first step and ``parameters`` those after
    the last, by name (a tied weight under each of its names).
    """

    losses: tuple[float, ...]
    grad_norms: tuple[float, ...]
    gradients: Mapping[str, Tensor]
    parameters: Mapping[str, Tensor]


def train(job: Job, steps: int, microbatches: tuple[int, ...] | None = None) -> Trained:
    """Train ``steps`` steps in this process, on one thread.

    Parameters
    ----------
    microbatches
        Their sizes; None = the whole batch at once. Models with batch statistics need those of the pipeline that
        they are compared with.
    """
    dtype, place = element_type(job.precision), torch.device("cpu")
    chain = build_chain(job.model, seed=job.seed, data=job.data, dtype=dtype)
    whole = StageModule(index=0, layers=chain)
    rule = Rule(chain, job.optimizer)
    data = Samples(job.data, dtype=dtype, device=place, owner=job.name)
    order = SampleOrder(num_samples=len(data), batch=job.batch.total, seed=job.seed)
    loss, total = zoo.loss(job.loss), num_steps(job, len(data))
    losses, norms, gradients = [], [], {}
    chain.train()
    with _one_thread():
        for step in range(steps):
            indices = order.indices(step)
            inputs, targets = data.read(indices, f"{job.seed}/{step}")
            value = 0.0
            for start, end in _slices(microbatches or (len(indices),)):
                samples = torch.arange(start, end)
                (output,) = whole(tuple(t[start:end] for t in inputs), seed=job.seed, step=step, samples=samples)
                part = loss(output, targets[start:end]) / len(indices)
                torch.autograd.backward(part)
                value += float(part.detach())
            rule.collect()
            parameters = list(chain.parameters())
            norms.append(math.sqrt(squared_norm(parameters)))
            losses.append(value)
            if step == 0:
                gradients = named_gradients(chain)
            if job.gradient_clip is not None:
                clip(parameters, norms[-1], job.gradient_clip)
            rule.apply(learning_rate(job.lr_schedule, job.optimizer.lr, step, total))
    return Trained(
        losses=tuple(losses), grad_norms=tuple(norms), gradients=gradients, parameters=named_parameters(chain)
    )


def named_gradients(layers: nn.Module) -> dict[str, Tensor]:
    """Copies of all gradients by name; zero where there is none."""
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in layers.named_parameters(remove_duplicate=False)
    }


def named_parameters(layers: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters by name."""
    return {name: p.detach().clone() for name, p in layers.named_parameters(remove_duplicate=False)}


def has_batch_statistics(chain: nn.Module) -> bool:
    """Whether a layer's output for one sample depends on the other samples of the microbatch."""
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in chain.modules())


def _slices(sizes: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    for size, end in zip(sizes, accumulate(sizes), strict=True):
        yield end - size, end


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums in the same order as a rank's, which has one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
