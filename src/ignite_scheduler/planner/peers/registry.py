"""Other people's planners by name, and how their choices become plans that are judged as ours are.

Theory of operation
-------------------
A peer is a function from a :class:`~ignite_scheduler.planner.peers.view.View` (one schedule and microbatch size) to a
few choices; it sees what its paper lets it see. Each choice goes through :func:`ignite_scheduler.cost.evaluate`, so
that its step time and memory are those of our model, whatever the peer believes. Of the choices that fit the memory
the one of least step is the peer's plan; where none fits, the answer is a refusal with the bytes that its best choice
lacks.

What a job leaves open beyond the peers' papers is tried for them: both the schedules and the sizes of microbatches
that are powers of two, or the whole batch. Peers of asynchronous pipelines are judged synchronously: the order of
1F1B, and a flush at the end of every step.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from ignite_scheduler.cost import Assignment, evaluate, layer_seconds, resolved_precision
from ignite_scheduler.model import Bound, Device, Infeasible, Plan, Unused
from ignite_scheduler.planner.build import built
from ignite_scheduler.planner.instance import model_arrays
from ignite_scheduler.planner.peers.alpa import alpa
from ignite_scheduler.planner.peers.asteroid import asteroid
from ignite_scheduler.planner.peers.balanced import autopipe, equal_layers, equal_parameters, gpipe
from ignite_scheduler.planner.peers.dapple import dapple
from ignite_scheduler.planner.peers.hetpipe import hetpipe
from ignite_scheduler.planner.peers.hph import hph
from ignite_scheduler.planner.peers.pipedream import pipedream
from ignite_scheduler.planner.peers.view import View, see
from ignite_scheduler.planner.problem import Family, Problem
from ignite_scheduler.planner.request import Request, requested
from ignite_scheduler.planner.weighed import missing_link, overflow
from ignite_scheduler.units import format_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One planner: its name, what it is in a sentence, its schedule where the job leaves that open, and its choices."""

    name: str
    summary: str
    schedule: str
    choose: Callable[[View], tuple[Assignment, ...]]
    asynchronous: bool = False


_EVERY: Final = (
    Peer(
        name="equal-layers",
        summary="equal numbers of layers on all devices",
        schedule="1f1b",
        choose=equal_layers,
    ),
    Peer(
        name="equal-parameters",
        summary="equal parameters on all devices",
        schedule="1f1b",
        choose=equal_parameters,
    ),
    Peer(
        name="gpipe",
        summary="cells of least variance in FLOPs, all forwards before all backwards",
        schedule="gpipe",
        choose=gpipe,
    ),
    Peer(
        name="pipedream",
        summary="least time per microbatch of the slowest stage, stages replicated, by node and cluster",
        schedule="1f1b",
        choose=pipedream,
        asynchronous=True,
    ),
    Peer(
        name="dapple",
        summary="stages on nodes one by one, by the latency around a pivot stage",
        schedule="1f1b",
        choose=dapple,
    ),
    Peer(
        name="alpa",
        summary="stages on uniform submeshes, sum of stage times and M - 1 times the largest",
        schedule="1f1b",
        choose=alpa,
    ),
    Peer(
        name="hetpipe",
        summary="virtual workers by node, across nodes or in pairs of nodes, data parallelism between them",
        schedule="1f1b",
        choose=hetpipe,
        asynchronous=True,
    ),
    Peer(
        name="asteroid",
        summary="groups of devices sorted by memory, shares by speed shifted by memory",
        schedule="1f1b",
        choose=asteroid,
    ),
    Peer(
        name="hph",
        summary="one stage for each kind of device, data parallelism inside",
        schedule="1f1b",
        choose=hph,
    ),
    Peer(
        name="autopipe",
        summary="min-max cut, then blocks moved off the master stage by simulation",
        schedule="1f1b",
        choose=autopipe,
    ),
)

PEERS: Final[Mapping[str, Peer]] = MappingProxyType({peer.name: peer for peer in _EVERY})
"""All peers by name."""


def peer_plan(problem: Problem, name: str) -> Plan | Infeasible:
    """The plan that a peer makes, with our figures for it; or why it makes none.

    Parameters
    ----------
    name
        One of :data:`PEERS`; KeyError otherwise.

    Raises
    ------
    InputError, NotFoundError
        The request contradicts itself or names what does not exist.

    Notes
    -----
    A peer knows nothing of objectives, deadlines and budgets. Of the rest of a request it knows what is left of the
    devices, ``max_devices`` and ``any_of`` by taking the fastest; a plan that breaks ``stages``, ``split`` or
    ``replicas`` is refused. Its plan has no bound.
    """
    peer = PEERS[name]
    request = requested(problem)
    if isinstance(request, Infeasible):
        return request
    if not all(False in values for values in (request.recompute, request.shard, request.offload)):
        return _refusal(peer, "it knows no recompute, shard or offload, which the job demands")
    devices = _devices(request)
    if not devices:
        return _refusal(peer, "no device has times for every layer, or resources.any_of cannot be met")
    best: tuple[tuple[bool, float], Assignment] | None = None
    broken = ""
    model = model_arrays(problem.job, problem.profile, problem.memory_margin)
    for family in _families(request, peer):
        for assignment in dict.fromkeys(peer.choose(see(request, devices, family, model))):
            fault = _fault(request, assignment)
            if fault:
                broken = broken or fault
                continue
            made = evaluate(
                problem.job, problem.profile, problem.cluster, assignment, memory_margin=problem.memory_margin
            )
            over = overflow(made)
            key = (over > 0, over or made.predicted.step)
            if best is None or key < best[0]:
                best = key, assignment
    if best is None:
        return _refusal(
            peer, broken or "nothing of its kind is left by the request, the devices and what runs the plan"
        )
    (unfit, over), assignment = best
    if unfit:
        return Infeasible(
            code="memory",
            text=f"the plan of {name} does not fit: {format_memory(over)} are missing in all on its devices",
            shortfall=over,
            cures=("plan with --planner ignite, which keeps within the memory",),
        )
    return _finished(request, peer, devices, assignment)


