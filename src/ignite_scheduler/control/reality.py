"""What really exists: nodes that go and come, devices at fault, and listings of what really runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ignite_scheduler.control.commands import StopGang
from ignite_scheduler.control.events import ClusterObserved, NodeJoined, NodeLost
from ignite_scheduler.control.lifecycle import Lifecycle
from ignite_scheduler.control.records import JobRecord
from ignite_scheduler.control.states import FINAL, HOLDING, State


def node_lost(life: Lifecycle, event: NodeLost) -> None:
    """The node's devices go out of service, and what ran on them is over."""
    devices_out(life, [device.id for device in life.ledger.inventory.devices_of(event.node)], event.at)


def devices_out(life: Lifecycle, device_ids: Sequence[str], at: float) -> None:
    """Take devices out of service.

    Gangs wholly on them are over; of others the surviving processes are told to stop.
    """
    inventory = life.ledger.inventory
    if not inventory.put_out(device_ids):
        return
    hit = dict.fromkeys(inventory.holder[each] for each in device_ids if each in inventory.holder)
    for job_id in hit:
        record = life.ledger.jobs[job_id]
        gang = record.held
        lost = gang.lost.union(device_ids).intersection(gang.device_ids)
        record = life.ledger.put(record, gang=replace(gang, lost=lost))
        if len(lost) == len(gang.device_ids):
            life.ended(record, at, record.saved)
        else:
            life.stop(record, "lost", at)
    _devices_changed(life)


def node_joined(life: Lifecycle, event: NodeJoined) -> None:
    """The node's devices are in service from now on; known ones that are not among them go out."""
    inventory = life.ledger.inventory
    joined = {device.id for device in event.devices}
    gone = [each.id for each in inventory.devices_of(event.node) if each.id not in joined]
    devices_out(life, gone, event.at)
    before = inventory.pools.pool_of
    if not inventory.join(event.node, event.devices):
        return
    for device in event.devices:
        life.faults.pop(device.id, None)
    after = inventory.pools.pool_of
    regrouped = any(after.get(device_id) != pool for device_id, pool in before.items())
    _devices_changed(life, drop_plans=regrouped)


def _devices_changed(life: Lifecycle, *, drop_plans: bool = False) -> None:
    """Reckon all options anew and have the waiting jobs planned for the new set of devices.

    ``drop_plans``: the pools are grouped anew, so a plan's representatives no longer stand for what they stood
    for.
    """
    life.is_dirty = True
    life.ledger.recount_running()
    for record in list(life.ledger.jobs.values()):
        if record.state not in FINAL:
            _reconsider(life, record, drop_plans=drop_plans)


def _reconsider(life: Lifecycle, record: JobRecord, *, drop_plans: bool) -> None:
    if drop_plans:
        kept = tuple(each for each in record.candidates if each.plan is None)
        record = life.ledger.put(record, candidates=kept)
    if record.state in (State.QUEUED, State.WAITING):
        record = life.ledger.requeue(record)
    if record.state not in HOLDING and record.planned_version != life.ledger.inventory.version:
        life.plan(record)


def cluster_observed(life: Lifecycle, event: ClusterObserved) -> None:
    """Compare the books with what really runs: stop what should not run, give up what should but does not."""
    listed = set(event.gangs)
    for job_id, epoch in event.gangs:
        if life.current(job_id, epoch) is None:
            life.commands.append(StopGang(job_id=job_id, epoch=epoch, save=False, cause="stale"))
    for job_id in list(life.ledger.running):
        _compare(life, life.ledger.jobs[job_id], listed, event.at)


def _compare(life: Lifecycle, record: JobRecord, listed: set[tuple[str, int]], at: float) -> None:
    gang = record.held
    is_settled = at - gang.commanded_at >= life.options.start_grace
    if (record.job_id, record.epoch) in listed:
        if gang.missing_since is not None:
            life.ledger.put(record, gang=replace(gang, missing_since=None))
        if record.state is State.STOPPING and is_settled and gang.stop_cause is not None:
            # the command may have been lost: say it again
            life.ledger.put(record, gang=replace(gang, commanded_at=at))
            save = gang.stop_cause != "lost"
            life.commands.append(StopGang(job_id=record.job_id, epoch=record.epoch, save=save, cause=gang.stop_cause))
        return
    if record.state is State.STARTING and not is_settled:
        return
    if gang.missing_since is None:
        record = life.ledger.put(record, gang=replace(gang, missing_since=at))
    if at - (gang.missing_since if gang.missing_since is not None else at) >= life.options.missing_grace:
        # nobody saw it end; while no driver lived it did not run, and its job must not pay for that time
        life.ended(record, at, record.saved, held_until=gang.heard_at)
