"""What a user asks for: one training job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Choice = Literal["auto"]
"""The planner chooses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Where something comes from.

    Exactly one of: a name in the zoo, a Python ``module:attribute``, or (models only) a profile without code.
    ``profile`` may stand beside the other two: a path, already resolved against the job file's folder.
    """

    zoo: str | None = None
    module: str | None = None
    profile: str | None = None
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Samples per step, and per microbatch (None = the planner chooses)."""

    total: int
    micro: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFactors:
    """Multiples of parameter bytes that a stage keeps."""

    weights: float
    gradients: float
    optimizer: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """Update rule.

    ``memory`` overrides the factors that follow from ``name``; ``options`` go to the rule as they are.
    """

    name: str = "sgd"
    lr: float = 0.01
    memory: MemoryFactors | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRateSchedule:
    """How the learning rate moves: ``constant``, ``linear`` or ``cosine``, after ``warmup`` steps of linear rise."""

    name: str = "constant"
    warmup: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Every how many steps the loss on held-out data is taken."""

    every: int
    data: Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Which devices may be used.

    ``any_of``: alternatives, each an exact count per kind (one atomic request); empty = the planner chooses.
    ``exclude``: device ids or node names.
    """

    any_of: tuple[Mapping[str, int], ...] = ()
    max_devices: int | None = None
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineChoice:
    """What the user fixes of the pipeline; ``auto`` leaves it to the planner.

    ``split``: numbers of layers per stage. ``replicas``: devices for each stage.
    """

    stages: int | Choice = "auto"
    schedule: str = "auto"
    split: tuple[int, ...] | Choice = "auto"
    replicas: int | Choice = "auto"
    recompute: bool | Choice = False
    shard: bool | Choice = False
    offload: bool | Choice = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointing:
    """Steps between checkpoints (None = only at the end) and how many are kept."""

    every: int | None = None
    keep: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTerms:
    """What the scheduler must know of a job: seconds from submission, budget in the cluster's currency."""

    priority: int = 0
    weight: float = 1.0
    deadline: float | None = None
    max_time: float | None = None
    budget: float | None = None
    preemptible: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training job. Exactly one of ``steps`` and ``epochs`` is given."""

    name: str
    model: Reference
    batch: Batch
    data: Reference | None = None
    loss: str = "cross_entropy"
    seed: int = 0
    steps: int | None = None
    epochs: int | None = None
    optimizer: Optimizer = field(default_factory=Optimizer)
    gradient_clip: float | None = None
    lr_schedule: LearningRateSchedule = field(default_factory=LearningRateSchedule)
    evaluate: Evaluation | None = None
    precision: str = "fp32"
    resources: Resources = field(default_factory=Resources)
    pipeline: PipelineChoice = field(default_factory=PipelineChoice)
    checkpoint: Checkpointing = field(default_factory=Checkpointing)
    queue: QueueTerms = field(default_factory=QueueTerms)
    output: str | None = None
