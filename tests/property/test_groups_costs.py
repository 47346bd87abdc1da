"""What the compiled functions say of a stage on a group is what the cost model says, action by action."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ignite_scheduler.cost import balanced_shares
from ignite_scheduler.cost.choice import StageChoice
from ignite_scheduler.cost.replicas import last_shares
from ignite_scheduler.cost.stages import LayerClock, TimedStage
from ignite_scheduler.planner.groups.costs import Actions, for_family, make_costs
from ignite_scheduler.planner.groups.stage import (
    CHEAPEST,
    EACH,
    KEEP,
    NO_FIT,
    OFFLOAD,
    SHARD,
    WHOLE,
    cheapest,
    finish_seconds,
    last_share,
    share_out,
)
from planner_cases import chain, devices_in_one_node, job, profiles

FEW = settings(max_examples=150, deadline=None)
CHOICE = st.sampled_from([(True, False), (False, True), (True, True)])


def segments_of(code, chosen, i, j):
    if code & EACH == WHOLE:
        return ((i, j),)
    return tuple((index, index + 1) for index in range(i, j) if chosen[index]) if code & EACH != KEEP else ()


def timed(problem_job, profile, devices, i, j, held, shares, code, chosen):
    choice = StageChoice(
        layers=tuple(range(i, j)),
        devices=tuple(device.id for device in devices),
        samples=tuple(shares),
        recompute=segments_of(code, chosen, i, j),
        offload=bool(code & OFFLOAD),
        shard=bool(code & SHARD),
    )
    return TimedStage(problem_job, LayerClock(problem_job, profile), choice, devices, held)


@st.composite
def stages(draw):
    profile = draw(profiles(5, skips=True))
    count = draw(st.integers(1, 3))
    memory = [float(draw(st.sampled_from([3, 6, 12, 25, 60, 200]))) for _ in range(count)]
    host = draw(st.sampled_from([None, 1.0, 4.0]))
    cluster = devices_in_one_node(
        [draw(st.sampled_from([1.0, 0.5, 0.25])) for _ in range(count)], memory=memory, host_bandwidth=host
    )
    samples = draw(st.integers(count, 6))
    i = draw(st.integers(0, len(profile.layers) - 1))
    return (
        profile,
        cluster.devices,
        samples,
        draw(st.integers(1, samples)),
        i,
        draw(st.integers(i + 1, len(profile.layers))),
        draw(st.integers(1, 4)),
        Actions(recompute=draw(CHOICE), shard=draw(CHOICE), offload=draw(CHOICE)),
    )


@FEW
@given(stages(), st.sampled_from(["sgd", "adam"]))
def test_seconds_and_bytes_are_those_of_the_cost_model(case, optimizer):
    profile, devices, samples, last, i, j, held, actions = case
    work = job(total=samples, micro=samples)
    costs = for_family(make_costs(work, profile, devices, samples, 0.0, actions), samples, last)
    size = len(devices)
    members = np.arange(size)
    base = np.zeros(size, np.int64)
    assert share_out(costs, members, size, np.full(size, samples), 0, base)
    whole = [lambda u, c=c: float(costs.whole[c, u]) for c in range(size)]
    assert tuple(base) == balanced_shares(samples, whole)
    if not base.all():
        return
    order = np.arange(len(profile.layers))
    chosen, shares, out = np.zeros(len(profile.layers), np.bool_), np.zeros(size, np.int64), np.zeros(4)
    code = cheapest(costs, members, size, base, order, i, j, held, chosen, shares, out)
    if code == NO_FIT:
        assert not any(fitting(work, profile, devices, i, j, held, samples, actions))
        return
    found = timed(work, profile, devices, i, j, held, shares, code, chosen)
    assert all(found.memory(int(s)) <= d.memory + 1e-9 for s, d in zip(shares, devices, strict=True))
    small = last_shares([int(s) for s in shares], last)
    assert small == tuple(last_share(costs, shares, size, r) for r in range(size))
    for part, dealt in enumerate((shares, small)):
        seconds = [found.seconds(d, int(s)) for d, s in zip(devices, dealt, strict=True)]
        assert out[2 * part] == pytest.approx(max(s.forward for s in seconds), abs=1e-12)
        assert out[2 * part + 1] == pytest.approx(max(s.backward for s in seconds), abs=1e-12)
    _, update = finish_seconds(costs, members, size, 0.0, 0.0, i, j)
    assert update == pytest.approx(max(found.update(d) for d in devices), abs=1e-12)


def fitting(work, profile, devices, i, j, held, samples, actions):
    """Whether the stage fits, for every combination of actions that are permitted, with any shares at all."""
    layers = range(i, j)
    for code in range(16):
        shard, offload, recomputed = code & SHARD, code & OFFLOAD, code & EACH
        if not actions.offload[bool(offload)] or (recomputed in (CHEAPEST, EACH) and not actions.recompute[1]):
            continue
        if (shard and len(devices) == 1) or (len(devices) > 1 and not actions.shard[bool(shard)]):
            continue
        if not actions.recompute[recomputed != KEEP] or (recomputed == EACH and actions.recompute[0]):
            continue
        if recomputed == CHEAPEST and not actions.recompute[0]:
            continue
        if offload and held > 2 and devices[0].host_bandwidth is None:
            continue
        marked = worth_it(profile, i, j) if recomputed == CHEAPEST else set(layers)
        chosen = [index in marked for index in range(len(profile.layers))]
        stage = timed(work, profile, devices, i, j, held, [1] * len(devices), code, chosen)
        room = [max((s for s in range(1, samples + 1) if stage.memory(s) <= d.memory), default=0) for d in devices]
        yield min(room) >= 1 and sum(room) >= samples


def worth_it(profile, i, j):
    """Layers whose activations are more than what they read."""
    read = {}
    for index in range(i, j):
        layer = profile.layers[index]
        read[index] = sum(
            profile.layers[int(edge.source[1:])].output_bytes if edge.bytes is None else edge.bytes
            for edge in layer.inputs
            if edge.source != "input"
        )
    return {index for index in range(i, j) if profile.layers[index].activation_bytes > read[index]}


def test_the_cheapest_layer_for_its_bytes_is_computed_again_first():
    profile = chain([3.0, 30.0, 6.0], outputs=[0, 0, 0], activations=10.0)
    (device,) = devices_in_one_node([1.0], memory=[65.0]).devices
    work = job(total=1, micro=1)
    costs = make_costs(work, profile, [device], 1, 0.0, Actions(recompute=(True, True)))
    order = np.array([0, 2, 1])
    chosen, shares, out = np.zeros(3, np.bool_), np.zeros(1, np.int64), np.zeros(4)
    code = cheapest(costs, np.zeros(1, np.int64), 1, np.ones(1, np.int64), order, 0, 3, 3, chosen, shares, out)
    # 3 in flight × 30 bytes do not fit 65; without the first layer 3 × 20 + 10 do not; without the third 3 × 10 + 10 do
    assert code == CHEAPEST
    assert list(chosen) == [True, False, True]
    assert list(out) == pytest.approx([13.0, 29.0, 13.0, 29.0])
