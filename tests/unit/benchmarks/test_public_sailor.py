"""Sailor's plans: small directories of the same format, worked by hand."""

import json
from dataclasses import replace

import pytest

from ignite_scheduler.errors import InputError
from published.sailor import predict
from published.sailor_files import Replica, Sailor, read_plan
from published.sailor_report import Refused, report, rows

GB = 1e9
ONE_GB_A_SECOND = [[0.0, 0.0, 1.0], 1e12]


def write(path, document):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def layer_times(pace, fixed=0.0):
    """Of each of four layers: (fixed + u)·pace forward, twice that backward; 0.5 s of update."""
    return {
        str(u): {
            degree: {str(layer): [(fixed + u) * pace, (fixed + u) * 2 * pace, 0.5] for layer in range(4)}
            for degree in ("1", "2")
        }
        for u in (1, 2, 4)
    }


@pytest.fixture
def root(tmp_path):
    """Four layers of 0.5 GB; every boundary tensor is 1 GB a sample; X takes 1 s a layer and sample, Y twice that."""
    size = {"params_bytes": GB / 2, "act_output_bytes": GB, "act_mem_bytes": 2 * GB}
    write(tmp_path / "memory" / "TOY.json", {d: {str(layer): size for layer in range(4)} for d in ("1", "2")})
    write(tmp_path / "compute" / "TOY" / "X.json", layer_times(1.0))
    write(tmp_path / "compute" / "TOY" / "Y.json", layer_times(2.0))
    links = {a: {d: {"z": {b: {d: ONE_GB_A_SECOND} for b in "XY"}} for d in ("1", "2")} for a in "XY"}
    write(tmp_path / "network" / "multizone_bandwidths_het.json", {"z": links})
    inside = {gpu: {"2": [[0.0, 0.0, 2.0], 1e12]} for gpu in "XY"}
    write(tmp_path / "network" / "intra_node_bandwidths.json", inside)
    return tmp_path


def plan(root, name, stages, batch, *, micro=1, degree=1, cluster="lab-TOY", **measured):
    """A plan file: ``stages`` are pairs of layers and the kinds of their replicas."""
    document = {
        "mbs": micro,
        "gbs": batch,
        "pipeline_list": [
            {
                "num_stages": len(stages),
                "layers_per_stage": [layers for layers, _ in stages],
                "tmp_per_stage": [[[[[gpu, degree, "z"]], degree] for gpu in gpus] for _, gpus in stages],
                "dp": [len(gpus) for _, gpus in stages],
            }
        ],
        **measured,
    }
    return write(root / "measured" / cluster / f"plan_config_{name}.json", document)


def predicted(root, *args, **kwargs):
    return predict(Sailor(root), read_plan(plan(root, "p", *args, **kwargs)))


def test_one_stage_is_a_sum(root):
    found = predicted(root, [([0, 1, 2, 3], "X")], 2)
    # Two microbatches of 4 × (1 + 2) s, an update of 4 × 0.5 s.
    assert (found.step, found.compute, found.update) == (26.0, 24.0, 2.0)
    assert (found.bubble, found.transfer, found.reduction, found.waiting) == (0.0, 0.0, 0.0, 0.0)
    assert found.memory == 4 * 0.5 * GB * 4 + 8 * GB  # weights, gradients, two states; one microbatch in flight


def test_two_stages_receive_the_gradient_before_they_send(root):
    found = predicted(root, [([0, 1], "X"), ([2, 3], "X")], 2)
    # Passes of 2 and 4 s, transfers of 1 s. F0 of stage 1 runs 3–5, B0 5–9; stage 0 has its gradient at 10 and then
    # sends: F1 of stage 1 runs 11–13, B1 13–17, stage 0 goes backward 18–22. Update 1 s.
    assert found.step == 23.0
    assert (found.compute, found.bubble, found.transfer) == (12.0, 6.0, 4.0)  # 18 s on free links


def test_unlike_replicas_meet_at_the_ring_and_the_faster_one_waits(root):
    found = predicted(root, [([0, 1, 2, 3], "XY")], 2)
    # X is done at 12, Y at 24; the ring moves 2·(1/2)·2 GB over 1 GB/s.
    assert found.step == 24 + 2 + 2
    assert (found.compute, found.waiting, found.reduction) == (24.0, 12.0, 2.0)


