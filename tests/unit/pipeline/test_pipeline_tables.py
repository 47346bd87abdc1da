"""Tables that a reader can check by eye."""

import pytest

from ignite_scheduler.errors import InputError, ScheduleError
from ignite_scheduler.pipeline import (
    Action,
    Durations,
    Edge,
    Reduction,
    bottleneck,
    make_schedule,
    parse_schedule,
    timeline,
    validate,
)


def edge(source, seconds, count, wire=None):
    return Edge(
        source=source,
        target=source + 1,
        forward=(seconds,) * count,
        backward=(seconds,) * count,
        forward_wire=wire or (source, "there"),
        backward_wire=wire or (source, "back"),
    )


@pytest.mark.parametrize(("num_stages", "count", "step", "idle"), [(4, 2, 15, 0.6), (4, 1, 12, 0.75), (8, 3, 30, 0.7)])
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_few_microbatches_finish(name, num_stages, count, step, idle):
    durations = Durations(
        forward=((1,) * count,) * num_stages,
        backward=((2,) * count,) * num_stages,
        edges=tuple(edge(s, 0, count) for s in range(num_stages - 1)),
        finish=(0,) * num_stages,
    )
    assert timeline(make_schedule(name, num_stages, count), durations).step == step


def test_stages_4_and_1_show_that_the_closed_form_is_no_bound():
    """f+b = 4 and 1, M = 8: the exact 1F1B step is 32, below Σ + (M−1)·max = 33."""
    durations = Durations(
        forward=((2,) * 8, (0,) * 8), backward=((2,) * 8, (1,) * 8), edges=(edge(0, 0, 8),), finish=(0, 0)
    )
    assert timeline(make_schedule("1f1b", 2, 8), durations).step == 32


def test_staircase_of_1f1b_with_slow_links():
    """Two stages, f = b = 1, links of 1: worked by hand on squared paper."""
    durations = Durations(forward=((1, 1),) * 2, backward=((1, 1),) * 2, edges=(edge(0, 1, 2),), finish=(0, 0))
    timed = timeline(make_schedule("1f1b", 2, 2), durations)
    starts = {str(i.action): i.start for i in timed.intervals}
    assert starts == {"0F0": 0, "0F1": 1, "1F0": 2, "1B0": 3, "1F1": 4, "1B1": 5, "0B0": 5, "0B1": 7}
    assert timed.step == 8


def test_all_reduce_starts_with_the_last_holder_and_update_follows():
    durations = Durations(
        forward=((1,), (1,)),
        backward=((1,), (1,)),
        edges=(edge(0, 0, 1),),
        finish=(10, 20),
        reductions=(Reduction(stages=(0, 1), seconds=5),),
    )
    timed = timeline(make_schedule("1f1b", 2, 1), durations)
    assert timed.finishes == ((4, 19), (3, 29))  # stage 0 ends its backward at 4, stage 1 at 3; both reduce 4…9
    assert timed.step == 29


def test_bottleneck_is_the_busiest_stage_or_link_direction():
    schedule = make_schedule("1f1b", 2, 3)
    slow_link = Durations(forward=((1,) * 3,) * 2, backward=((1,) * 3,) * 2, edges=(edge(0, 5, 3),), finish=(0, 0))
    assert bottleneck(schedule, slow_link) == ("link", 0, 5)
    slow_stage = Durations(
        forward=((1,) * 3, (4,) * 3), backward=((1,) * 3,) * 2, edges=(edge(0, 2, 3),), finish=(0, 0)
    )
    assert bottleneck(schedule, slow_stage) == ("stage", 1, 5)
    shared = Durations(
        forward=((1,) * 3,) * 2, backward=((1,) * 3,) * 2, edges=(edge(0, 2, 3, wire="air"),), finish=(0, 0)
    )
    assert bottleneck(schedule, shared) == ("link", 0, 4)


def test_split_backward_lets_the_stage_before_go_on():
    """1I0 releases stage 0 before 1W0 runs; durations of B are 2, of which W is 1."""
    schedule = parse_schedule("0F0,0I0,0W0\n1F0,1I0,1W0")
    durations = Durations(
        forward=((1,), (1,)), backward=((2,), (2,)), weight_backward=((1,), (1,)), edges=(edge(0, 0, 1),), finish=(0, 0)
    )
    starts = {str(i.action): (i.start, i.end) for i in timeline(schedule, durations).intervals}
    assert starts == {"0F0": (0, 1), "1F0": (1, 2), "1I0": (2, 3), "1W0": (3, 4), "0I0": (3, 4), "0W0": (4, 5)}


def test_one_worker_may_hold_two_stages():
    schedule = parse_schedule("0F0,2F0,2B0,0B0\n1F0,1B0")
    edges = (edge(0, 0, 1), edge(1, 0, 1))
    durations = Durations(forward=((1,),) * 3, backward=((1,),) * 3, edges=edges, finish=(0,) * 3)
    assert schedule.row_of(2) == 0
    assert timeline(schedule, durations).step == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0F0,0B0\n1B0,1F0", "blocked at 1B0, which waits for 1F0"),
        ("0F0,0B0\n1F0", "1B0 once"),
        ("0F0,0F0,0B0", "0F0 exactly once"),
        ("0F0\n0B0", "held by two workers"),
    ],
)
def test_malformed_orders_are_named(text, message):
    with pytest.raises(ScheduleError, match=message):
        validate(parse_schedule(text))


@pytest.mark.parametrize("text", ["", "0X0", "F0", "0F", "-1F0"])
def test_text_that_is_no_schedule(text):
    with pytest.raises(ScheduleError, match="expected"):
        parse_schedule(text)


def test_unknown_schedule_names_those_there_are():
    with pytest.raises(InputError, match="gpipe, 1f1b"):
        make_schedule("zigzag", 2, 2)
    with pytest.raises(InputError, match="at least 1"):
        make_schedule("1f1b", 2, 0)


def test_split_needs_the_weight_part():
    durations = Durations(forward=((1,),), backward=((2,),), edges=(), finish=(0,))
    with pytest.raises(ScheduleError, match="weight part"):
        timeline(parse_schedule("0F0,0I0,0W0"), durations)


def test_action_text():
    assert str(Action.parse(" 12B3 ")) == "12B3"
