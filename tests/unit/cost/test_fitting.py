"""Fitting gives back what runs were made with, and a few runs that went wrong do not move it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ignite_scheduler.cost.calibration import ANY_KIND, Calibration, CheckpointTime, KindCalibration
from ignite_scheduler.cost.fitting import Line, Point, fit, line, predicted_timeline
from ignite_scheduler.cost.observation import EdgeObservation, Observation, Sample, StageObservation
from ignite_scheduler.errors import InputError
from ignite_scheduler.pipeline import Durations, Edge, make_schedule, timeline

SPEEDS = {"fast": 0.75, "slow": 0.25, "real": None}
TRUTH = Calibration(
    kinds={
        "fast": KindCalibration(rate=1.1, launch=2e-4),
        "slow": KindCalibration(rate=1.3, launch=5e-4),
        "real": KindCalibration(rate=0.9, launch=1e-4),
    },
    message=1e-4,
    update=1.5,
    step=4e-4,
    checkpoint=CheckpointTime(base=0.2, bandwidth=1e8),
)


def run(model: str, kinds: Sequence[str], seconds: Sequence[float], *, truth: Calibration = TRUTH) -> Observation:
    """A run that behaves exactly as ``truth`` says; ``seconds``: of a forward on each stage at the reference's pace."""
    stages = []
    for kind, of_forward in zip(kinds, seconds, strict=True):
        pace = SPEEDS[kind] or 1.0
        charged = truth.of(kind)
        forward, backward, update = of_forward / pace, 2.5 * of_forward / pace, 0.1 * of_forward / pace
        stages.append(
            StageObservation(
                device=f"n/{kind}",
                kind=kind,
                speed=SPEEDS[kind],
                num_sharing=len(kinds),
                forward=(forward,) * 4,
                backward=(backward,) * 4,
                update=update,
                measured_forward=Sample(median=charged.rate * forward + charged.launch / pace),
                measured_backward=Sample(median=charged.rate * backward + charged.launch / pace),
                measured_update=Sample(median=truth.update * update + truth.step / pace),
            )
        )
    edges = [
        EdgeObservation(
            source=source,
            target=target,
            kind=kind,
            wire=f"{source}{target}",
            bytes=1e6,
            planned=(0.01,) * 4,
            measured=Sample(median=0.01 + truth.message),
        )
        for s in range(len(kinds) - 1)
        for source, target, kind in ((s, s + 1, "F"), (s + 1, s, "B"))
    ]
    bare = Observation(
        job=model,
        model=model,
        schedule="1f1b",
        microbatches=(2,) * 4,
        stages=tuple(stages),
        edges=tuple(edges),
        planned_step=1.0,
        step=Sample(median=1.0),
        startup=0.25,
        checkpoints=((1e7 * len(kinds), truth.checkpoint.seconds(1e7 * len(kinds))),) if truth.checkpoint else (),
    )
    return replace(bare, step=Sample(median=float(predicted_timeline(bare, truth).step)))


def runs() -> list[Observation]:
    drawn = random.Random(7)
    shapes = [("fast",), ("fast", "slow"), ("slow", "real"), ("real", "slow", "fast"), ("slow",), ("real", "fast")]
    return [
        run(model, shape, [10 ** drawn.uniform(-3.7, -1.5) for _ in shape])
        for model in ("a", "b", "c", "d")
        for shape in shapes
    ]


def same_constants(found: Calibration, truth: Calibration = TRUTH) -> None:
    for name, kind in truth.kinds.items():
        assert found.kinds[name].rate == pytest.approx(kind.rate, rel=1e-6)
        assert found.kinds[name].launch == pytest.approx(kind.launch, rel=1e-5)
    assert (found.update, found.step) == (pytest.approx(truth.update, rel=1e-6), pytest.approx(truth.step, rel=1e-6))
    assert found.message == pytest.approx(truth.message, rel=1e-9)


