"""Small parts of the engine: data order, learning rates, wires, pacing, message layouts, files of a run."""

import ctypes
import json
import math
import os
import sys
import threading
from fractions import Fraction
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ignite_scheduler import zoo
from ignite_scheduler.engine import devices
from ignite_scheduler.engine.abilities import PRECISIONS
from ignite_scheduler.engine.chain import DTYPES
from ignite_scheduler.engine.data import SampleOrder, Samples, num_steps
from ignite_scheduler.engine.devices import CpuDevice, PacedDevice, open_device
from ignite_scheduler.engine.links import OwnWire, SharedWire, open_wires
from ignite_scheduler.engine.optimization import clip, learning_rate, make_optimizer, squared_norm
from ignite_scheduler.engine.processes import wake_in_time
from ignite_scheduler.engine.run_directory import MeasuredStep, Metrics, write_timeline
from ignite_scheduler.engine.saved import facts, latest
from ignite_scheduler.engine.specification import GangSpec, RankDevice, emulated
from ignite_scheduler.engine.transport import Layout, Spec
from ignite_scheduler.errors import InputError, NotFoundError
from ignite_scheduler.formats import load_timeline
from ignite_scheduler.model import (
    Batch,
    Cluster,
    Device,
    Job,
    LearningRateSchedule,
    Link,
    LinkRule,
    Node,
    Optimizer,
    Plan,
    Reference,
)
from ignite_scheduler.pipeline import Action, Interval, Transfer, make_schedule

pytestmark = pytest.mark.torch


def job(**more: object) -> Job:
    return Job(name="j", model=Reference(zoo="mlp"), batch=Batch(total=4), **more)  # type: ignore[arg-type]


def plan(num_layers: tuple[int, ...] = (1, 1)) -> Plan:
    from ignite_scheduler.engine.doctor import Arrangement, bare_plan

    names = [f"l{i}" for i in range(sum(num_layers))]
    return bare_plan(job(), names, Arrangement(split=num_layers), (2, 2), "1f1b")


# -- data -----------------------------------------------------------------------------------------------------------


@given(num_samples=st.integers(1, 30), batch=st.integers(1, 40), seed=st.integers(0, 5))
def test_each_pass_shows_each_sample_once(num_samples: int, batch: int, seed: int) -> None:
    order = SampleOrder(num_samples=num_samples, batch=batch, seed=seed)
    steps = math.ceil(2 * num_samples / batch)
    stream = torch.cat([order.indices(step) for step in range(steps)])
    assert stream.shape == (steps * batch,)
    for number in range(2):
        assert sorted(stream[number * num_samples : (number + 1) * num_samples].tolist()) == list(range(num_samples))


