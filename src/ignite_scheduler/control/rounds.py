"""Asking the policy, and not believing it: its whole answer is checked before anything is done."""

from __future__ import annotations

from collections.abc import Mapping

from ignite_scheduler.errors import InvariantError
from ignite_scheduler.policy.view import Decision, Policy, QueuedJob, View, fits, take


def ask(policy: Policy, view: View, queued: Mapping[str, QueuedJob]) -> Decision:
    """The policy's decision, sure to be possible. ``queued`` are the jobs of the queue by id.

    Raises
    ------
    InvariantError
        The policy raised, or wants something impossible: the message names the policy and what it wanted. Nothing has
        been changed then.
    """
    try:
        decision = policy.decide(view)
        _check(policy.name, decision, view, queued)
    except InvariantError:
        raise
    except Exception as error:  # a policy may be anybody's file: whatever it raises must name it, and change nothing
        raise InvariantError(f"policy {policy.name!r} raised {type(error).__name__}: {error}") from error
    return decision


def _check(name: str, decision: Decision, view: View, queued: Mapping[str, QueuedJob]) -> None:
    free = dict(view.free)
    seen: set[str] = set()
    for start in decision.starts:
        job = queued.get(start.job_id)
        if job is None:
            raise InvariantError(f"policy {name!r} wants to start {start.job_id!r}, which is not queued")
        if start.job_id in seen:
            raise InvariantError(f"policy {name!r} wants to start {start.job_id!r} twice")
        if not any(start.option is option for option in job.options):
            raise InvariantError(f"policy {name!r} wants to start {start.job_id!r} on an option it does not have")
        if not fits(start.option.needs, free):
            raise InvariantError(
                f"policy {name!r} gives {start.job_id!r} {dict(start.option.needs)}, but of these only "
                f"{ {pool: free.get(pool, 0) for pool, _ in start.option.needs} } are free"
            )
        take(start.option.needs, free)
        seen.add(start.job_id)
    for index, job_id in enumerate(decision.stops):
        running = view.running.get(job_id)
        if running is None or not running.stoppable or job_id in decision.stops[:index]:
            raise InvariantError(
                f"policy {name!r} wants to stop {job_id!r}, which does not run, may not be preempted or is being"
                " stopped already"
            )