def test_exact_runs_give_back_the_constants_they_were_made_with() -> None:
    found = fit(runs())
    same_constants(found)
    assert found.checkpoint is not None
    assert found.checkpoint.base == pytest.approx(0.2)
    assert found.checkpoint.bandwidth == pytest.approx(1e8)
    assert (found.residual.low, found.residual.middle, found.residual.high) == pytest.approx((1.0, 1.0, 1.0))
    assert found.overlap == pytest.approx(1.0)
    assert (found.startup.low, found.startup.high) == (0.25, 0.25)  # type: ignore[union-attr]
    assert found.num_runs == 24
    assert found.kinds["fast"].spread == pytest.approx(0.0, abs=1e-9)
    assert found.kinds["fast"].num_stages == 16


def test_the_order_of_runs_does_not_matter() -> None:
    assert fit(runs()) == fit(list(reversed(runs())))


def test_a_few_runs_that_went_wrong_do_not_move_it() -> None:
    """A sixth of the runs is five times too slow, in every action and as a whole."""
    good = runs()
    spoilt = [
        replace(
            each,
            step=Sample(median=5 * each.step.median),
            stages=tuple(
                replace(
                    stage,
                    measured_forward=Sample(median=5 * stage.measured_forward.median),  # type: ignore[union-attr]
                    measured_backward=Sample(median=5 * stage.measured_backward.median),  # type: ignore[union-attr]
                    measured_update=Sample(median=5 * stage.measured_update.median),  # type: ignore[union-attr]
                )
                for stage in each.stages
            ),
        )
        for each in good[::6]
    ]
    found = fit([each for index, each in enumerate(good) if index % 6] + spoilt)
    same_constants(found)
    assert found.residual.high > 1.5, "but the range tells of them"


def test_a_model_that_behaves_otherwise_widens_the_range_for_new_models() -> None:
    """In-sample its runs would be predicted right; a new model is not in the sample."""
    odd = replace(TRUTH, kinds={name: replace(kind, rate=kind.rate * 1.2) for name, kind in TRUTH.kinds.items()})
    strange = [run("odd", ("fast", "slow"), [0.01, 0.003 * k], truth=odd) for k in range(1, 7)]
    assert fit(runs()).residual.high == pytest.approx(1.0)
    assert fit([*runs(), *strange]).residual.high == pytest.approx(1.2, abs=0.02)


def test_steps_that_are_longer_than_their_actions_are_charged_to_the_rates() -> None:
    late = [replace(each, step=Sample(median=1.04 * each.step.median)) for each in runs()]
    found = fit(late)
    assert found.kinds["slow"].rate == pytest.approx(1.3 * 1.04)
    assert found.residual.middle == 1.0


def test_a_kind_with_one_run_stays_near_what_all_kinds_show() -> None:
    alone = run("e", ("slow",), [0.01], truth=replace(TRUTH, kinds={"slow": KindCalibration(rate=3.0)}))
    others = [each for each in runs() if all(stage.kind == "fast" for stage in each.stages)]
    assert fit([*others, alone]).kinds["slow"].rate == pytest.approx(1.1, rel=0.1)


def test_a_kind_that_was_only_seen_with_short_actions_keeps_the_rate_of_all() -> None:
    """A line through them alone would say anything of long ones: here three times too little."""
    odd = replace(TRUTH, kinds={**TRUTH.kinds, "slow": KindCalibration(rate=0.3, launch=4e-4)})
    long = [run(f"m{k}", ("fast",), [0.005 * k], truth=odd) for k in range(1, 7)]
    short = [run(f"m{k}", ("slow",), [1e-4 * k], truth=odd) for k in range(1, 7)]
    found = fit([*long, *short])
    assert found.kinds["slow"].rate == pytest.approx(found.kinds[ANY_KIND].rate)
    assert found.kinds["slow"].rate == pytest.approx(1.1, rel=0.1)


