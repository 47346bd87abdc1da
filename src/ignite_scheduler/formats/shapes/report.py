"""Shape of ``ignite/report/v1``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ignite_scheduler.formats.shapes.fields import Count, NotNegative, Shape, Text


class PolicyShape(Shape):
    """What a policy did to a workload; null = unknown."""

    jobs: Count
    finished: Count
    jct_mean_s: NotNegative | None
    jct_p50_s: NotNegative | None
    jct_p95_s: NotNegative | None
    jct_p99_s: NotNegative | None
    makespan_s: NotNegative | None
    queueing_delay_mean_s: NotNegative | None
    deadlines: Count
    deadlines_met: Count
    utilisation: NotNegative | None
    device_hours: NotNegative
    cost: NotNegative | None
    energy_j: NotNegative | None
    fairness_worst_rho: NotNegative | None
    preemptions: Count
    promise_error_p50: NotNegative | None
    promise_error_p90: NotNegative | None
    promise_error_p99: NotNegative | None
    decision_s_mean: NotNegative | None
    decision_s_max: NotNegative | None
    cpu_s: NotNegative


class ReportShape(Shape):
    """A workload played under several policies."""

    schema_: Literal["ignite/report/v1"] = Field(alias="schema")
    cluster: Text
    workload: Text
    policies: dict[Text, PolicyShape]
