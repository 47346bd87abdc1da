"""Does a pipeline compute what one process computes? Compared parameter by parameter, on real ranks.

The law: for any split, schedule, sizes of microbatches, shares of replicas and memory actions, the gradient of the
first step and the loss after five updates equal those of one process on the whole batch, up to the rounding of sums
taken in another order. Models with batch statistics compute another function for other microbatches by design; they are
held against one process that runs the same microbatches, and replicas of their stages are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ignite_scheduler import zoo
from ignite_scheduler.cost import microbatch_sizes
from ignite_scheduler.engine import reference
from ignite_scheduler.engine.chain import build_chain, layer_names
from ignite_scheduler.engine.pool import RankPool, Seat
from ignite_scheduler.engine.specification import GangSpec, RankDevice
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Bottleneck, Bound, Job, Plan, Prediction, Share, Stage
from ignite_scheduler.pipeline import SCHEDULES

TOLERANCES: Final = {"fp32": 1e-5, "fp64": 1e-9}
"""Largest relative difference that rounding explains."""
_EPSILONS: Final = {"fp32": float(np.finfo(np.float32).eps), "fp64": float(np.finfo(np.float64).eps)}
UPDATES: Final = 5
"""Optimizer steps before the loss is compared."""

Split = tuple[int, ...]
Action = Literal["recompute", "shard", "offload"]
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """How the layers are laid out.

    Parameters
    ----------
    split
        Layers per stage.
    shares
        Of each stage, its replicas' samples of a full microbatch; empty = one device for each stage.
    actions
        Memory actions of every stage.
    """

    split: Split
    shares: tuple[tuple[int, ...], ...] = ()
    actions: tuple[Action, ...] = ()

    @property
    def num_ranks(self) -> int:
        """Devices that it takes."""
        return sum(map(len, self.shares)) if self.shares else len(self.split)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientCase:
    """One pipeline held against the reference.

    ``gradient_error`` is the largest ‖difference‖ ÷ ‖reference‖ over parameters, found at ``worst``; ``loss_error`` is
    that of the loss after five updates. A gradient that is nothing but rounding, as that of a bias of the keys in
    attention, has no digits to compare: below an epsilon of the whole gradient it counts as zero.
    """

    arrangement: Arrangement
    schedule: str
    microbatches: tuple[int, ...]
    gradient_error: float
    worst: str
    loss_error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether both errors are within the tolerance."""
        return max(self.gradient_error, self.loss_error) <= self.tolerance


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientReport:
    """All cases of one job.

    ``bit_equal``: schedules of the same arrangement and microbatches gave the very same bits, and so did the replicas
    of a stage.
    """

    job: str
    precision: str
    same_microbatches: bool
    cases: tuple[GradientCase, ...]
    bit_equal: bool

    @property
    def passed(self) -> bool:
        """Whether the law holds."""
        return self.bit_equal and all(case.passed for case in self.cases)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    losses: tuple[float, ...]
    gradients: Arrays
    parameters: Arrays
    agreed: bool = True


def gradients(
    job: Job,
    arrangements: Sequence[Arrangement] | None = None,
    schedules: Sequence[str] = SCHEDULES,
    dtype: str = "fp32",
    *,
    microbatches: tuple[int, ...] | None = None,
    pool: RankPool | None = None,
) -> GradientReport:
    """Compare pipelines with one process.

    Parameters
    ----------
    arrangements
        None = even splits over 1, 2 and 3 stages, and two stages of two replicas with unequal shares, without and with
        all memory actions.
    dtype
        ``fp32`` or ``fp64``.
    microbatches
        Sizes; None = the job's own, or three uneven ones.
    pool
        Ranks to use; None = start some.

    Raises
    ------
    InputError
        The job cannot be trained as it stands.
    """
    if dtype not in TOLERANCES:
        raise InputError(f"gradients are compared in {' or '.join(TOLERANCES)}, found {dtype!r}")
    zoo.check_trainable(job)
    job = replace(job, precision=dtype, evaluate=None)
    chain = build_chain(job.model, seed=job.seed, data=job.data)
    names = layer_names(chain)
    sizes = microbatches or uneven(job)
    same = reference.has_batch_statistics(chain)
    chosen = list(arrangements) if arrangements is not None else straight(len(names))
    if arrangements is None and not same:
        chosen += replicated(len(names), max(sizes))
    expected = reference.train(job, UPDATES + 1, sizes if same else None)
    if pool is None:
        with RankPool(max(each.num_ranks for each in chosen)) as own:
            measured = _measure(job, names, chosen, schedules, sizes, own)
    else:
        measured = _measure(job, names, chosen, schedules, sizes, pool)
    return GradientReport(
        job=job.name,
        precision=dtype,
        same_microbatches=same,
        cases=tuple(_compare(each, name, sizes, found, expected, dtype) for (each, name), found in measured.items()),
        bit_equal=all(
            found.agreed and _identical(found, measured[each, schedules[0]]) for (each, _), found in measured.items()
        ),
    )


