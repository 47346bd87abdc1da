"""Shape of ``job.yaml``, and of one line of a workload."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from ignite_scheduler.formats.shapes.fields import (
    AutoCount,
    AutoFlag,
    AutoSplit,
    Checked,
    Count,
    CountFromOne,
    Duration,
    Integer,
    JobName,
    KindName,
    NotNegative,
    Positive,
    Shape,
    Steps,
    Text,
    Version,
    nearest,
    or_list,
    word,
)

LOSSES = ("cross_entropy", "mse")
SCHEDULES = (
    "auto",
    "gpipe",
    "1f1b",
    "interleaved",
    "zb-h1",
    "zb-v",
    "unequal",
    "list",
    "pipedream",
    "xpipe",
    "hetpipe",
)


def attribute(text: Any) -> str:
    """``pkg.mod:name`` as it is; ValueError for anything else."""
    module, colon, name = str(text).partition(":")
    if isinstance(text, str) and colon and all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        return text
    raise ValueError(f"expected a Python name such as 'package.module:function', found {text!r}")


Attribute = Annotated[str, Checked(attribute, {"type": "string", "examples": ["package.module:function"]})]


def _loss(text: Any) -> str:
    if text in LOSSES:
        return str(text)
    if ":" in str(text):
        return attribute(text)
    near = nearest(text, LOSSES)
    hint = f"; did you mean {near!r}?" if near else ""
    raise ValueError(
        f"unknown loss {text!r}: expected {or_list(LOSSES)}, or your own as 'package.module:function'{hint}"
    )


def _auto_as_none(value: Any) -> Any:
    return None if value == "auto" else value


_ARGS_HINT = "arguments of the builder stand under 'args: {…}'"


class ModelShape(Shape):
    """Where a model comes from; a profile may stand beside the code."""

    hints: ClassVar[dict[str, str]] = {"": _ARGS_HINT}

    zoo: Text | None = None
    module: Attribute | None = None
    profile: Text | None = None
    args: dict[str, Any] = Field(default_factory=dict)


class DataShape(Shape):
    """Where samples come from: a Python name, or a name in the zoo."""

    hints: ClassVar[dict[str, str]] = {"": _ARGS_HINT}

    dataset: Text | None = None
    zoo: Text | None = None
    args: dict[str, Any] = Field(default_factory=dict)


class BatchShape(Shape):
    """Samples a step and a microbatch."""

    total: CountFromOne = Field(alias="global")
    micro: AutoCount = "auto"


class FactorsShape(Shape):
    """Multiples of parameter bytes."""

    weights: NotNegative
    gradients: NotNegative
    optimizer: NotNegative


class OptimizerShape(Shape):
    """Update rule; which options it knows depends on its name."""

    name: Annotated[str, word("sgd", "momentum", "adam", "adamw", noun="optimizer")] = "sgd"
    lr: NotNegative = 0.01
    memory: FactorsShape | None = None
    weight_decay: NotNegative | None = None
    momentum: NotNegative | None = None
    dampening: NotNegative | None = None
    nesterov: bool | None = None
    betas: Annotated[list[NotNegative], Field(min_length=2, max_length=2)] | None = None
    eps: NotNegative | None = None
    amsgrad: bool | None = None


OPTIMIZER_OPTIONS = {
    "sgd": ("weight_decay",),
    "momentum": ("weight_decay", "momentum", "dampening", "nesterov"),
    "adam": ("weight_decay", "betas", "eps", "amsgrad"),
    "adamw": ("weight_decay", "betas", "eps", "amsgrad"),
}


class LearningRateShape(Shape):
    """How the learning rate moves."""

    name: Annotated[str, word("constant", "linear", "cosine", noun="learning-rate schedule")] = "constant"
    warmup: Count = 0


class EvaluationShape(Shape):
    """How often the loss on held-out data is taken."""

    every: Steps
    data: DataShape


class ResourcesShape(Shape):
    """Which devices may be used."""

    any_of: Annotated[
        list[Annotated[dict[KindName, CountFromOne], Field(min_length=1)]] | None, BeforeValidator(_auto_as_none)
    ] = None
    max_devices: Annotated[CountFromOne | None, BeforeValidator(_auto_as_none)] = None
    exclude: list[Text] = Field(default_factory=list)


class PipelineShape(Shape):
    """What is fixed of the pipeline."""

    stages: AutoCount = "auto"
    schedule: Annotated[str, word(*SCHEDULES, noun="schedule")] = "auto"
    split: AutoSplit = "auto"
    replicas: AutoCount = "auto"
    recompute: AutoFlag = False
    shard: AutoFlag = False
    offload: AutoFlag = False


class CheckpointShape(Shape):
    """How often the state is saved and how many saves are kept."""

    every: Steps | None = None
    keep: CountFromOne = 2


class QueueShape(Shape):
    """What the scheduler must know."""

    priority: Integer = 0
    weight: Positive = 1.0
    deadline: Duration | None = None
    max_time: Duration | None = None
    budget: NotNegative | None = None
    preemptible: bool = True


class WorkShape(Shape):
    """The keys of a job; ``version`` is asked for in a file of its own only."""

    name: JobName
    model: ModelShape
    data: DataShape | None = None
    loss: Annotated[str, Checked(_loss, {"type": "string", "examples": list(LOSSES)})] = "cross_entropy"
    seed: Count = 0
    steps: CountFromOne | None = None
    epochs: CountFromOne | None = None
    batch: BatchShape
    optimizer: OptimizerShape = OptimizerShape()
    gradient_clip: Positive | None = None
    lr_schedule: LearningRateShape = LearningRateShape()
    evaluate: EvaluationShape | None = None
    precision: Annotated[str, word("fp32", "fp16", "bf16", "auto", noun="precision")] = "fp32"
    resources: ResourcesShape = ResourcesShape()
    pipeline: PipelineShape = PipelineShape()
    checkpoint: CheckpointShape = CheckpointShape()
    queue: QueueShape = QueueShape()
    output: Text | None = None


class JobShape(WorkShape):
    """One training job."""

    version: Version


class TrainingLineShape(WorkShape):
    """A line of a workload: a training job and when it is submitted."""

    version: Version = 1
    submit_s: NotNegative


class TableLineShape(Shape):
    """A line of a workload: a job known by its rates on counts of devices and its total work."""

    submit_s: NotNegative
    name: JobName
    rates: Annotated[dict[str, Positive], Field(min_length=1)]
    total: Positive
    queue: QueueShape = QueueShape()
