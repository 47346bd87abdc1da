"""Orders of actions: GPipe and 1F1B, their text form, and how many microbatches they keep alive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ignite_scheduler.errors import InputError, ScheduleError
from ignite_scheduler.pipeline.actions import BACKWARD, FORWARD, INPUT_BACKWARD, WEIGHT_BACKWARD, Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The order of actions of one pipeline.

    ``rows[r]`` is what worker r does, in order. In a straight pipeline worker r holds stage r; a worker may hold
    several stages.
    """

    name: str
    num_stages: int
    num_microbatches: int
    rows: tuple[tuple[Action, ...], ...]

    def row_of(self, stage_index: int) -> int:
        """The worker that holds the stage; ScheduleError if none does."""
        for row_index, row in enumerate(self.rows):
            if any(action.stage_index == stage_index for action in row):
                return row_index
        raise ScheduleError(f"no worker of schedule {self.name!r} holds stage {stage_index}")


def gpipe_row(stage_index: int, depth: int, num_microbatches: int) -> Iterator[Action]:
    """Yield the actions of one stage under GPipe: all forwards, then all backwards, oldest first.

    ::

        stage 0  F0 F1 F2 F3 .. .. .. .. .. .. B0 B1 B2 B3
        stage 1  .. F0 F1 F2 F3 .. .. .. .. B0 B1 B2 B3 ..
        stage 2  .. .. F0 F1 F2 F3 B0 B1 B2 B3 .. .. .. ..

    References: Huang et al., "GPipe", NeurIPS 2019. Deviation: backwards run 0…M−1 as in the field's later
    implementations, not in reverse.
    """
    del depth
    for k in range(num_microbatches):
        yield Action(stage_index, FORWARD, k)
    for k in range(num_microbatches):
        yield Action(stage_index, BACKWARD, k)


def one_f_one_b_row(stage_index: int, depth: int, num_microbatches: int) -> Iterator[Action]:
    """Yield the actions of one stage under 1F1B (PipeDream-flush).

    Exactly min(M, depth − 1) warm-up forwards, then forward and backward in turn, then the remaining backwards. The
    depth counts the stages on the longest way from this one to the end, itself included; in a chain it is S − s::

        stage 0  F0 F1 F2 .. .. B0 F3 B1 .. B2 .. B3      warm-up 2
        stage 1  .. F0 F1 .. B0 F2 B1 F3 B2 .. B3 ..      warm-up 1
        stage 2  .. .. F0 B0 F1 B1 F2 B2 F3 B3 .. ..      warm-up 0

    References: Narayanan et al., "PipeDream", SOSP 2019; with a flush in "Memory-Efficient Pipeline-Parallel DNN
    Training", ICML 2021. By depth where stages branch: Jeon et al., "GraphPipe", ASPLOS 2025, with one
    microbatch for each forward and backward.
    """
    warm_up = min(num_microbatches, depth - 1)
    for k in range(warm_up):
        yield Action(stage_index, FORWARD, k)
    for k in range(warm_up, num_microbatches):
        yield Action(stage_index, FORWARD, k)
        yield Action(stage_index, BACKWARD, k - warm_up)
    for k in range(num_microbatches - warm_up, num_microbatches):
        yield Action(stage_index, BACKWARD, k)


_ROWS: Final[Mapping[str, Callable[[int, int, int], Iterator[Action]]]] = MappingProxyType(
    {"gpipe": gpipe_row, "1f1b": one_f_one_b_row}
)

SCHEDULES: Final = tuple(_ROWS)
"""Names of the schedules that can be made."""