def _refusal(peer: Peer, why: str) -> Infeasible:
    return Infeasible(code="planner", text=f"{peer.name} makes no plan: {why}", cures=("plan with --planner ignite",))


def _devices(request: Request) -> tuple[Device, ...]:
    """The devices that a peer is given, by id: all that can hold every layer, or the fastest as the request limits."""
    problem = request.problem
    precision = resolved_precision(problem.job, problem.profile)
    work: dict[str, float] = {}
    for device in request.devices:
        times = [
            layer_seconds(problem.profile, index, device, 1, precision) for index in range(len(problem.profile.layers))
        ]
        known = [entry.forward + entry.backward for entry in times if entry is not None]
        if len(known) == len(times):
            work[device.id] = sum(known)
    able = sorted((d for d in request.devices if d.id in work), key=lambda device: (work[device.id], device.id))
    for wanted in request.any_of:
        found = [[d for d in able if d.kind == kind][:count] for kind, count in sorted(wanted.items())]
        if sum(map(len, found)) == sum(wanted.values()):
            return tuple(sorted((d for part in found for d in part), key=lambda device: device.id))
    if request.any_of:
        return ()
    return tuple(sorted(able[: request.max_devices], key=lambda device: device.id))


def _families(request: Request, peer: Peer) -> Iterator[Family]:
    """Families that the peer is tried on: its own schedule if the job leaves it open, sizes of powers of two."""
    free = request.problem.job.pipeline.schedule == "auto"
    total = request.problem.job.batch.total
    for family in request.families:
        if free and family.schedule != peer.schedule:
            continue
        if request.problem.job.batch.micro is not None or family.samples in (
            total,
            1 << family.samples.bit_length() - 1,
        ):
            yield family


def _fault(request: Request, assignment: Assignment) -> str:
    """What the choice breaks of the request or of the cluster's links; empty if nothing."""
    stages, choice = assignment.stages, request.problem.job.pipeline
    if choice.stages not in ("auto", len(stages)):
        return f"its plan has {len(stages)} stages and pipeline.stages is {choice.stages}"
    if choice.split not in ("auto", assignment.split):
        return f"its split is {list(assignment.split)} and pipeline.split is {list(choice.split)}"
    if request.replicas is not None and any(len(stage.devices) != request.replicas for stage in stages):
        return f"its stages are not all of {request.replicas} devices, which pipeline.replicas asks for"
    if choice.stages != "auto" and any(stage.inputs is not None for stage in stages):
        return "its virtual workers are several chains, and the number of stages is that of one"
    kinds = Counter(request.problem.cluster.device(device).kind for device in assignment.devices)
    if request.any_of and not any(kinds == Counter(dict(wanted)) for wanted in request.any_of):
        return "its devices are not those that resources.any_of asks for"
    missing = missing_link(request.problem.cluster, assignment)
    return f"it needs a link from {missing[0]} to {missing[1]}, and there is none" if missing else ""


def _finished(request: Request, peer: Peer, devices: tuple[Device, ...], assignment: Assignment) -> Plan:
    """The plan of a peer's choice, with what belongs to it beside its figures."""
    notes = [f"planned by {peer.name} ({peer.summary}), a baseline for comparisons: nothing is known of better plans"]
    if peer.asynchronous:
        notes.append(f"{peer.name} pipelines without a flush; its plan is judged with one at the end of every step")
    nothing = Bound(step=0.0, gap=math.inf, method=f"none: {peer.name} proves nothing", optimal=False)
    made = built(request.problem, assignment, nothing)
    given = {device.id for device in devices}
    left = [
        Unused(
            device=device.id,
            reason=f"{peer.name} does not use it" if device.id in given else "not given to baselines by the request",
        )
        for device in request.devices
        if device.id not in made.device_ids
    ]
    return replace(
        made,
        unused=tuple(sorted((*request.barred, *left), key=lambda entry: entry.device)),
        warnings=(*notes, *made.warnings),
        resolved={"planner": peer.name, **made.resolved, "objective": "time"},
    )
