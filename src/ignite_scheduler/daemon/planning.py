"""Candidates by the planner, in a thread beside the live loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ignite_scheduler.control.commands import PlanJob
from ignite_scheduler.cost.calibration import Calibration
from ignite_scheduler.errors import InputError
from ignite_scheduler.formats.calibration import named
from ignite_scheduler.model import Cluster, Infeasible
from ignite_scheduler.planner import Problem, catalogue
from ignite_scheduler.planner.problem import charged
from ignite_scheduler.planner.setup import prepare
from ignite_scheduler.policy.candidates import Candidate, candidates_of_plans
from ignite_scheduler.policy.pools import pools_of


class CataloguePlanning:
    """A :class:`~ignite_scheduler.daemon.ports.Planning` that asks ``planner.catalogue``.

    Parameters
    ----------
    problems
        Job id → what to plan; its devices are replaced by those that the command names.
    cluster
        The cluster with all devices known at present, asked anew for each command: the candidates demand its pools.
    calibration
        Charged to profile and cluster before each search.

    Notes
    -----
    One search at a time: a search fills a core, and more of them would only slow down the gangs that run on this
    machine.
    """

    def __init__(
        self,
        problems: Mapping[str, Problem],
        cluster: Callable[[], Cluster],
        calibration: Calibration | None = None,
    ) -> None:
        self._problems = problems
        self._cluster = cluster
        self._calibration = calibration
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="planning")

    async def candidates(self, command: PlanJob) -> tuple[Candidate, ...] | Infeasible:
        """Candidates over the devices that the command names, or why there are none."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._search, command, self._cluster())

    def _search(self, command: PlanJob, cluster: Cluster) -> tuple[Candidate, ...] | Infeasible:
        problem = replace(self._problems[command.job_id], cluster=cluster, devices=command.device_ids)
        try:
            problem = charged(problem, self._calibration)
            found = catalogue(problem)
        except InputError as error:  # what is wrong with one job must not end the others
            return Infeasible(code=_code_of(problem), text=str(error))
        if isinstance(found, Infeasible):
            return found
        plans = [named(plan, self._calibration) for plan in found]
        return candidates_of_plans(plans, cluster, pools_of(cluster))

    def close(self) -> None:
        """Give the thread back; a search that has begun runs to its end, one that has not is dropped."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _code_of(problem: Problem) -> str:
    """Whether an input error about the devices in service is one of the job alone, or might be mended by others.

    A profile without times on the kinds that are left now says nothing against the kinds that may come back.
    """
    try:
        prepare(replace(problem, devices=None))
    except InputError:
        return "input"
    return "devices"
