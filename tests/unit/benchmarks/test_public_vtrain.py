"""vTrain's points: tables of the same format, made from machines that we know."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from ignite_scheduler.errors import InputError
from published.vtrain import (
    Machine,
    Node,
    Point,
    fit,
    needs_recompute,
    one_stage_seconds,
    pieces,
    predict,
    read_points,
    replica_bandwidth,
    stage_bandwidth,
)
from published.vtrain_report import guesses, report, shrinking, straight

HEAD = (
    "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,tensor parallelism,"
    "data parallelism,pipeline parallelism,iteration time (ms)"
)
POINT = Point(
    gpus=2,
    batch=8,
    micro=2,
    hidden=1024,
    heads=16,
    layers=12,
    sequence=1024,
    tensor=1,
    data=1,
    pipeline=2,
    seconds=1.0,
)
TRUTH = Machine(rate=150e12, launch=2e-3, collective=100e9, update=30e-12)


def made(machine):
    """One-stage points of a machine."""
    found = []
    for h, layers, t, d, u, m in product((1024, 2048), (12, 24), (1, 2, 4), (1, 2), (1, 2, 4, 8), (2, 8)):
        point = replace(
            POINT, gpus=t * d, batch=u * d * m, micro=u, hidden=h, layers=layers, tensor=t, data=d, pipeline=1
        )
        found.append(replace(point, seconds=float(one_stage_seconds(point, machine))))
    return found


def test_a_machine_is_found_again_from_what_it_takes():
    points = made(TRUTH)
    fitted = fit(points)
    assert max(abs(found.error) for found in guesses(points, fitted, Node())) < 0.02
    assert fitted.launch == pytest.approx(TRUTH.launch, rel=0.02)
    assert fitted.collective == pytest.approx(TRUTH.collective, rel=0.1)
    with pytest.raises(InputError, match="one pipeline stage"):
        fit([POINT])


def test_one_stage_in_the_timeline_is_the_sum_that_is_fitted():
    for point in made(TRUTH)[::7]:
        assert predict(point, TRUTH, Node()) == pytest.approx(point.seconds, rel=1e-12)


def test_equal_stages_take_their_textbook_time():
    free = replace(TRUTH, head=0.0, head_rate=np.inf, collective=np.inf, update=0.0, step=0.0, gradients=np.inf)
    point = replace(POINT, pipeline=4, gpus=4)
    own = pieces(point, free)
    assert predict(point, free, Node()) == pytest.approx((4 + 4 - 1) * 3 * float(own.layer))


def test_links_that_leave_a_node_share_its_network():
    node, machine = Node(gpus=8, bandwidth=80e9), TRUTH
    inside = replace(POINT, tensor=4, data=2, pipeline=2, gpus=16)
    assert replica_bandwidth(inside, machine, node) == machine.gradients
    assert stage_bandwidth(inside, 0, machine, node) == 80e9 / 8  # all eight send to the next node at once
    wide = replace(POINT, tensor=4, data=4, pipeline=1, gpus=16)
    assert replica_bandwidth(wide, machine, node) == 80e9 / 4
    narrow = replace(POINT, tensor=1, data=2, pipeline=4, gpus=8)
    assert stage_bandwidth(narrow, 2, machine, node) == machine.collective


def test_activations_are_computed_again_only_where_they_do_not_fit():
    own = pieces(POINT, TRUTH)
    assert not needs_recompute(POINT, own, Node())
    assert needs_recompute(POINT, own, Node(memory=4e9))
    assert predict(POINT, TRUTH, Node(memory=4e9)) > predict(POINT, TRUTH, Node())


def test_a_table_is_read_by_the_names_of_its_columns(tmp_path):
    file = tmp_path / "points.csv"
    file.write_text(f"\ufeff{HEAD},parameters (billion)\n2,8,2,1024,16,12,1024,1,1,2,1000,0.2\n\n")
    assert read_points(file) == [POINT]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("GPUs,global batch\n", "expected one column for 'micro'"),
        (f"{HEAD}\n2,8,2,1024,16,12,1024,1,1,2\n", "points.csv:2: expected numbers"),
        (f"{HEAD}\n2,8,2,1024,16,12,1024,1,1,x,5\n", "points.csv:2: expected numbers"),
        (f"{HEAD}\n2,8,2,1024,16,12,1024,1,1,2,0\n", "points.csv:2: .*positive time"),
        (f"{HEAD}\n8,8,2,1024,16,12,1024,1,1,2,5\n", "points.csv:2: 8 GPUs.*do not fit degrees 1·1·2"),
        (f"{HEAD}\n2.5,8,2,1024,16,12,1024,1,1,2,5\n", "points.csv:2: expected whole numbers"),
        (f"{HEAD}\n2,8,2,1e30,16,12,1024,1,1,2,5\n", "points.csv:2: expected whole numbers"),
        (f"{HEAD}\n2,inf,2,1024,16,12,1024,1,1,2,5\n", "points.csv:2: expected numbers"),
        ("", "expected one column"),
    ],
)
def test_a_malformed_table_is_refused_with_its_line(tmp_path, text, message):
    file = tmp_path / "points.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        read_points(file)
    with pytest.raises(InputError, match="No such file"):
        read_points(tmp_path / "nothing.csv")


def test_what_the_figures_show_of_themselves():
    layers = [replace(POINT, layers=n, seconds=0.1 + n) for n in (12, 16, 20)]
    bent = [replace(POINT, hidden=2048, layers=n, seconds=0.1 + n**2) for n in (12, 16, 20)]
    assert straight([*layers, *bent]) == (1, 2)
    large = replace(POINT, micro=4, batch=16, seconds=0.75)
    assert shrinking([POINT, large]) == (1, 1, 0.25)


def test_the_report_says_what_was_fitted_on_what():
    points = made(TRUTH)
    text = report([*points, *(replace(POINT, micro=u, seconds=0.2) for u in (1, 2))], None, Node())
    assert "Points with a pipeline, never fitted: 2 points" in text
    assert "other* hidden sizes only" in text
    assert "| t1 d1 p2 | 2 |" in text
    assert report([POINT], points, Node()).startswith("Fitted on other points, 1 points")