def even_splits(num_layers: int) -> list[Split]:
    """Splits over 1, 2 and 3 stages (fewer where there are fewer layers), as even as can be."""
    return [
        tuple(num_layers // stages + (index < num_layers % stages) for index in range(stages))
        for stages in range(1, min(3, num_layers) + 1)
    ]


def straight(num_layers: int) -> list[Arrangement]:
    """The even splits, one device a stage."""
    return [Arrangement(split=split) for split in even_splits(num_layers)]


def replicated(num_layers: int, samples: int) -> list[Arrangement]:
    """Two stages of two replicas that share ``samples`` unequally; none where there are too few of either."""
    if num_layers < 2 or samples < 2:
        return []
    (*_, split), few = even_splits(num_layers)[:2], max(1, samples // 3)
    shares = ((samples - few, few), (few, samples - few))
    return [
        Arrangement(split=split, shares=shares),
        Arrangement(split=split, shares=shares, actions=("recompute", "shard", "offload")),
    ]


def uneven(job: Job) -> tuple[int, ...]:
    """Sizes of microbatches: the job's own where given, else about three with a smaller last one."""
    total = job.batch.total
    micro = job.batch.micro or max(1, -(-total // 3) + (total % 3 == 0 and total > 3))
    return microbatch_sizes(total, micro)


def bare_plan(
    job: Job, names: Sequence[str], arrangement: Arrangement, microbatches: tuple[int, ...], schedule: str
) -> Plan:
    """A plan that says what to execute and predicts nothing; devices are called ``rank-0``, ``rank-1``, …

    Raises
    ------
    InputError
        The split does not cover the layers.
    """
    split, actions = arrangement.split, arrangement.actions
    shares = arrangement.shares or ((max(microbatches),),) * len(split)
    if len(shares) != len(split):
        raise InputError(f"expected shares of {len(split)} stages, found those of {len(shares)}")
    if sum(split) != len(names) or min(split) < 1:
        raise InputError(f"a split of {split} does not cover {len(names)} layers with at least one for each stage")
    starts, ranks = accumulate(split, initial=0), count()
    stages = tuple(
        Stage(
            index=index,
            layers=tuple(names[start : start + length]),
            devices=tuple(
                Share(device=f"rank-{next(ranks)}", samples=share, memory=0.0, memory_limit=0.0) for share in own
            ),
            forward=0.0,
            backward=0.0,
            in_flight=0,
            recompute="recompute" in actions,
            offload="offload" in actions,
            optimizer_shards=len(own) if "shard" in actions else 1,
        )
        for index, (start, length, own) in enumerate(zip(starts, split, shares, strict=False))
    )
    return Plan(
        job=job.name,
        schedule=schedule,
        precision=job.precision,
        microbatches=microbatches,
        stages=stages,
        predicted=Prediction(
            step=0.0,
            step_low=0.0,
            step_high=0.0,
            samples_per_second=0.0,
            bubble_fraction=0.0,
            bottleneck=Bottleneck(kind="stage", index=0, busy=0.0),
            transfer_bytes=0.0,
        ),
        bound=Bound(step=0.0, gap=0.0, method="none", optimal=False),
    )


def _measure(
    job: Job,
    names: tuple[str, ...],
    arrangements: Sequence[Arrangement],
    schedules: Sequence[str],
    sizes: tuple[int, ...],
    pool: RankPool,
) -> dict[tuple[Arrangement, str], _Measured]:
    measured = {}
    for arrangement in arrangements:
        for schedule in schedules:
            plan = bare_plan(job, names, arrangement, sizes, schedule)
            devices = tuple(RankDevice(id=device_id) for device_id in plan.device_ids)
            spec = GangSpec(job=job, plan=plan, devices=devices, directory=Path())
            parts = pool.run(train_steps, (spec, UPDATES + 1), ranks=len(devices))
            measured[arrangement, schedule] = _together(parts)
    return measured


def _together(parts: Sequence[_Measured]) -> _Measured:
    """What all ranks have, each tensor once."""
    gradients = {name: value for part in parts for name, value in part.gradients.items()}
    parameters = {name: value for part in parts for name, value in part.parameters.items()}
    return _Measured(
        losses=tuple(map(sum, zip(*(part.losses for part in parts), strict=True))),
        gradients=gradients,
        parameters=parameters,
        agreed=all(_equal(part.gradients, gradients) and _equal(part.parameters, parameters) for part in parts),
    )


def train_steps(seat: Seat, spec: GangSpec, steps: int) -> _Measured:
    """Task of one rank: train some steps and hand back what can be compared."""
    from ignite_scheduler.engine.worker import Worker

    worker = Worker(spec, seat.rank, seat.store, group=seat.group, groups=seat.groups, scope=seat.scope)
    losses, found = [], {}
    for step in range(steps):
        losses.append(worker.accumulate(step))
        if step == 0:
            found = reference.named_gradients(worker.layers)
        total = worker.post_sum(losses[-1])
        worker.update(step, total)
        total.wait()
    worker.transport.close()
    return _Measured(
        losses=tuple(losses), gradients=_arrays(found), parameters=_arrays(reference.named_parameters(worker.layers))
    )


def _arrays(tensors: dict[str, torch.Tensor]) -> Arrays:
    return {name: tensor.cpu().numpy() for name, tensor in tensors.items()}


def _compare(
    arrangement: Arrangement,
    schedule: str,
    sizes: tuple[int, ...],
    found: _Measured,
    expected: reference.Trained,
    dtype: str,
) -> GradientCase:
    references = {name: tensor.numpy().astype(np.float64) for name, tensor in expected.gradients.items()}
    whole = float(np.sqrt(sum(np.sum(reference**2) for reference in references.values())))
    least = whole * _EPSILONS[dtype]
    errors = {name: _relative(found.gradients[name], tensor, least) for name, tensor in references.items()}
    worst = max(errors, key=errors.__getitem__, default="")
    return GradientCase(
        arrangement=arrangement,
        schedule=schedule,
        microbatches=sizes,
        gradient_error=errors.get(worst, 0.0),
        worst=worst,
        loss_error=_relative(np.array(found.losses[-1]), np.array(expected.losses[-1])),
        tolerance=TOLERANCES[dtype],
    )


def _relative(found: NDArray[Any], expected: NDArray[Any], least: float = 0.0) -> float:
    """‖found − expected‖ ÷ ‖expected‖ in float64; 0 where both are no larger than ``least``."""
    difference = float(np.linalg.norm(found.astype(np.float64) - expected.astype(np.float64)))
    size = float(np.linalg.norm(expected.astype(np.float64)))
    if max(size, float(np.linalg.norm(found.astype(np.float64)))) <= least:
        return 0.0
    return difference / size if size > 0.0 else float("inf")


def _identical(a: _Measured, b: _Measured) -> bool:
    same = _equal(a.gradients, b.gradients) and _equal(a.parameters, b.parameters)
    return a.losses == b.losses and same


def _equal(own: Arrays, all_of_them: Arrays) -> bool:
    return all(np.array_equal(value, all_of_them[name]) for name, value in own.items())
