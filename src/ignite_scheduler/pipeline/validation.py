"""Whether an order of actions is complete and can finish."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ignite_scheduler.errors import ScheduleError
from ignite_scheduler.pipeline.actions import BACKWARD, FORWARD, INPUT_BACKWARD, WEIGHT_BACKWARD, Action
from ignite_scheduler.pipeline.schedules import Schedule


def validate(schedule: Schedule, edges: Sequence[tuple[int, int]] | None = None) -> None:
    """Check that each stage handles each microbatch exactly once and that no worker waits for ever.

    Parameters
    ----------
    edges
        (source, target) pairs of stages; None = the chain 0→1→…→S−1.

    Raises
    ------
    ScheduleError
        Names the missing, doubled or blocked action and what it waits for.

    Notes
    -----
    O(actions × edges per stage): each worker runs until it blocks; a round without progress is a deadlock.
    """
    if edges is None:
        edges = [(s, s + 1) for s in range(schedule.num_stages - 1)]
    _check_complete(schedule)
    _check_runs(schedule, edges)


def _check_complete(schedule: Schedule) -> None:
    holders: dict[int, int] = {}
    counts: Counter[Action] = Counter()
    for row_index, row in enumerate(schedule.rows):
        for action in row:
            if holders.setdefault(action.stage_index, row_index) != row_index:
                raise ScheduleError(
                    f"stage {action.stage_index} is held by two workers: {action} is in row {row_index}"
                )
            counts[action] += 1
    for stage in range(schedule.num_stages):
        for k in range(schedule.num_microbatches):
            forward = counts.pop(Action(stage, FORWARD, k), 0)
            whole = counts.pop(Action(stage, BACKWARD, k), 0)
            split = (counts.pop(Action(stage, INPUT_BACKWARD, k), 0), counts.pop(Action(stage, WEIGHT_BACKWARD, k), 0))
            if forward != 1:
                raise ScheduleError(f"expected {stage}F{k} exactly once, found it {forward} times")
            if (whole, *split) not in ((1, 0, 0), (0, 1, 1)):
                raise ScheduleError(
                    f"expected {stage}B{k} once, or {stage}I{k} and {stage}W{k} once each; "
                    f"found B {whole}, I {split[0]}, W {split[1]} times"
                )


def requirements(action: Action, edges: Sequence[tuple[int, int]]) -> list[tuple[Action, ...]]:
    """What must have ended before ``action``: a list of groups, any one action of each group is enough."""
    stage, kind, k = action
    if kind == FORWARD:
        return [(Action(source, FORWARD, k),) for source, target in edges if target == stage]
    if kind == WEIGHT_BACKWARD:
        return [(Action(stage, INPUT_BACKWARD, k),)]
    gradients = [
        (Action(target, BACKWARD, k), Action(target, INPUT_BACKWARD, k)) for source, target in edges if source == stage
    ]
    return [(Action(stage, FORWARD, k),), *gradients]


def _check_runs(schedule: Schedule, edges: Sequence[tuple[int, int]]) -> None:
    done: set[Action] = set()
    position = [0] * len(schedule.rows)
    progress = True
    while progress:
        progress = False
        for row_index, row in enumerate(schedule.rows):
            while position[row_index] < len(row):
                action = row[position[row_index]]
                if any(done.isdisjoint(group) for group in requirements(action, edges)):
                    break
                done.add(action)
                position[row_index] += 1
                progress = True
    blocked = []
    for row_index, row in enumerate(schedule.rows):
        if position[row_index] < len(row):
            action = row[position[row_index]]
            waits = [str(group[0]) for group in requirements(action, edges) if done.isdisjoint(group)]
            blocked.append(f"worker {row_index} is blocked at {action}, which waits for {', '.join(waits)}")
    if blocked:
        raise ScheduleError("the order never finishes: " + "; ".join(blocked))
