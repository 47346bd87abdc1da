"""Laws of one iteration. Durations are integers or fractions, so every equality is exact."""

from collections import defaultdict
from fractions import Fraction
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_scheduler.errors import ScheduleError
from ignite_scheduler.pipeline import (
    SCHEDULES,
    Action,
    Durations,
    Edge,
    Schedule,
    bubble_fraction,
    critical_path,
    format_schedule,
    in_flight,
    make_schedule,
    parse_schedule,
    timeline,
    validate,
)
from pipeline_cases import chain

names = st.sampled_from(SCHEDULES)
stages = st.integers(1, 6)
microbatches = st.integers(1, 9)


@st.composite
def pipelines(draw, largest=20, smallest=0):
    num_stages, count = draw(stages), draw(microbatches)
    number = st.integers(smallest, largest)

    def table(rows):
        return [draw(st.lists(number, min_size=count, max_size=count)) for _ in range(rows)]

    durations = chain(table(num_stages), table(num_stages), table(num_stages - 1), table(num_stages - 1))
    return make_schedule(draw(names), num_stages, count), durations


def uniform(num_stages, count, f, b, c=0):
    return chain(
        [[f] * count] * num_stages, [[b] * count] * num_stages, [[c] * count] * num_stages, [[c] * count] * num_stages
    )


@given(names, stages, microbatches, st.integers(1, 9), st.integers(1, 9))
def test_equal_stages_on_free_links_take_the_textbook_time(name, num_stages, count, f, b):
    timed = timeline(make_schedule(name, num_stages, count), uniform(num_stages, count, f, b))
    assert timed.step == (count + num_stages - 1) * (f + b)
    assert bubble_fraction(timed) == pytest.approx((num_stages - 1) / (count + num_stages - 1), abs=1e-12)


@given(stages, microbatches)
def test_microbatches_in_flight(num_stages, count):
    assert in_flight(make_schedule("gpipe", num_stages, count)) == (count,) * num_stages
    expected = tuple(min(count, num_stages - s) for s in range(num_stages))
    assert in_flight(make_schedule("1f1b", num_stages, count)) == expected


@given(names, stages, microbatches)
def test_text_round_trips_and_each_action_stands_once(name, num_stages, count):
    schedule = make_schedule(name, num_stages, count)
    assert parse_schedule(format_schedule(schedule), name=name) == schedule
    validate(schedule)
    actions = [action for row in schedule.rows for action in row]
    assert sorted(actions) == sorted(
        Action(s, kind, k) for s in range(num_stages) for kind in "FB" for k in range(count)
    )


def reference_ends(schedule: Schedule, durations: Durations) -> dict[Action, int]:
    """Ends of all actions by relaxation to the fixed point, written without the package's heap.

    Each wire of a chain has one sender, so its messages leave in the sender's own order.
    """
    end: dict[Action, int] = defaultdict(int)
    changed = True
    while changed:
        changed = False
        arrival: dict[Action, int] = defaultdict(int)
        for row in schedule.rows:
            there = back = 0
            for action in row:
                s, kind, k = action
                if kind == "F" and s + 1 < schedule.num_stages:
                    there = max(there, end[action]) + durations.edges[s].forward[k]
                    arrival[Action(s + 1, "F", k)] = there
                if kind == "B" and s > 0:
                    back = max(back, end[action]) + durations.edges[s - 1].backward[k]
                    arrival[Action(s - 1, "B", k)] = back
        for row in schedule.rows:
            free = 0
            for action in row:
                free = max(free, arrival[action]) + durations.of(action)
                if end[action] != free:
                    end[action], changed = free, True
    return end


@given(pipelines())
def test_timeline_equals_the_fixed_point_of_its_recurrence(pipeline):
    schedule, durations = pipeline
    timed = timeline(schedule, durations)
    assert {interval.action: interval.end for interval in timed.intervals} == dict(reference_ends(schedule, durations))


@given(pipelines())
def test_timeline_is_never_below_its_bounds(pipeline):
    schedule, durations = pipeline
    work = [sum(f) + sum(b) for f, b in zip(durations.forward, durations.backward, strict=True)]
    lone = [min(f) + min(b) for f, b in zip(durations.forward, durations.backward, strict=True)]
    hops = [min(edge.forward) + min(edge.backward) for edge in durations.edges]
    heads = [0, *accumulate(a + c for a, c in zip(lone, hops, strict=False))]
    step = timeline(schedule, durations).step
    assert all(step >= head + total for head, total in zip(heads, work, strict=False))