def make_schedule(
    name: str, num_stages: int, num_microbatches: int, *, depths: Sequence[int] | None = None
) -> Schedule:
    """The schedule of that name for S stages and M microbatches (any M ≥ 1, also M < S).

    Parameters
    ----------
    depths
        Of each stage, how many stages there are on the longest way from it to the end, itself included
        (:func:`graph_depths`); None = a chain, S − s.

    Raises
    ------
    InputError
        Unknown name, or a count below 1.

    >>> print(format_schedule(make_schedule("1f1b", 2, 3)))
    0F0,0F1,0B0,0F2,0B1,0B2
    1F0,1B0,1F1,1B1,1F2,1B2
    """
    if name not in _ROWS:
        raise InputError(f"unknown schedule {name!r}; there are: {', '.join(SCHEDULES)}")
    if num_stages < 1 or num_microbatches < 1:
        raise InputError(
            f"a schedule needs at least 1 stage and 1 microbatch, found {num_stages} and {num_microbatches}"
        )
    if depths is None:
        depths = range(num_stages, 0, -1)
    elif len(depths) != num_stages or min(depths) < 1:
        raise InputError(f"expected a depth of at least 1 for each of the {num_stages} stages, found {tuple(depths)}")
    rows = tuple(tuple(_ROWS[name](s, depth, num_microbatches)) for s, depth in enumerate(depths))
    return Schedule(name=name, num_stages=num_stages, num_microbatches=num_microbatches, rows=rows)


def graph_depths(inputs: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Stages on the longest way from each stage to one that feeds no other, both included.

    Parameters
    ----------
    inputs
        For each stage, those that feed it.

    Raises
    ------
    InputError
        A stage is fed by one that is not there, or by itself, be it through others.

    >>> graph_depths([(), (0,), (0,), (1, 2)]), graph_depths([(), (0,), (1,)])
    ((3, 2, 2, 1), (3, 2, 1))
    """
    num_stages = len(inputs)
    feeds: list[list[int]] = [[] for _ in range(num_stages)]
    for stage, sources in enumerate(inputs):
        for source in sources:
            if not 0 <= source < num_stages:
                raise InputError(f"stage {stage} has input {source}, but stages are numbered 0 to {num_stages - 1}")
            feeds[source].append(stage)
    waiting = [len(targets) for targets in feeds]
    ready = [stage for stage in range(num_stages) if not waiting[stage]]
    depths = [0] * num_stages
    for stage in ready:  # grows while it is walked: a stage comes when all that it feeds have come
        depths[stage] = 1 + max((depths[target] for target in feeds[stage]), default=0)
        for source in inputs[stage]:
            waiting[source] -= 1
            if not waiting[source]:
                ready.append(source)
    if len(ready) < num_stages:
        round_about = [stage for stage in range(num_stages) if not depths[stage]]
        raise InputError(f"stages feed each other in a circle, or are fed by one that is in it: {round_about}")
    return tuple(depths)


def format_schedule(schedule: Schedule) -> str:
    """The schedule as text: a line per worker, actions parted by commas."""
    return "\n".join(",".join(str(action) for action in row) for row in schedule.rows)


def parse_schedule(text: str, *, name: str = "list") -> Schedule:
    """The schedule that :func:`format_schedule` wrote; empty cells (idle slots) are skipped.

    Raises
    ------
    ScheduleError
        A cell is no action, or there is none at all.
    """
    rows = tuple(
        tuple(Action.parse(cell) for cell in line.split(",") if cell.strip())
        for line in text.splitlines()
        if line.strip()
    )
    actions = [action for row in rows for action in row]
    if not actions:
        raise ScheduleError("expected at least one action such as '0F0', found none")
    return Schedule(
        name=name,
        num_stages=1 + max(action.stage_index for action in actions),
        num_microbatches=1 + max(action.microbatch_index for action in actions),
        rows=rows,
    )


def in_flight(schedule: Schedule) -> tuple[int, ...]:
    """The most microbatches whose activations each stage holds at once.

    A microbatch is held from its forward to its backward (to ``W`` where the backward is split).

    >>> in_flight(make_schedule("1f1b", 3, 8)), in_flight(make_schedule("gpipe", 3, 8))
    ((3, 2, 1), (8, 8, 8))
    """
    held = [0] * schedule.num_stages
    most = [0] * schedule.num_stages
    for row in schedule.rows:
        for action in row:
            stage = action.stage_index
            if action.kind == FORWARD:
                held[stage] += 1
                most[stage] = max(most[stage], held[stage])
            elif action.kind in (BACKWARD, WEIGHT_BACKWARD):
                held[stage] -= 1
            else:
                assert action.kind == INPUT_BACKWARD
    return tuple(most)