def test_a_tensor_parallel_group_gathers_what_it_receives(root):
    alone = predicted(root, [([0, 1], "X"), ([2, 3], "X")], 1, degree=1)
    found = predicted(root, [([0, 1], "X"), ([2, 3], "X")], 1, degree=2)
    # Once in each direction: half of 1 GB over one member's half of 2 GB/s.
    assert found.step == alone.step + 2 * 0.5
    assert found.transfer == alone.transfer + 2 * 0.5


def test_stages_of_unequal_width_share_each_microbatch(root):
    found = predicted(root, [([0, 1], "XX"), ([2, 3], "Y")], 4)
    # Waves of 2 samples. Stage 0: one sample on each, 2 and 4 s; stage 1: both on Y, 8 and 16 s. Each X sends 1 GB.
    # F0 0–2, sent by 3, F0 of stage 1 3–11, B0 11–27, gradient by 28; sent by 29, F1 29–37, B1 37–53, by 54, B1 54–58.
    # Then the ring of stage 0, 2·(1/2)·1 GB over 1 GB/s, and the update.
    assert (found.step, found.reduction, found.update) == (58 + 1 + 1, 1.0, 1.0)


def test_more_samples_never_take_less_time(root):
    times = layer_times(1.0)
    times["1"]["1"]["0"] = [50.0, 60.0, 0.5]  # slower than two samples, which take 2 and 4 s
    write(root / "compute" / "TOY" / "X.json", times)
    data = Sailor(root)
    replica = Replica(gpu="X", zone="z", degree=1)
    assert data.seconds("TOY", replica, 0, 1)[:2] == (2.0, 4.0)
    assert data.seconds("TOY", replica, 0, 3)[:2] == (3.0, 6.0)
    assert data.seconds("TOY", replica, 0, 8)[:2] == (8.0, 16.0)  # beyond the largest along the last slope


@pytest.mark.parametrize(
    ("gpu", "degree", "message"),
    [
        ("H100", 1, "no times of TOY on H100.*there are files for X, Y"),
        ("X", 4, "no times of TOY on X with tensor-parallel degree 4"),
    ],
)
def test_what_the_data_do_not_have_is_refused_by_name(root, gpu, degree, message):
    file = plan(root, "p", [([0, 1, 2, 3], [gpu])], 2, degree=degree, real=1.0)
    with pytest.raises(InputError, match=message):
        predict(Sailor(root), read_plan(file))
    (refused,) = rows(Sailor(root), [file])
    assert isinstance(refused, Refused)
    assert f"not predicted: lab-TOY/plan_config_p: {refused.reason}" in report([refused])


def test_a_missing_link_is_refused(root):
    write(root / "network" / "multizone_bandwidths_het.json", {})
    with pytest.raises(InputError, match="no link model from 1 X in z to 1 Y in z"):
        predicted(root, [([0, 1], "X"), ([2, 3], "Y")], 2)


def test_a_pair_of_kinds_that_was_not_measured_is_as_slow_as_the_slower_one(root):
    slow = [[0.0, 0.0, 0.5], 0.5e9]
    links = {"X": {"1": {"z": {"X": {"1": ONE_GB_A_SECOND}}}}, "Y": {"1": {"z": {"Y": {"1": slow}}}}}
    write(root / "network" / "multizone_bandwidths_het.json", {"z": links})
    data = Sailor(root)
    x, y = (Replica(gpu=gpu, zone="z", degree=1) for gpu in "XY")
    assert [data.link(*pair).bandwidth(1e6) for pair in ((x, x), (x, y), (y, x))] == [1e9, 0.5e9, 0.5e9]
    assert data.link(x, replace(x, degree=2)) == data.link(x, x)  # one member sends, whatever waits
    with pytest.raises(InputError, match="no link model"):
        data.link(x, replace(x, zone="elsewhere"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"real": 0}, "'real' above 0"),
        ({"red_grads": -1}, "red_grads: expected a figure of at least 0"),
        ({"gbs": 10**18}, "at most 100000 microbatches"),
        ({"gbs": float("inf")}, "expected one pipeline"),
        ({"pipeline_list": [{}, {}]}, "found 2; unlike pipelines"),
    ],
)
def test_figures_that_cannot_be_are_refused(root, change, message):
    document = json.loads(plan(root, "odd", [([0, 1, 2, 3], "X")], 4).read_text()) | change
    with pytest.raises(InputError, match=message):
        read_plan(write(root / "measured" / "lab-TOY" / "plan_config_odd.json", document))


