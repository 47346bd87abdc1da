"""Engines that receive a gradient before they send activations: the timeline against the instructions themselves."""

from hypothesis import given
from hypothesis import strategies as st

from ignite_scheduler.pipeline import Action, make_schedule, timeline
from pipeline_cases import alike

number = st.integers(0, 9)


@st.composite
def pipelines(draw):
    stages, count = draw(st.integers(1, 5)), draw(st.integers(1, 7))
    tables = [draw(st.lists(number, min_size=stages, max_size=stages)) for _ in range(4)]
    return alike(*tables, count)


def program(stage, num_stages, count):
    """The instructions of one worker: two slots a microbatch, forward and backward in turn, exchange before compute.

    In a forward slot: send the gradient of the slot before, receive activations. In a backward slot: receive the
    gradient, send the activations of the slot before.
    """
    before = None
    for slot in range(2 * (count + num_stages - 1)):
        forward = slot % 2 == stage % 2
        k = (slot - stage) // 2 if forward else (slot + stage + 1) // 2 - num_stages
        if forward:
            if stage > 0 and before is not None:
                yield "send", stage - 1, "B", before
            if stage > 0 and 0 <= k < count:
                yield "receive", stage - 1, "F", k
        else:
            if stage < num_stages - 1 and 0 <= k < count:
                yield "receive", stage + 1, "B", k
            if stage < num_stages - 1 and before is not None:
                yield "send", stage + 1, "F", before
        before = k if 0 <= k < count else None
        if before is not None:
            yield "compute", stage, "F" if forward else "B", k


def interpreted(durations):
    """End of each action when all workers execute their programs; sends are buffered, receives block."""
    num_stages, count = len(durations.forward), len(durations.forward[0])
    programs = [list(program(s, num_stages, count)) for s in range(num_stages)]
    clock, wire, arrival, ends = [0] * num_stages, {}, {}, {}
    while any(programs):
        for s in range(num_stages):
            while programs[s]:
                what, peer, kind, k = programs[s][0]
                if what == "compute":
                    table = durations.forward if kind == "F" else durations.backward
                    clock[s] += table[s][k]
                    ends[Action(s, kind, k)] = clock[s]
                elif what == "send":
                    edge = durations.edges[min(s, peer)]
                    seconds = edge.forward[k] if kind == "F" else edge.backward[k]
                    wire[s, peer] = max(wire.get((s, peer), 0), clock[s]) + seconds
                    arrival[s, peer, kind, k] = wire[s, peer]
                elif (peer, s, kind, k) in arrival:
                    clock[s] = max(clock[s], arrival[peer, s, kind, k])
                else:
                    break
                del programs[s][0]
    return ends


@given(pipelines())
def test_1f1b_equals_the_instructions_of_such_an_engine(durations):
    schedule = make_schedule("1f1b", len(durations.forward), len(durations.forward[0]))
    timed = timeline(schedule, durations, receive_first=True)
    assert {interval.action: interval.end for interval in timed.intervals} == interpreted(durations)


@given(pipelines(), st.booleans())
def test_waiting_for_a_gradient_never_makes_a_step_shorter_and_changes_nothing_in_gpipe(durations, overlap):
    num_stages, count = len(durations.forward), len(durations.forward[0])
    for name in ("1f1b", "gpipe"):
        schedule = make_schedule(name, num_stages, count)
        waiting = timeline(schedule, durations, overlap=overlap, receive_first=True)
        assert len(waiting.intervals) == sum(map(len, schedule.rows))
        at_once = timeline(schedule, durations, overlap=overlap)
        if name == "gpipe":
            assert waiting == at_once
        elif overlap:
            assert waiting.step >= at_once.step


def test_two_equal_stages_pay_both_transfers_in_each_turn():
    # Passes of 1, transfers of 3. Stage 0 goes forward twice until 2; the gradient of microbatch 0 arrives at
    # 1 + 3 + 1 + 1 + 3 = 9; the activations of microbatch 1 leave then, so that stage 1 goes forward at 12 and the
    # gradient arrives at 12 + 1 + 1 + 3 = 17. At once they leave at 4, when the wire is free: 4 + 3 + 1 + 1 + 3 = 12.
    durations = alike([1, 1], [1, 1], [3], [3], 2)
    schedule = make_schedule("1f1b", 2, 2)
    assert timeline(schedule, durations, receive_first=True).step == 18
    assert timeline(schedule, durations).step == 13