def test_actions_that_grow_with_the_stages_on_their_host_tell_of_contention() -> None:
    crowded = []
    for count in (1, 2, 3):
        truth = replace(TRUTH, kinds={"fast": KindCalibration(rate=1.1 * (1 + 0.05 * (count - 1)))}, message=0.0)
        crowded += [run(f"m{k}", ("fast",) * count, [0.004 * k] * count, truth=truth) for k in range(1, 6)]
    found = fit(crowded)
    assert found.kinds["fast"].contention == pytest.approx(0.05, abs=0.01)
    assert found.kinds["fast"].rate == pytest.approx(1.1 * 1.05, rel=0.06), "of the runs that there are"
    assert fit(runs()).kinds["slow"].contention == pytest.approx(0.0, abs=1e-9)


def test_an_earlier_calibration_is_refined_and_kept_where_nothing_is_new() -> None:
    first = fit(runs())
    second = fit([run("e", ("fast",), [0.01])], first)
    same_constants(second)
    assert second.num_runs == 25
    assert second.checkpoint is not None
    wrong = replace(first, kinds={name: replace(kind, rate=9.0) for name, kind in first.kinds.items()})
    again = fit([*runs(), *runs(), *runs(), *runs()], wrong)
    assert again.kinds["real"].rate == pytest.approx(0.9), "evidence outvotes it"


def test_one_run_gives_a_wide_range() -> None:
    found = fit([run("a", ("fast", "slow"), [0.01, 0.004])])
    assert found.residual.low < 0.85
    assert found.residual.high > 1.15


def test_no_run_is_refused() -> None:
    with pytest.raises(InputError, match="at least one"):
        fit([])


def test_an_uncalibrated_run_is_timed_as_it_was_planned() -> None:
    one = run("a", ("fast", "slow"), [0.01, 0.004])
    edge = Edge(source=0, target=1, forward=(0.01,) * 4, backward=(0.01,) * 4, forward_wire="01", backward_wire="10")
    durations = Durations(
        forward=tuple(stage.forward for stage in one.stages),
        backward=tuple(stage.backward for stage in one.stages),
        edges=(edge,),
        finish=tuple(stage.update for stage in one.stages),
    )
    expected = timeline(make_schedule("1f1b", 2, 4), durations)
    assert predicted_timeline(one, Calibration()).step == expected.step


def test_kinds_that_no_run_has_take_what_all_kinds_show() -> None:
    found = fit(runs())
    assert found.of("never seen") is found.kinds[ANY_KIND]


@settings(max_examples=60, deadline=None)
@given(
    slope=st.floats(0.01, 100),
    base=st.floats(-1, 1),
    data=st.data(),
    count=st.integers(8, 60),
)
def test_most_points_on_a_line_give_the_line(slope: float, base: float, data: st.DataObject, count: int) -> None:
    """…or one that is as near to all of them: up to a quarter of the points lie anywhere above or below."""
    xs = data.draw(st.lists(st.floats(0.1, 10), min_size=count, max_size=count, unique_by=lambda x: round(x, 3)))
    off = data.draw(st.lists(st.floats(-50, 50), min_size=count // 4, max_size=count // 4))
    points = [
        Point(x, slope * x + base + (off[i // 4] if i % 4 == 3 and i // 4 < len(off) else 0.0))
        for i, x in enumerate(xs)
    ]
    found = line(points, Line(1.0, 0.0), num_pseudo=0)
    assert _total(points, found) <= _total(points, Line(slope, base)) * (1 + 1e-9) + 1e-12


def _total(points: Sequence[Point], found: Line) -> float:
    floor = 0.1 * median(abs(y) for _, y in points)
    return sum(abs(y - found.at(x)) / max(abs(y), floor, 1e-300) for x, y in points)


def test_a_line_of_no_points_is_what_was_known() -> None:
    assert line([], Line(2.0, 1.0), num_pseudo=4) == Line(2.0, 1.0)


def test_points_of_one_place_keep_the_known_slope_nearly_and_a_falling_line_is_none() -> None:
    assert line([Point(1.0, 5.0)] * 9, Line(1.0, 0.0), num_pseudo=0) == Line(0.0, 5.0)
    falling = line([Point(1.0, 3.0), Point(2.0, 2.0), Point(3.0, 1.0)], Line(1.0, 0.0), num_pseudo=0)
    assert falling.slope == 0.0