@given(num_samples=st.integers(1, 30), batch=st.integers(1, 40), step=st.integers(0, 50))
def test_a_step_needs_no_step_before_it(num_samples: int, batch: int, step: int) -> None:
    fresh = SampleOrder(num_samples=num_samples, batch=batch, seed=3)
    used = SampleOrder(num_samples=num_samples, batch=batch, seed=3)
    for earlier in (0, step // 2, step):
        used.indices(earlier)
    assert torch.equal(fresh.indices(step), used.indices(step))


def test_epochs_are_passes_over_the_data_rounded_up_to_whole_steps() -> None:
    assert num_steps(job(steps=7), 10) == 7
    assert num_steps(job(epochs=2), 10) == 5
    assert num_steps(job(epochs=1), 10) == 3
    with pytest.raises(InputError, match="needs steps or epochs"):
        num_steps(job(), 10)


# -- optimization ---------------------------------------------------------------------------------------------------


@given(name=st.sampled_from(["constant", "linear", "cosine"]), warmup=st.integers(0, 10), total=st.integers(1, 40))
def test_learning_rates_rise_then_never_rise_again(name: str, warmup: int, total: int) -> None:
    rates = [learning_rate(LearningRateSchedule(name=name, warmup=warmup), 2.0, t, total) for t in range(total)]
    assert all(0 <= rate <= 2.0 for rate in rates)
    head, tail = rates[:warmup], rates[warmup:]
    assert head == sorted(head)
    assert tail == sorted(tail, reverse=True)
    if tail:
        assert tail[0] == 2.0


def test_clipping_brings_the_norm_to_the_limit_and_no_further() -> None:
    parameters = [torch.zeros(3), torch.zeros(2)]
    parameters[0].grad, parameters[1].grad = torch.tensor([3.0, 0.0, 0.0]), torch.tensor([0.0, 4.0])
    assert squared_norm(parameters) == 25.0
    clip(parameters, 5.0, 10.0)
    assert squared_norm(parameters) == 25.0
    clip(parameters, 5.0, 1.0)
    assert math.sqrt(squared_norm(parameters)) == pytest.approx(1.0, rel=1e-5)


def test_a_stage_without_parameters_has_no_optimizer() -> None:
    assert make_optimizer([], Optimizer()) is None


# -- links ----------------------------------------------------------------------------------------------------------


class FractionWire(OwnWire):
    """Exact arithmetic."""

    def __init__(self) -> None:
        self._free_from = Fraction(0)


@given(st.lists(st.tuples(st.fractions(0, 10), st.fractions(0, 5)), max_size=12))
def test_a_wire_carries_one_message_at_a_time(messages: list[tuple[Fraction, Fraction]]) -> None:
    wire, ready, booked = FractionWire(), Fraction(0), []
    for gap, seconds in messages:
        ready += gap
        start, end = wire.book(ready, seconds)  # type: ignore[arg-type]
        assert end - start == seconds
        assert start == max([ready, *(e for _, e in booked[-1:])])
        booked.append((start, end))


def test_a_shared_wire_is_booked_by_all_who_open_its_file(tmp_path: Path) -> None:
    one, two = SharedWire(tmp_path / "wire"), SharedWire(tmp_path / "wire")
    assert one.book(1.0, 2.0) == (1.0, 3.0)
    assert two.book(1.5, 1.0) == (3.0, 4.0)
    assert one.book(9.0, 1.0) == (9.0, 10.0)


def test_ranks_open_the_wires_that_they_send_over(tmp_path: Path) -> None:
    own = Link(bandwidth=1.0, latency=0.0, wire="own")
    common = Link(bandwidth=1.0, latency=0.0, wire="common")
    links = {(0, 1): own, (1, 0): common, (2, 1): common, (1, 2): own}
    wires = open_wires(1, links, tmp_path / "wires")
    assert set(wires) == {0, 2}
    assert all(isinstance(wire, SharedWire) for _, wire in wires.values()), "ranks 0 and 1 share own, 1 and 2 common"
    alone = open_wires(0, {(0, 1): own, (0, 2): own}, tmp_path / "none")
    assert alone[1][1] is alone[2][1]
    assert isinstance(alone[1][1], OwnWire)
    assert not (tmp_path / "none").exists()


# -- devices --------------------------------------------------------------------------------------------------------


class Clock:
    """A machine of which a test says how fast it is: wall time runs ``contention`` times as fast as CPU time."""

    def __init__(self) -> None:
        self.wall, self.cpu, self.oversleep = 100.0, 7.0, 0.0

    def monotonic(self) -> float:
        return self.wall

    def thread_time(self) -> float:
        return self.cpu

    def sleep(self, seconds: float) -> None:
        self.wall += seconds + self.oversleep

    def work(self, cpu: float, contention: float = 1.0) -> None:
        self.cpu += cpu
        self.wall += cpu * contention


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(devices, "time", fake)
    return fake


def length(
    device: PacedDevice | CpuDevice, clock: Clock, cpu: float, contention: float = 1.0, ready: float | None = None
) -> float:
    with device.action(ready) as span:
        clock.work(cpu, contention)
    return span.end - span.start


@given(cpu=st.floats(1e-4, 10), speed=st.floats(0.01, 0.99), contention=st.floats(1, 50))
def test_a_paced_action_takes_its_cpu_time_over_its_speed(cpu: float, speed: float, contention: float) -> None:
    """…whatever else runs on the core, unless that alone takes longer."""
    with pytest.MonkeyPatch.context() as patch:
        fake = Clock()
        patch.setattr(devices, "time", fake)
        took = length(PacedDevice(speed), fake, cpu, contention)
    assert took == pytest.approx(max(cpu / speed, cpu * contention), abs=1e-9)


def test_a_sleep_that_ends_late_is_taken_off_the_next(clock: Clock) -> None:
    device = PacedDevice(0.5)
    clock.oversleep = 0.25
    began = clock.wall
    for _ in range(4):
        assert length(device, clock, 1.0, ready=began) == pytest.approx(2.0)
    assert clock.wall - began == pytest.approx(8.25)


def test_a_played_device_begins_when_it_is_free_and_its_inputs_are_there(clock: Clock) -> None:
    device = PacedDevice(0.5)
    clock.wall = 100.0
    with device.action(99.5) as span:
        clock.work(1.0)
    assert (span.start, span.end, clock.wall) == (99.5, 101.5, 101.5)
    clock.wall += 0.25  # the interpreter, other ranks on the core
    with device.action(90.0) as span:
        clock.work(1.0)
    assert (span.start, span.end) == (101.5, 103.5)
    with device.action() as span:
        pass
    assert span.start == 103.5, "nobody says since when it could have begun"


def test_what_cannot_be_made_up_for_makes_the_device_late(clock: Clock) -> None:
    device = PacedDevice(0.5)
    clock.wall = 100.0
    with device.action(95.0) as span:
        clock.work(1.0)
    assert (span.start, span.end, clock.wall) == (95.0, 101.0, 101.0)
    with device.action(95.0) as span:
        clock.work(1.0)
    assert (span.start, span.end) == (101.0, 103.0)


def test_a_real_device_begins_when_it_begins(clock: Clock) -> None:
    clock.wall = 100.0
    with CpuDevice("cpu").action(99.0) as span:
        clock.work(1.0)
    assert (span.start, span.end) == (100.0, 101.0)


def test_what_follows_the_computing_sets_no_pace(clock: Clock) -> None:
    """Packing a message takes its own time, within the wait for the slow device as long as that lasts."""
    device = PacedDevice(0.5)
    began = clock.wall
    with device.action() as span:
        clock.work(1.0)
        device.computed(span)
        assert span.end - span.start == pytest.approx(2.0), "known ahead of time"
        clock.work(0.75)
    assert clock.wall - began == pytest.approx(2.0)
    with device.action() as span:
        clock.work(1.0)
        device.computed(span)
        clock.work(1.5)
    assert span.end - span.start == pytest.approx(2.0)
    assert clock.wall - began == pytest.approx(4.5)


def test_a_device_of_full_speed_is_not_paced(clock: Clock) -> None:
    assert length(CpuDevice("cpu"), clock, 1.0, 3.0) == pytest.approx(3.0)
    assert isinstance(open_device(RankDevice(id="a", speed=1.0)), CpuDevice)
    assert isinstance(open_device(RankDevice(id="a")), CpuDevice)
    paced = open_device(RankDevice(id="a", speed=0.25))
    assert paced.description == "CPU, one thread paced to 0.25 of a core (emulated)"


@pytest.mark.parametrize("speed", [0.0, -1.0, 1.5])
def test_speeds_that_a_core_cannot_play_are_refused(speed: float) -> None:
    with pytest.raises(InputError, match="above 0 and at most 1 core"):
        RankDevice(id="a", speed=speed)


# -- messages -------------------------------------------------------------------------------------------------------

SPECS = st.lists(
    st.builds(
        Spec,
        st.sampled_from(["float32", "float64", "bfloat16", "int64", "bool", "uint8"]),
        st.lists(st.integers(0, 5), max_size=3).map(tuple),
        st.booleans(),
    ),
    max_size=4,
)


@settings(deadline=None)
@given(SPECS)
def test_packed_tensors_come_out_as_they_went_in(specs: list[Spec]) -> None:
    layout = Layout.of(specs)
    buffer = torch.full((layout.num_bytes,), 255, dtype=torch.uint8)
    tensors = [torch.randint(0, 2, spec.shape).to(getattr(torch, spec.dtype)) for spec in specs]
    for index, tensor in enumerate(tensors):
        layout.view(buffer, index).copy_(tensor)
    for index, tensor in enumerate(tensors):
        assert torch.equal(layout.view(buffer, index), tensor)
    assert layout.payload == sum(tensor.nbytes for tensor in tensors)
    assert bool((buffer[:64] == 255).all()), "the header is left alone"


@given(SPECS)
def test_gradients_come_back_only_for_tensors_that_need_one(specs: list[Spec]) -> None:
    wanted = [(s.dtype, s.shape) for s in specs if s.needs_gradient]
    assert [(s.dtype, s.shape) for s in Layout.of(specs).gradients().specs] == wanted


def test_another_type_or_shape_has_another_digest() -> None:
    specs = [Spec("float32", (2, 3), True), Spec("float32", (3, 2), True), Spec("int32", (2, 3), True)]
    assert len({Layout.of([spec]).digest for spec in specs}) == 3
    assert str(specs[0]) == "float32[2, 3]"


# -- files ----------------------------------------------------------------------------------------------------------


def test_metrics_of_steps_that_are_done_again_are_dropped(tmp_path: Path) -> None:
    first = Metrics(tmp_path, done=0)
    for step in (1, 2, 3):
        first.write(step=step, samples=8, seconds=0.5, loss=1.0 / step, grad_norm=float("inf"), held_loss=None)
    first.close()
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 4, "lo')  # a crash in the middle of a line
    second = Metrics(tmp_path, done=2)
    second.write(step=3, samples=8, seconds=0.25, loss=0.25)
    second.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert lines[1] == {"step": 2, "loss": 0.5, "grad_norm": None, "step_s": 0.5, "samples_per_s": 16.0}
    assert lines[2] == {"step": 3, "loss": 0.25, "step_s": 0.25, "samples_per_s": 32.0}


def test_a_timeline_counts_from_the_start_of_the_step_on_rank_0(tmp_path: Path) -> None:
    def measured(row: int, steps: list[int]) -> list[MeasuredStep]:
        return [
            MeasuredStep(
                step=step,
                start=10.0 * step + row,
                end=10.0 * step + 5 + row,
                intervals=(Interval(Action(row, "F", 0), row, 10.0 * step + 1, 10.0 * step + 2),),
                transfers=(Transfer(0, 1, "F", 0, 10.0 * step + 2, 10.0 * step + 3, None),) * row,
                finish=(10.0 * step + 4, 10.0 * step + 5),
            )
            for step in steps
        ]

    write_timeline(tmp_path, make_schedule("gpipe", 2, 1), [measured(0, [1, 2]), measured(1, [2, 3])], {"job": "j"})
    document = json.loads((tmp_path / "timeline.json").read_text())
    assert (document["schema"], document["measured"], document["job"]) == ("ignite/timeline/v1", True, "j")
    (step,) = document["steps"]
    assert (step["step"], step["step_s"]) == (2, 6.0)
    assert step["intervals"][1] == {"action": "1F0", "row": 1, "start_s": 1.0, "end_s": 2.0}
    assert step["transfers"] == [{"source": 0, "target": 1, "kind": "F", "microbatch": 0, "start_s": 2.0, "end_s": 3.0}]
    assert step["finishes"][0] == {"row": 0, "start_s": 4.0, "end_s": 5.0}
    assert load_timeline(tmp_path / "timeline.json").steps[0].step_index == 2


def test_latest_names_only_what_is_whole(tmp_path: Path) -> None:
    assert latest(tmp_path) is None
    folder = tmp_path / "checkpoints"
    (folder / "step-000005").mkdir(parents=True)
    (folder / "latest").write_text("step-000005\n")
    assert latest(tmp_path) is None
    with pytest.raises(NotFoundError, match="expected a checkpoint at"):
        facts(folder / "step-000005")
    (folder / "step-000005" / "checkpoint.json").write_text('{"schema": "other/v1", "step": 5}')
    with pytest.raises(NotFoundError, match="schema"):
        facts(folder / "step-000005")
    (folder / "step-000005" / "checkpoint.json").write_text('{"schema": "ignite/checkpoint/v1", "step": 5}')
    assert latest(tmp_path) == folder / "step-000005"
    assert facts(folder / "step-000005")["step"] == 5


# -- specification --------------------------------------------------------------------------------------------------


def test_a_gang_needs_the_devices_of_its_plan(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="names the devices rank-0, rank-1; found a, b"):
        GangSpec(job=job(), plan=plan(), devices=(RankDevice(id="a"), RankDevice(id="b")), directory=tmp_path)


def test_a_cluster_is_played_with_its_speeds_and_links(tmp_path: Path) -> None:
    made = tuple(
        Device(id=f"rank-{i}", node=f"n{i}", kind="box", memory=1e9, speed=speed) for i, speed in enumerate((1.0, 0.25))
    )
    nodes = tuple(Node(name=d.node, devices=(d,)) for d in made)
    cluster = Cluster(name="c", nodes=nodes, links=(LinkRule(bandwidth=1e6, latency=0.5),))
    spec = emulated(job(), plan(), cluster, directory=tmp_path)
    assert [device.speed for device in spec.devices] == [1.0, 0.25]
    assert {pair: link.seconds(1e6) for pair, link in spec.links.items()} == {(0, 1): 1.5, (1, 0): 1.5}
    with pytest.raises(InputError, match="no link from 'rank-0' to 'rank-1'"):
        emulated(job(), plan(), Cluster(name="c", nodes=nodes, links=()), directory=tmp_path)


def test_replicas_need_links_among_each_other_and_to_those_that_they_share_samples_with(tmp_path: Path) -> None:
    from ignite_scheduler.engine.doctor import Arrangement, bare_plan

    nodes = tuple(
        Node(name=f"n{i}", devices=(Device(id=f"rank-{i}", node=f"n{i}", kind="box", memory=1e9, speed=0.5),))
        for i in range(4)
    )
    grouped = bare_plan(job(), ["a", "b"], Arrangement(split=(1, 1), shares=((1, 1), (1, 1))), (2, 2), "1f1b")

    def spec(*pairs: tuple[int, int]) -> GangSpec:
        links = tuple(
            LinkRule(bandwidth=1e6, latency=0.0, sources=frozenset({f"n{a}"}), targets=frozenset({f"n{b}"}))
            for a, b in pairs
        )
        return emulated(job(), grouped, Cluster(name="c", nodes=nodes, links=links), directory=tmp_path)

    assert set(spec((0, 1), (2, 3), (0, 2), (1, 3)).links) >= {(0, 1), (1, 0), (2, 3), (0, 2), (3, 1)}
    with pytest.raises(InputError, match="no link from 'rank-2' to 'rank-3'"):
        spec((0, 1), (0, 2), (1, 3))
    with pytest.raises(InputError, match="no link from 'rank-1' to 'rank-3'"):
        spec((0, 1), (2, 3), (0, 2))


def test_a_precision_that_the_engine_cannot_train_in_is_refused_before_the_start(tmp_path: Path) -> None:
    from dataclasses import replace

    with pytest.raises(InputError, match="trains in fp32, bf16, fp64; the plan for 'j' is in fp16"):
        GangSpec(job=job(), plan=replace(plan(), precision="fp16"), devices=(RankDevice(id="a"),), directory=tmp_path)
    assert set(PRECISIONS) == set(DTYPES)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (torch.zeros(3), "as \\(input, target\\), found Tensor"),
        ((torch.zeros(3), torch.zeros(1), torch.zeros(1)), "as \\(input, target\\), found tuple"),
        ((torch.zeros(3), (torch.zeros(1), torch.zeros(1))), "one target for each sample, found 2"),
    ],
)
def test_a_sample_is_an_input_and_a_target(item: object, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = samples_of([item], monkeypatch)
    with pytest.raises(InputError, match=words):
        samples.read(torch.tensor([0]), "key")


def test_samples_are_read_in_the_jobs_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    item = ((torch.ones(2), torch.tensor([7])), 3)
    samples = samples_of([item, item], monkeypatch)
    (real, whole), target = samples.read(torch.tensor([0, 1, 0]), "key")
    assert (real.dtype, real.shape) == (torch.float64, (3, 2))
    assert (whole.dtype, whole.shape) == (torch.int64, (3, 1))
    assert target.tolist() == [3, 3, 3]


def samples_of(items: list[object], monkeypatch: pytest.MonkeyPatch) -> Samples:
    monkeypatch.setattr(zoo, "dataset", lambda _: items)
    return Samples(Reference(zoo="x"), dtype=torch.float64, device=torch.device("cpu"), owner="j")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="timer slack and turns are Linux's")
def test_a_rank_asks_for_exact_sleeps_and_short_turns_and_keeps_its_priority() -> None:
    seen: dict[str, object] = {}

    def look() -> None:  # both belong to a thread
        library = ctypes.CDLL(None)
        seen["before"] = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
        wake_in_time()
        seen["after"] = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
        seen["slack"] = library.prctl(30, 0, 0, 0, 0)  # PR_GET_TIMERSLACK

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen["before"] == seen["after"]
    assert seen["slack"] == 1
