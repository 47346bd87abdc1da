"""What the planner answers: a plan, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One device of a stage: samples of each full microbatch, bytes needed and bytes allowed."""

    device: str
    samples: int
    memory: float
    memory_limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Layers on one device or replica group.

    ``forward`` and ``backward`` are seconds for one full microbatch, those of the slowest device; ``in_flight`` is the
    most microbatches whose activations are held at once; ``update`` and ``allreduce`` are seconds at the end of the
    step. ``inputs`` are the stages that feed this one; None = the stage before (a chain).

    ``recompute`` says that activations are computed again before their backward, and ``recompute_segments`` of which
    layers, each from its first to its last name; none are named where it is the whole stage. ``offload`` says that
    activations wait in host memory. ``optimizer_shards`` are the devices that the optimizer's state is spread over.
    """

    index: int
    layers: tuple[str, ...]
    devices: tuple[Share, ...]
    forward: float
    backward: float
    in_flight: int
    recompute: bool = False
    offload: bool = False
    optimizer_shards: int = 1
    update: float = 0.0
    allreduce: float = 0.0
    inputs: tuple[int, ...] | None = None
    recompute_segments: tuple[tuple[str, str], ...] = ()

    @property
    def fullest(self) -> Share:
        """The device with the least room left, whose memory stands for the stage's."""
        return min(self.devices, key=lambda share: share.memory_limit - share.memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """The resource with the largest busy time per microbatch: a ``stage`` or the ``link`` after stage ``index``."""

    kind: Literal["stage", "link"]
    index: int
    busy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What the plan is expected to do. Seconds, samples per second, money, joules, bytes; None = unknown.

    ``step_low`` and ``step_high`` bound the step in 80 % of cases; both equal it without calibration. ``duration`` is
    that of the whole job; its ends are None without calibration.
    """

    step: float
    step_low: float
    step_high: float
    samples_per_second: float
    bubble_fraction: float
    bottleneck: Bottleneck
    transfer_bytes: float
    duration: float | None = None
    cost: float | None = None
    energy: float | None = None
    duration_low: float | None = None
    duration_high: float | None = None

    @property
    def latest(self) -> float | None:
        """Seconds of the whole job at the late end of its range; what is expected where no range is known."""
        return self.duration if self.duration_high is None else self.duration_high


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A lower bound on the step time of any plan of the same family; ``gap`` = step ÷ bound − 1."""

    step: float
    gap: float
    method: str
    optimal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Unused:
    """A device that the plan leaves out, and why."""

    device: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another plan in short: what it would use and what it would take."""

    devices: tuple[str, ...]
    num_layers: tuple[int, ...]
    schedule: str
    num_microbatches: int
    step: float
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One thing that keeps the step from being shorter.

    ``kind`` is what binds; ``index`` its stage (of a link: the sending one), ``device`` the one whose memory it is.
    ``share`` is the part of the step that it accounts for: made p % faster, the step is share · p % shorter, for small
    p; of memory and batch, the part of the step that would be saved. None = not worked out.
    """

    kind: Literal["stage", "link", "allreduce", "memory", "batch"]
    text: str
    index: int | None = None
    device: str | None = None
    share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Stages, devices, microbatches and schedule for one job.

    ``microbatches`` are samples of each microbatch of one step, in order. ``resolved`` holds every value that was left
    to the planner, as it was resolved; ``why`` what binds, the most first.
    """

    job: str
    schedule: str
    precision: str
    microbatches: tuple[int, ...]
    stages: tuple[Stage, ...]
    predicted: Prediction
    bound: Bound
    unused: tuple[Unused, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    warnings: tuple[str, ...] = ()
    resolved: Mapping[str, Any] = field(default_factory=dict)
    why: tuple[Reason, ...] = ()

    @property
    def device_ids(self) -> tuple[str, ...]:
        """Ids of the devices held, in order of stages, each once."""
        return tuple(dict.fromkeys(share.device for stage in self.stages for share in stage.devices))

    @property
    def num_stages(self) -> int:
        """Number of stages."""
        return len(self.stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible:
    """Why there is no plan.

    ``code`` is a word for machines (memory, dtype, devices, layers, batch, deadline, links, …), ``text`` the sentence;
    ``shortfall`` in bytes wherever memory would cure it; ``earliest_finish`` in seconds from submission for a deadline
    that cannot be met; ``cures`` say what would help.
    """

    code: str
    text: str
    shortfall: float | None = None
    earliest_finish: float | None = None
    cures: tuple[str, ...] = ()
