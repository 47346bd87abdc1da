"""Many jobs: who gets what. Each policy is a small pure file over the same view; candidates come in as data."""

from ignite_scheduler.policy.candidates import (
    Candidate,
    KindFigures,
    candidates_of_plans,
    candidates_of_rates,
    figures_of_kinds,
)
from ignite_scheduler.policy.pools import Pools, kind_pool, pools_of
from ignite_scheduler.policy.registry import DEFAULT_POLICY, POLICIES, make_policy
from ignite_scheduler.policy.view import (
    Decision,
    JobQueue,
    Option,
    Policy,
    QueuedJob,
    Reason,
    RunningJob,
    Start,
    View,
)

__all__ = [
    "DEFAULT_POLICY",
    "POLICIES",
    "Candidate",
    "Decision",
    "JobQueue",
    "KindFigures",
    "Option",
    "Policy",
    "Pools",
    "QueuedJob",
    "Reason",
    "RunningJob",
    "Start",
    "View",
    "candidates_of_plans",
    "candidates_of_rates",
    "figures_of_kinds",
    "kind_pool",
    "make_policy",
    "pools_of",
]
