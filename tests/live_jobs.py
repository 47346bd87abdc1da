"""Small real jobs for tests of the live side: a perceptron over synthetic rows on emulated devices."""

from __future__ import annotations

from ignite_scheduler.control.commands import StartGang
from ignite_scheduler.cost import evaluate, straight
from ignite_scheduler.model import (
    Batch,
    Checkpointing,
    Cluster,
    Device,
    Job,
    Layer,
    LayerInput,
    LayerTimes,
    LinkRule,
    Node,
    Optimizer,
    Plan,
    Profile,
    QueueTerms,
    Reference,
    Resources,
)
from ignite_scheduler.policy.candidates import candidates_of_plans
from ignite_scheduler.policy.pools import pools_of

_NAMES = ("linear0", "linear1", "head")


def small_job(name: str = "rows", *, steps: int = 6, every: int | None = 2, max_devices: int = 2, **terms) -> Job:
    """A job of ``steps`` steps of 8 rows, with a checkpoint after each ``every``."""
    return Job(
        name=name,
        model=Reference(zoo="mlp"),
        data=Reference(zoo="synthetic_rows"),
        batch=Batch(total=8, micro=4),
        steps=steps,
        optimizer=Optimizer(name="adamw", lr=1e-3),
        checkpoint=Checkpointing(every=every),
        resources=Resources(max_devices=max_devices),
        queue=QueueTerms(**terms),
    )


def small_profile(seconds: float = 0.001) -> Profile:
    """Layers of that perceptron; ``seconds`` for a forward of one sample."""
    times = {"core": {1: LayerTimes(forward=seconds, backward=2 * seconds)}}
    layers = tuple(
        Layer(
            name=name,
            parameter_bytes=20_000.0,
            output_bytes=256.0,
            activation_bytes=512.0,
            times=times,
            inputs=(LayerInput(source=before),),
        )
        for before, name in zip(("input", *_NAMES), _NAMES, strict=False)
    )
    return Profile(name="rows", precision="fp32", reference="core", layers=layers)


def small_cluster(*speeds: float) -> Cluster:
    """One node of emulated devices with these speeds and a link of 1 Gbit/s between each two."""
    devices = tuple(
        Device(id=f"lab/core-{i}", node="lab", kind="core", memory=1e9, speed=speed)
        for i, speed in enumerate(speeds or (0.5, 0.5))
    )
    links = (LinkRule(bandwidth=1.25e8, latency=1e-4),)
    return Cluster(name="lab", nodes=(Node(name="lab", devices=devices),), links=links)


def small_plan(job: Job, cluster: Cluster, split: tuple[int, ...] = (2, 1)) -> Plan:
    """That job on the cluster's first devices."""
    devices = tuple(device.id for device in cluster.devices[: len(split)])
    choice = straight(split=split, devices=devices, microbatches=(4, 4), schedule="1f1b")
    return evaluate(job, small_profile(), cluster, choice)


def start_of(job: Job, cluster: Cluster, *, epoch: int = 1, saved: float = 0.0, **plan) -> StartGang:
    """The command that starts the job by such a plan."""
    chosen = small_plan(job, cluster, **plan)
    (candidate,) = candidates_of_plans((chosen,), cluster, pools_of(cluster))
    return StartGang(job_id=job.name, epoch=epoch, candidate=candidate, device_ids=chosen.device_ids, saved=saved)
