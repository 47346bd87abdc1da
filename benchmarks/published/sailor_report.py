"""The table of Sailor's plans: predicted against measured, with parts, and a reason for each outlier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ignite_scheduler.errors import InputError
from published.sailor import Predicted, predict
from published.sailor_files import Measured, Sailor, read_plan
from tables import by_group, table

OUTLIER = 0.25
LAUNCH_BOUND = 0.75  # time of u samples ÷ time of twice as many: 0.5 where the GPU works all the time, 1 where it waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A plan that was predicted. ``counted`` is false for a record that repeats another plan's."""

    plan: Measured
    predicted: Predicted
    counted: bool
    notes: tuple[str, ...]

    @property
    def error(self) -> float | None:
        """Predicted ÷ measured − 1; None where nothing was measured."""
        return None if self.plan.step is None else self.predicted.step / self.plan.step - 1

    @property
    def explained(self) -> bool:
        """Whether an outlier has a reason with figures."""
        return self.error is None or abs(self.error) <= OUTLIER or bool(self.notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A plan that the data cannot time, and why."""

    name: str
    reason: str


def rows(data: Sailor, files: Iterable[Path]) -> list[Row | Refused]:
    """Every plan, predicted or refused."""
    found: list[Row | Refused] = []
    for file in files:
        try:
            plan = read_plan(file)
            predicted = predict(data, plan)
        except InputError as error:
            found.append(Refused(name=f"{file.parent.name}/{file.stem}", reason=str(error)))
            continue
        notes = tuple(explanations(data, plan, predicted))
        found.append(Row(plan=plan, predicted=predicted, counted=True, notes=notes))
    return _count_once(found)


def _count_once(found: Sequence[Row | Refused]) -> list[Row | Refused]:
    """Of records with the same measured figures only the one counts whose predicted all-reduce is nearest to them."""
    best: dict[tuple[object, ...], Row] = {}
    for row in found:
        if isinstance(row, Row) and row.plan.step is not None:
            key = (row.plan.cluster, row.plan.step, row.plan.reduction)
            if key not in best or _distance(row) < _distance(best[key]):
                best[key] = row
    kept = set(map(id, best.values()))
    return [
        row if isinstance(row, Refused) or row.plan.step is None or id(row) in kept else replace(row, counted=False)
        for row in found
    ]


def _distance(row: Row) -> float:
    return abs(row.predicted.reduction - (row.plan.reduction or 0.0))


def explanations(data: Sailor, plan: Measured, predicted: Predicted) -> Iterable[str]:
    """What the files themselves say about a difference, with figures; nothing where a prediction fits."""
    if plan.step is None:
        return
    if plan.step < predicted.step and predicted.floor < plan.step * 1.02:
        yield from _launch_bound(data, plan, predicted)
    if plan.reduction is not None:
        yield from _reduction_differs(plan, predicted)


def _launch_bound(data: Sailor, plan: Measured, predicted: Predicted) -> Iterable[str]:
    model = data.model_of(plan)
    for layers, replicas in plan.stages:
        raw = data.raw(model, replicas[0], layers)
        if plan.micro in raw and 2 * plan.micro in raw and raw[plan.micro] > LAUNCH_BOUND * raw[2 * plan.micro]:
            yield (
                f"launch-bound profile: {plan.micro} samples a pass take {raw[plan.micro] * 1e3:.1f} ms, "
                f"{2 * plan.micro} take {raw[2 * plan.micro] * 1e3:.1f} ms; the host sets the pace, and a profile that "
                f"waits after each layer shows more of it than a step does. At the pace of large microbatches the step "
                f"is {predicted.floor:.4g} s; {plan.step:.4g} s were measured, in between"
            )
            return


def _reduction_differs(plan: Measured, predicted: Predicted) -> Iterable[str]:
    recorded, own = plan.reduction or 0.0, predicted.reduction
    assert plan.step is not None
    outside = plan.step - recorded
    if outside < 0.8 * predicted.compute and recorded > 2 * own:
        with_wait = own + predicted.waiting
        if with_wait > 0.8 * recorded:
            yield (
                f"the recorded reduction of {recorded:.4g} s ({recorded / plan.step:.0%} of the step) leaves "
                f"{outside:.4g} s for {predicted.compute:.4g} s of compute: it was taken on the replica that is done "
                f"first, which waits {predicted.waiting:.4g} s for the slowest before an all-reduce of {own:.4g} s"
            )
        else:
            yield (
                f"the recorded reduction of {recorded:.4g} s leaves {outside:.4g} s for {predicted.compute:.4g} s of "
                f"compute on the busiest device, so it cannot be one"
            )
    elif abs(recorded - own) > 0.25 * plan.step:
        yield (
            f"reduction: {recorded:.4g} s recorded, {own:.4g} s by the ring; with the recorded one the step is "
            f"{(predicted.step - own + recorded) / plan.step - 1:+.1%} off"
        )


def report(found: Sequence[Row | Refused]) -> str:
    """Table, quantiles by cluster, and notes, as Markdown."""
    predicted = [row for row in found if isinstance(row, Row)]
    counted = [(row.plan.cluster, row.error) for row in predicted if row.counted and row.error is not None]
    parts = [table(_HEAD, map(_cells, predicted))]
    if counted:
        parts.append(by_group(counted, "cluster"))
    notes = [f"- {row.plan.cluster} {row.plan.name}: {note}." for row in predicted for note in row.notes]
    notes += [
        f"- {row.plan.cluster} {row.plan.name}: its figures repeat another plan's; not counted."
        for row in predicted
        if not row.counted
    ]
    notes += [f"- {row.plan.cluster} {row.plan.name}: **not explained**." for row in predicted if not row.explained]
    notes += [f"- not predicted: {row.name}: {row.reason}." for row in found if isinstance(row, Refused)]
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])])


_HEAD = (
    "cluster, plan",
    "measured s",
    "predicted s",
    "error",
    "compute",
    "bubble",
    "transfers",
    "reduction",
    "update",
    "red_grads recorded",
    "first one waits",
    "memory GB",
    "max_mem recorded",
)


def _cells(row: Row) -> list[str]:
    plan, own = row.plan, row.predicted
    parts = (own.compute, own.bubble, own.transfer, own.reduction, own.update)
    error = "–" if row.error is None else f"{row.error:+.1%}"
    return [
        f"{plan.cluster} {plan.name}",
        _number(plan.step),
        _number(own.step),
        error if row.counted else f"({error})",
        *map(_number, parts),
        _number(plan.reduction),
        _number(own.waiting),
        f"{own.memory / 1e9:.1f}",
        "–" if plan.peak is None else f"{plan.peak / 1e9:.1f}",
    ]


def _number(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds:.2f}" if seconds >= 10 else f"{seconds:.3f}" if seconds >= 1 else f"{seconds:.4f}"
