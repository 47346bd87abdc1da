"""The answer to "how should this job run here?" as a value for scripts and notebooks."""

from __future__ import annotations

import html
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ignite_scheduler.api.markup import table
from ignite_scheduler.errors import ConflictError
from ignite_scheduler.model import Cluster, Infeasible, Job, Plan, Profile, Stage
from ignite_scheduler.pipeline import Timeline
from ignite_scheduler.units import format_duration, format_memory, format_names

if TYPE_CHECKING:
    from ignite_scheduler.formats.timeline import TimelineRecord


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A plan, or why there is none, with what it was made from.

    Shows itself as a table and a picture in a notebook. ``answer`` is the plain value.
    """

    answer: Plan | Infeasible
    job: Job
    profile: Profile
    cluster: Cluster

    @property
    def feasible(self) -> bool:
        """Whether there is a plan."""
        return isinstance(self.answer, Plan)

    @property
    def plan(self) -> Plan:
        """The plan.

        Raises
        ------
        ConflictError
            There is none; the message says why.
        """
        if isinstance(self.answer, Plan):
            return self.answer
        raise ConflictError(f"there is no plan for {self.job.name!r}: {self.answer.text}")

    def to_dict(self) -> dict[str, Any]:
        """The document ``ignite/plan/v1``."""
        from ignite_scheduler.formats import answer_document

        return answer_document(self.answer, job=self.job.name)

    @cached_property
    def timeline(self) -> Timeline:
        """One planned step, action by action; ConflictError if there is no plan."""
        from ignite_scheduler.cost import stage_durations
        from ignite_scheduler.daemon.placement import choice_of
        from ignite_scheduler.pipeline import timeline

        return timeline(*stage_durations(self.job, self.profile, self.cluster, choice_of(self.plan, self.profile)))

    def to_timeline(self) -> TimelineRecord:
        """One planned step in the form in which a run writes down measured ones; ConflictError if there is no plan."""
        from ignite_scheduler.formats.timeline import parse_timeline, planned_document

        plan = self.plan
        devices = [", ".join(share.device for share in stage.devices) for stage in plan.stages]
        return parse_timeline(planned_document(self.timeline, job=plan.job, devices=devices))

    def to_chrome_trace(self) -> dict[str, Any]:
        """One planned step as a Chrome trace, which Perfetto opens; ConflictError if there is no plan."""
        from ignite_scheduler.formats import chrome_trace

        return chrome_trace(self.to_timeline())

    def to_svg(self) -> str:
        """One planned step as a Gantt picture; ConflictError if there is no plan."""
        from ignite_scheduler.api.pipeline_pictures import step_panel, step_svg

        plan, record = self.plan, self.to_timeline()
        title = f"{plan.job}: planned step, {plan.schedule}, {len(plan.microbatches)} microbatches"
        return step_svg([step_panel(title, record.steps[0], record.row_names)])

    def _repr_html_(self) -> str:
        answer = self.answer
        if isinstance(answer, Infeasible):
            cures = "".join(f"<li>{html.escape(cure)}</li>" for cure in answer.cures)
            why = f"<b>{html.escape(self.job.name)}</b> cannot be planned: {html.escape(answer.text)}"
            return f"<p>{why}</p><ul>{cures}</ul>"
        predicted, bound = answer.predicted, answer.bound
        head = (
            f"<p><b>{html.escape(answer.job)}</b>: step {format_duration(predicted.step)}, "
            f"{predicted.samples_per_second:.4g} samples/s, bubble {100 * predicted.bubble_fraction:.1f} %, "
            f"{'proven optimal' if bound.optimal else f'gap at most {100 * bound.gap:.2f} %'}</p>"
        )
        return head + _stage_table(answer) + self.to_svg()

    def __repr__(self) -> str:
        if isinstance(self.answer, Infeasible):
            return f"Planned({self.job.name!r}: infeasible, {self.answer.text})"
        stages = ", ".join(f"{len(stage.layers)} layers on {_devices(stage)}" for stage in self.answer.stages)
        return f"Planned({self.job.name!r}: {format_duration(self.answer.predicted.step)} a step, {stages})"


def _devices(stage: Stage) -> str:
    return format_names([share.device for share in stage.devices])


def _stage_table(plan: Plan) -> str:
    rows = [
        [
            stage.index,
            len(stage.layers),
            _devices(stage),
            format_duration(stage.forward),
            format_duration(stage.backward),
            format_memory(stage.fullest.memory),
        ]
        for stage in plan.stages
    ]
    return table(["stage", "layers", "device", "forward", "backward", "memory"], rows)