@given(pipelines(), st.fractions(min_value=Fraction(1, 7), max_value=9))
def test_scaling_all_durations_scales_the_timeline(pipeline, factor):
    schedule, durations = pipeline

    def scaled(table):
        return tuple(tuple(x * factor for x in row) for row in table)

    edges = tuple(
        Edge(
            source=e.source,
            target=e.target,
            forward=tuple(x * factor for x in e.forward),
            backward=tuple(x * factor for x in e.backward),
            forward_wire=e.forward_wire,
            backward_wire=e.backward_wire,
        )
        for e in durations.edges
    )
    longer = Durations(
        forward=scaled(durations.forward), backward=scaled(durations.backward), edges=edges, finish=durations.finish
    )
    assert timeline(schedule, longer).step == factor * timeline(schedule, durations).step


@given(pipelines(smallest=1))
def test_critical_path_runs_without_a_gap_from_start_to_end(pipeline):
    schedule, durations = pipeline
    timed = timeline(schedule, durations)
    path = critical_path(timed)
    assert path[0].start == 0
    assert path[-1].end == timed.step
    assert all(a.end == b.start for a, b in pairwise(path))


@given(pipelines(), st.integers(1, 3))
def test_a_shared_wire_carries_one_message_at_a_time_in_order_of_readiness(pipeline, num_wires):
    schedule, durations = pipeline
    wires = [s % num_wires for s in range(schedule.num_stages)]
    there, back = [e.forward for e in durations.edges], [e.backward for e in durations.edges]
    shared = chain(durations.forward, durations.backward, there, back, wires=wires)
    timed = timeline(schedule, shared)
    ends = {interval.action: interval.end for interval in timed.intervals}
    for wire in set(wires):
        sent = [t for t in timed.transfers if t.wire == wire]
        assert all(a.end <= b.start for a, b in pairwise(sent))
        ready = [ends[Action(t.source, t.kind, t.microbatch_index)] for t in sent]
        assert ready == sorted(ready)
    assert timed.step >= 0


@given(pipelines())
def test_without_overlap_a_worker_never_computes_during_its_own_message(pipeline):
    schedule, durations = pipeline
    timed = timeline(schedule, durations, overlap=False)
    assert len(timed.intervals) == sum(map(len, schedule.rows))
    for transfer in timed.transfers:
        for interval in timed.intervals:
            if interval.row in (transfer.source, transfer.target):
                assert (
                    interval.end <= transfer.start or interval.start >= transfer.end or transfer.start == transfer.end
                )


@given(pipelines(), st.data())
def test_a_longer_action_never_shortens_the_step(pipeline, data):
    schedule, durations = pipeline
    stage = data.draw(st.integers(0, schedule.num_stages - 1))
    forward = [list(row) for row in durations.forward]
    forward[stage][0] += data.draw(st.integers(1, 10))
    longer = Durations(
        forward=tuple(map(tuple, forward)), backward=durations.backward, edges=durations.edges, finish=durations.finish
    )
    assert timeline(schedule, longer).step >= timeline(schedule, durations).step


@given(names, st.integers(2, 5), st.integers(2, 6), st.data())
def test_a_missing_or_blocked_action_is_named(name, num_stages, count, data):
    schedule = make_schedule(name, num_stages, count)
    rows = [list(row) for row in schedule.rows]
    row = data.draw(st.integers(0, num_stages - 1))
    removed = rows[row].pop(data.draw(st.integers(0, len(rows[row]) - 1)))
    broken = Schedule(name=name, num_stages=num_stages, num_microbatches=count, rows=tuple(map(tuple, rows)))
    with pytest.raises(ScheduleError, match=str(removed)):
        validate(broken)
    rows[row] = [Action(row, "B", 0), *[a for a in schedule.rows[row] if a != Action(row, "B", 0)]]
    blocked = Schedule(name=name, num_stages=num_stages, num_microbatches=count, rows=tuple(map(tuple, rows)))
    with pytest.raises(ScheduleError, match="never finishes"):
        validate(blocked)
