"""What a calibration charges, in numbers that can be followed by hand."""

from __future__ import annotations

from ignite_scheduler.cost import evaluate, straight
from ignite_scheduler.cost.calibration import (
    ANY_KIND,
    Calibration,
    CheckpointTime,
    KindCalibration,
    calibrated,
)
from ignite_scheduler.model import (
    Batch,
    Cluster,
    Device,
    Job,
    Layer,
    LayerInput,
    LayerTimes,
    LinkRule,
    Node,
    Plan,
    Profile,
    Reference,
)

PROFILE = Profile(
    name="p",
    precision="fp32",
    reference="ref",
    layers=tuple(
        Layer(
            name=name,
            parameter_bytes=0.0,
            output_bytes=1.0,
            activation_bytes=0.0,
            times={"ref": {1: LayerTimes(forward=2.0, backward=4.0)}},
            inputs=(LayerInput(source=before),),
            update={"sgd": 3.0},
        )
        for name, before in (("a", "input"), ("b", "a"))
    ),
    action_overhead=0.5,
)
CLUSTER = Cluster(
    name="c",
    nodes=(
        Node(
            name="n",
            devices=(
                Device(id="n/half", node="n", kind="half", memory=1e9, speed=0.5),
                Device(id="n/other", node="n", kind="other", memory=1e9, speed=1.0),
            ),
        ),
    ),
    links=(LinkRule(bandwidth=1.0, latency=0.25),),
)
JOB = Job(name="j", model=Reference(profile="p"), batch=Batch(total=1), steps=1)
CALIBRATION = Calibration(
    kinds={"half": KindCalibration(rate=1.5, launch=1.0), ANY_KIND: KindCalibration(rate=2.0, launch=-9.0)},
    message=0.75,
    update=2.0,
    step=1.0,
)


def plan(calibration: Calibration) -> Plan:
    profile, cluster = calibrated(PROFILE, CLUSTER, calibration)
    choice = straight(split=(1, 1), devices=("n/half", "n/other"), microbatches=(1,), schedule="gpipe")
    return evaluate(JOB, profile, cluster, choice)


def test_every_charge_by_hand() -> None:
    first, second = plan(CALIBRATION).stages
    assert (first.forward, first.backward) == ((1.5 * 2.5 + 1.0) / 0.5, (1.5 * 4.5 + 1.0) / 0.5)
    assert first.update == (2.0 * 3.0 + 1.0) / 0.5
    # The launch of any other kind takes away no more than the overhead of the profile.
    assert (second.forward, second.backward) == (2.0 * 2.0, 2.0 * 4.0)
    assert second.update == 2.0 * 3.0 + 1.0
    message = 1.0 + 0.25 + 0.75
    chain = first.forward + second.forward + second.backward + first.backward
    assert plan(CALIBRATION).predicted.step == chain + 2 * message + first.update


def test_the_documents_that_were_given_are_left_alone() -> None:
    before = plan(Calibration())
    plan(CALIBRATION)
    assert plan(Calibration()) == before
    assert before.stages[0].forward == 2.5 / 0.5


def test_shares_of_peaks_are_taken_where_they_are_known() -> None:
    kinds = {"half": KindCalibration(achievable_flops=0.25)}
    _, cluster = calibrated(PROFILE, CLUSTER, Calibration(kinds=kinds))
    half, other = cluster.devices
    assert (half.achievable_flops, half.achievable_bandwidth) == (0.25, CLUSTER.devices[0].achievable_bandwidth)
    assert other == CLUSTER.devices[1]


def test_a_checkpoint_takes_its_base_and_its_bytes() -> None:
    assert CheckpointTime(base=0.5, bandwidth=4.0).seconds(8.0) == 2.5
