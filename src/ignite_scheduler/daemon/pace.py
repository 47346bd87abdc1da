"""Whether the devices of a running gang compute as fast as predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ignite_scheduler.control.commands import StartGang
from ignite_scheduler.cost.calibration import Calibration
from ignite_scheduler.cost.drift import Drift, live_drifts
from ignite_scheduler.cost.iteration import replica_seconds
from ignite_scheduler.daemon.directory import Asked
from ignite_scheduler.daemon.placement import choice_of, on_devices
from ignite_scheduler.daemon.ports import Vitals
from ignite_scheduler.daemon.view import Pace
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Cluster
from ignite_scheduler.planner.problem import Problem, charged

LEAST_STEPS: Final = 5
"""Steps after the warm-up before anything is said of a device."""


class _Expected(NamedTuple):
    """By rank: device and kind, seconds of computing in a step, actions in a step."""

    devices: tuple[tuple[str, str], ...]
    busy: tuple[float, ...]
    actions: tuple[int, ...]


@dataclass(kw_only=True)
class Paces:
    """Holds what gangs say of their devices against what was predicted.

    Parameters
    ----------
    asked
        Job id → what was asked.
    cluster
        Before calibration.
    calibration
        What predictions are made with.
    """

    asked: Mapping[str, Asked]
    cluster: Cluster
    calibration: Calibration | None
    _expected: dict[tuple[str, int], _Expected | None] = field(default_factory=dict)

    def pace(self, gang: StartGang, vitals: Vitals) -> Pace:
        """What a watcher is shown of a gang that does so."""
        return Pace(
            done=vitals.done,
            loss=vitals.loss,
            step=vitals.step,
            remaining=vitals.remaining,
            slow=self.slow(gang, vitals.busy, vitals.num_busy),
        )

    def slow(self, gang: StartGang, busy: Sequence[float], num_steps: int) -> tuple[Drift, ...]:
        """Devices of the gang that are slower than their range allows.

        Parameters
        ----------
        busy
            Median seconds of computing in a step, by rank.
        num_steps
            Steps that they were measured over.
        """
        key = gang.job_id, gang.epoch
        if key not in self._expected:
            self._expected[key] = self._expect(gang)
        expected = self._expected[key]
        if expected is None or len(busy) != len(expected.busy) or num_steps < LEAST_STEPS:
            return ()
        counts = [num_steps * each for each in expected.actions]
        found = live_drifts(expected.devices, expected.busy, busy, num_actions=counts, calibration=self.calibration)
        return tuple(drift for drift in found if drift.is_slow)

    def _expect(self, gang: StartGang) -> _Expected | None:
        plan, asked = gang.candidate.plan, self.asked.get(gang.job_id)
        if plan is None or asked is None:
            return None
        plan = on_devices(plan, gang.device_ids)
        problem = charged(Problem(job=asked.job, profile=asked.profile, cluster=self.cluster), self.calibration)
        try:
            choice = choice_of(plan, problem.profile)
            stages = replica_seconds(problem.job, problem.profile, problem.cluster, choice)
        except InputError:  # a device that has come since the start of the run
            return None
        replicas = [[seconds for seconds in replica if any(seconds)] for stage in stages for replica in stage]
        kinds = {device.id: device.kind for device in self.cluster.devices}
        return _Expected(
            devices=tuple((device_id, kinds.get(device_id, "")) for device_id in plan.device_ids),
            busy=tuple(sum(seconds.forward + seconds.backward for seconds in replica) for replica in replicas),
            actions=tuple(2 * len(replica) for replica in replicas),
        )