def test_layers_in_another_order_and_an_unknown_model_are_refused(root):
    with pytest.raises(InputError, match="each layer once"):
        read_plan(plan(root, "odd", [([0, 1, 3, 2], "X")], 4))
    with pytest.raises(InputError, match="no model 'NOPE'; there are TOY"):
        Sailor(root, "NOPE").model_of(read_plan(plan(root, "even", [([0, 1, 2, 3], "X")], 4)))


def test_a_layer_without_times_is_named(root):
    times = layer_times(1.0)
    del times["2"]["1"]["3"]
    write(root / "compute" / "TOY" / "X.json", times)
    with pytest.raises(InputError, match="no times of layer 3 of TOY on X with tensor-parallel degree 1 for 2 samples"):
        Sailor(root).update("TOY", Replica(gpu="X", zone="z", degree=1), 0)


@pytest.mark.parametrize("text", ["{", "[]", '{"pipeline_list": []}', '{"mbs": 1, "gbs": 1, "pipeline_list": [{}]}'])
def test_a_malformed_plan_is_refused_with_its_file(root, text):
    file = write(root / "measured" / "lab-TOY" / "broken.json", text)
    with pytest.raises(InputError, match=r"broken\.json: expected"):
        read_plan(file)


def test_a_model_is_found_by_its_folder_or_by_its_layers(root):
    data = Sailor(root)
    assert data.model_of(read_plan(plan(root, "p", [([0, 1, 2, 3], "X")], 1, cluster="elsewhere"))) == "TOY"
    with pytest.raises(InputError, match=r"which model of 3 layers is this\? there are TOY \(4 layers\)"):
        data.model_of(read_plan(plan(root, "p", [([0, 1, 2], "X")], 1)))


def test_a_record_that_stands_in_two_plans_counts_once(root):
    single = plan(root, "a", [([0, 1, 2, 3], "X")], 2, real=28.0, red_grads=2.0)
    double = plan(root, "b", [([0, 1, 2, 3], "XX")], 4, real=28.0, red_grads=2.0)
    found = rows(Sailor(root), [single, double])
    assert [row.counted for row in found] == [False, True]  # only two replicas have gradients to reduce
    assert [row.error for row in found] == [pytest.approx(26 / 28 - 1), 0.0]
    assert "its figures repeat another plan's; not counted" in report(found)


def test_reasons_of_outliers_carry_figures(root):
    waiting = plan(root, "waiting", [([0, 1, 2, 3], "XY")], 2, real=28.0, red_grads=14.0)
    impossible = plan(root, "impossible", [([0, 1, 2, 3], "XX")], 2, real=15.0, red_grads=14.0)
    odd = plan(root, "odd", [([0, 1, 2, 3], "X")], 2, real=100.0)
    found = rows(Sailor(root), [waiting, impossible, odd])
    text = report(found)
    assert "waits 12 s for the slowest before an all-reduce of 2 s" in text
    assert "impossible: the recorded reduction of 14 s leaves 1 s for 12 s of compute" in text
    assert "odd: **not explained**" in text
    assert [row.explained for row in found] == [True, True, False]


def test_a_launch_bound_profile_is_told_by_its_own_figures(root):
    times = layer_times(1.0)
    for layer in range(4):
        times["1"]["1"][str(layer)] = [1.9, 3.8, 0.5]  # nearly what two samples take
    write(root / "compute" / "TOY" / "X.json", times)
    (row,) = rows(Sailor(root), [plan(root, "p", [([0, 1, 2, 3], "X")], 1, real=16.0)])
    assert row.predicted.step == pytest.approx(4 * 5.7 + 2)
    assert row.predicted.floor == pytest.approx(14.0)
    assert row.explained
    assert "1 samples a pass take 22800.0 ms, 2 take 24000.0 ms" in row.notes[0]
