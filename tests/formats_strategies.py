"""Hypothesis strategies of the nouns that documents hold; shared by the property tests of formats."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from ignite_scheduler.cost.calibration import ANY_KIND, Calibration, CheckpointTime, KindCalibration, Quantiles
from ignite_scheduler.cost.observation import (
    EdgeObservation,
    Observation,
    Promised,
    ReductionObservation,
    Sample,
    StageObservation,
)
from ignite_scheduler.model import (
    Alternative,
    Batch,
    Bottleneck,
    Bound,
    Checkpointing,
    Cluster,
    Device,
    Evaluation,
    Infeasible,
    Job,
    Layer,
    LayerInput,
    LayerTimes,
    LearningRateSchedule,
    LinkRule,
    MemoryFactors,
    Node,
    Optimizer,
    PipelineChoice,
    Plan,
    Prediction,
    Profile,
    QueueTerms,
    Reason,
    Reference,
    Resources,
    Share,
    Stage,
    Unused,
)

positive = st.floats(min_value=1e-12, max_value=1e18)
not_negative = st.just(0.0) | positive
share = st.floats(min_value=0.0, max_value=1.0)
shares = st.floats(min_value=1e-6, max_value=1.0)
names = st.text("abcXYZ019.-_é", min_size=1, max_size=6)
texts = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), min_size=1, max_size=12).filter(
    lambda text: bool(text.strip()) and text.isprintable()
)
counts = st.integers(min_value=1, max_value=10**6)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


@st.composite
def devices(draw: st.DrawFn, node: str) -> Device:
    return Device(
        id=f"{node}/{draw(names)}",
        node=node,
        kind="own" + draw(names),
        memory=draw(positive),
        speed=draw(maybe(positive)),
        dtypes=draw(st.frozensets(st.sampled_from(["fp32", "fp16", "bf16", "fp8"]), min_size=1)),
        price=draw(maybe(not_negative)),
        busy_power=draw(maybe(not_negative)),
        idle_power=draw(maybe(not_negative)),
        peak_flops=tuple(sorted(draw(st.dictionaries(st.sampled_from(["fp32", "fp16", "bf16"]), positive)).items())),
        memory_bandwidth=draw(maybe(positive)),
        achievable_flops=draw(shares),
        achievable_bandwidth=draw(shares),
        launch_overhead=draw(not_negative),
        host_bandwidth=draw(maybe(positive)),
    )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    nodes = []
    for name in draw(st.lists(names, min_size=1, max_size=3, unique=True)):
        held = draw(st.lists(devices(name), min_size=1, max_size=3, unique_by=lambda device: device.id))
        nodes.append(Node(name=name, devices=tuple(held)))
    ends = [name for node in nodes for name in (node.name, *(device.id for device in node.devices))]
    links = [LinkRule(bandwidth=draw(positive), latency=draw(not_negative), shared=draw(st.booleans()))]
    if draw(st.booleans()):
        links = []
    links += draw(st.lists(link_rules(ends, [node.name for node in nodes]), min_size=0 if links else 1, max_size=3))
    return Cluster(name=draw(texts), nodes=tuple(nodes), links=tuple(links), currency=draw(maybe(names)))


@st.composite
def link_rules(draw: st.DrawFn, ends: list[str], nodes: list[str]) -> LinkRule:
    within, both_ways = draw(st.sampled_from([(True, True), (False, True), (False, False)]))
    sources = draw(st.frozensets(st.sampled_from(nodes if within else ends), min_size=1))
    targets = sources if within else draw(st.frozensets(st.sampled_from(ends), min_size=1))
    return LinkRule(
        bandwidth=draw(positive),
        latency=draw(not_negative),
        sources=sources,
        targets=targets,
        both_ways=both_ways,
        within=within,
        shared=draw(st.booleans()),
    )


attributes = st.sampled_from(["pkg.mod:build", "a:b", "pkg:Class.method"])
arguments = st.dictionaries(names, json_values, max_size=2)
data_references = st.builds(Reference, module=attributes, args=arguments) | st.builds(
    Reference, zoo=texts, args=arguments
)
model_references = (
    st.builds(Reference, zoo=texts, profile=maybe(st.just("/p/a.json")), args=arguments)
    | st.builds(Reference, module=attributes, profile=maybe(st.just("/p/a.json")), args=arguments)
    | st.builds(Reference, profile=st.just("/p/a.json"))
)
factors = st.builds(MemoryFactors, weights=not_negative, gradients=not_negative, optimizer=not_negative)
optimizers = st.builds(
    Optimizer,
    name=st.sampled_from(["adam", "adamw"]),
    lr=not_negative,
    memory=maybe(factors),
    options=st.fixed_dictionaries({}, optional={"weight_decay": not_negative, "betas": st.just([0.9, 0.99])}),
)
auto_flags = st.booleans() | st.just("auto")
queue_terms = st.builds(
    QueueTerms,
    priority=st.integers(-100, 100),
    weight=positive,
    deadline=maybe(not_negative),
    max_time=maybe(not_negative),
    budget=maybe(not_negative),
    preemptible=st.booleans(),
)


@st.composite
def jobs(draw: st.DrawFn, *, with_work: bool = False) -> Job:
    work = draw(st.sampled_from(["steps", "epochs"] if with_work else ["steps", "epochs", "none"]))
    split = draw(st.just("auto") | st.lists(counts, min_size=1, max_size=4).map(tuple))
    return Job(
        name=draw(names),
        model=draw(model_references),
        batch=Batch(total=draw(counts), micro=draw(maybe(counts))),
        data=draw(maybe(data_references)),
        loss=draw(st.sampled_from(["cross_entropy", "mse", "pkg.mod:loss"])),
        seed=draw(st.integers(0, 2**31)),
        **({} if work == "none" else {work: draw(counts)}),
        optimizer=draw(optimizers),
        gradient_clip=draw(maybe(positive)),
        lr_schedule=LearningRateSchedule(
            name=draw(st.sampled_from(["constant", "linear", "cosine"])), warmup=draw(st.integers(0, 1000))
        ),
        evaluate=draw(maybe(st.builds(Evaluation, every=counts, data=data_references))),
        precision=draw(st.sampled_from(["fp32", "fp16", "bf16", "auto"])),
        resources=draw(
            st.builds(
                Resources,
                any_of=st.lists(st.dictionaries(names, counts, min_size=1, max_size=2), max_size=2).map(tuple),
                max_devices=maybe(counts),
                exclude=st.lists(texts, max_size=2).map(tuple),
            )
        ),
        pipeline=PipelineChoice(
            stages="auto" if split == "auto" else len(split),
            schedule=draw(st.sampled_from(["auto", "gpipe", "1f1b"])),
            split=split,
            replicas=draw(st.just("auto") | counts),
            recompute=draw(auto_flags),
            shard=draw(auto_flags),
            offload=draw(auto_flags),
        ),
        checkpoint=Checkpointing(every=draw(maybe(counts)), keep=draw(counts)),
        queue=draw(queue_terms),
        output=draw(maybe(texts)),
    )


@st.composite
def layer_times(draw: st.DrawFn) -> LayerTimes:
    forward, of_input, of_weight = draw(not_negative), draw(not_negative), draw(not_negative)
    if draw(st.booleans()):
        return LayerTimes(forward=forward, backward=of_input)
    return LayerTimes(
        forward=forward, backward=of_input + of_weight, input_backward=of_input, weight_backward=of_weight
    )


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    found = draw(st.lists(names.filter(lambda name: name != "input"), min_size=1, max_size=6, unique=True))
    layers = []
    for index, name in enumerate(found):
        sources = draw(st.lists(st.sampled_from(["input", *found[:index]]), min_size=1, max_size=2, unique=True))
        rows = st.dictionaries(counts, layer_times(), min_size=1, max_size=2)
        layers.append(
            Layer(
                name=name,
                parameter_bytes=draw(not_negative),
                output_bytes=draw(not_negative),
                activation_bytes=draw(not_negative),
                carried_bytes=draw(not_negative),
                transient_bytes=draw(not_negative),
                workspace_bytes=draw(not_negative),
                forward_flops=draw(maybe(not_negative)),
                backward_flops=draw(maybe(not_negative)),
                times=draw(st.dictionaries(names, rows, min_size=1, max_size=2)),
                inputs=tuple(LayerInput(source=source, bytes=draw(maybe(not_negative))) for source in sources),
                update=draw(st.dictionaries(st.sampled_from(["sgd", "adamw"]), not_negative)),
            )
        )
    tied = [tuple(found[:2])] if len(found) > 1 and draw(st.booleans()) else []
    return Profile(
        name=draw(texts),
        precision=draw(st.sampled_from(["fp32", "fp16", "bf16"])),
        reference=draw(maybe(names)),
        layers=tuple(layers),
        tied=tuple(tied),
        action_overhead=draw(not_negative),
        provenance=draw(st.dictionaries(names, json_values, max_size=2)),
    )


@st.composite
def stages(draw: st.DrawFn, index: int, num_stages: int) -> Stage:
    layers = tuple(draw(st.lists(names, min_size=1, max_size=3)))
    others = [other for other in range(num_stages) if other != index]
    unlimited = st.just(float("inf"))
    shares = st.builds(Share, device=texts, samples=counts, memory=not_negative, memory_limit=not_negative | unlimited)
    return Stage(
        index=index,
        layers=layers,
        devices=tuple(draw(st.lists(shares, min_size=1, max_size=2))),
        forward=draw(not_negative),
        backward=draw(not_negative),
        in_flight=draw(counts),
        recompute=draw(st.booleans()),
        offload=draw(st.booleans()),
        optimizer_shards=draw(counts),
        update=draw(not_negative),
        allreduce=draw(not_negative),
        inputs=draw(maybe(st.lists(st.sampled_from(others), max_size=2).map(tuple) if others else st.just(()))),
        recompute_segments=tuple(draw(st.lists(st.tuples(*[st.sampled_from(layers)] * 2), max_size=2))),
    )


bottlenecks = st.builds(Bottleneck, kind=st.sampled_from(["stage", "link"]), index=st.integers(0, 9), busy=not_negative)
predictions = st.builds(
    Prediction,
    step=not_negative,
    step_low=not_negative,
    step_high=not_negative,
    samples_per_second=positive | st.just(float("inf")),
    bubble_fraction=share,
    bottleneck=bottlenecks,
    transfer_bytes=not_negative,
    duration=maybe(not_negative),
    cost=maybe(not_negative),
    energy=maybe(not_negative),
    duration_low=maybe(not_negative),
    duration_high=maybe(not_negative),
)
bounds = st.builds(
    Bound,
    step=not_negative,
    gap=not_negative | st.just(float("inf")),
    method=st.text(max_size=5),
    optimal=st.booleans(),
)
alternatives = st.builds(
    Alternative,
    devices=st.lists(texts, max_size=2).map(tuple),
    num_layers=st.lists(counts, max_size=2).map(tuple),
    schedule=names,
    num_microbatches=counts,
    step=not_negative,
    cost=maybe(not_negative),
)


reasons = st.builds(
    Reason,
    kind=st.sampled_from(["stage", "link", "allreduce", "memory", "batch"]),
    text=st.text(max_size=8),
    index=maybe(st.integers(0, 3)),
    device=maybe(texts),
    share=maybe(not_negative),
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    num_stages = draw(st.integers(1, 3))
    return Plan(
        job=draw(texts),
        schedule=draw(names),
        precision=draw(names),
        microbatches=tuple(draw(st.lists(counts, min_size=1, max_size=4))),
        stages=tuple(draw(stages(index, num_stages)) for index in range(num_stages)),
        predicted=draw(predictions),
        bound=draw(bounds),
        unused=tuple(draw(st.lists(st.builds(Unused, device=texts, reason=st.text(max_size=5)), max_size=2))),
        alternatives=tuple(draw(st.lists(alternatives, max_size=2))),
        warnings=tuple(draw(st.lists(st.text(max_size=5), max_size=2))),
        resolved=draw(st.dictionaries(names, json_values, max_size=2)),
        why=tuple(draw(st.lists(reasons, max_size=2))),
    )


infeasibles = st.builds(
    Infeasible,
    code=names,
    text=st.text(max_size=8),
    shortfall=maybe(not_negative),
    earliest_finish=maybe(not_negative),
    cures=st.lists(st.text(max_size=8), max_size=2).map(tuple),
)


quantiles = (
    st.lists(positive, min_size=3, max_size=3)
    .map(sorted)
    .map(lambda found: Quantiles(low=found[0], middle=found[1], high=found[2]))
)
ratios = st.builds(
    Quantiles, low=st.floats(0.01, 1.0), middle=st.just(1.0), high=st.floats(1.0, 100.0)
)  # a prediction lies within its own range
fractions = st.floats(min_value=1e-6, max_value=1.0)
provenances = st.dictionaries(texts, json_values, max_size=2)
kind_calibrations = st.builds(
    KindCalibration,
    rate=positive,
    launch=st.floats(-1.0, 1.0),
    contention=not_negative,
    achievable_flops=maybe(fractions),
    achievable_bandwidth=maybe(fractions),
    num_stages=st.integers(0, 10**6),
    spread=not_negative,
)
calibrations = st.builds(
    Calibration,
    kinds=st.dictionaries(names | st.just(ANY_KIND), kind_calibrations, max_size=3),
    message=not_negative,
    overlap=maybe(share),
    update=positive,
    step=not_negative,
    startup=maybe(quantiles),
    checkpoint=maybe(st.builds(CheckpointTime, base=not_negative, bandwidth=positive | st.just(math.inf))),
    residual=ratios,
    num_runs=st.integers(0, 10**6),
    provenance=provenances,
)
samples = st.builds(Sample, median=not_negative, spread=not_negative, count=counts)


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    microbatches = tuple(draw(st.lists(counts, min_size=1, max_size=3)))
    seconds = st.tuples(*[not_negative] * len(microbatches))
    stage = st.builds(
        StageObservation,
        device=texts,
        kind=names,
        speed=maybe(positive),
        num_sharing=counts,
        forward=seconds,
        backward=seconds,
        update=not_negative,
        measured_forward=maybe(samples),
        measured_backward=maybe(samples),
        measured_update=maybe(samples),
        planned_memory=maybe(not_negative),
        peak_memory=maybe(not_negative),
    )
    stages = draw(st.lists(stage, min_size=1, max_size=3))
    index = st.integers(0, len(stages) - 1)
    ends = [(source, target) for target in range(len(stages)) for source in range(target)]
    message = st.tuples(texts, not_negative, seconds, maybe(samples))
    edges = [
        EdgeObservation(
            source=source, target=target, kind=kind, wire=wire, bytes=sent, planned=planned, measured=sample
        )
        for low, high in (draw(st.sets(st.sampled_from(ends), max_size=2)) if ends else ())
        for kind, source, target in (("F", low, high), ("B", high, low))
        for wire, sent, planned, sample in (draw(message),)
    ]
    reduction = st.builds(
        ReductionObservation, stages=st.lists(index, min_size=1, max_size=3).map(tuple), planned=not_negative
    )
    promised = st.builds(
        Promised,
        calibration=maybe(texts),
        step=quantiles,
        finish_low=maybe(not_negative),
        finish_high=maybe(not_negative),
        finished=not_negative,
    )
    return Observation(
        job=draw(texts),
        model=draw(texts),
        schedule=draw(st.sampled_from(["gpipe", "1f1b"])),
        microbatches=microbatches,
        stages=tuple(stages),
        edges=tuple(edges),
        reductions=tuple(draw(st.lists(reduction, max_size=2))),
        others=tuple(draw(st.lists(stage, max_size=2))),
        planned_step=draw(positive),
        step=draw(st.builds(Sample, median=positive, spread=not_negative, count=counts)),
        startup=draw(maybe(not_negative)),
        checkpoints=tuple(draw(st.lists(st.tuples(not_negative, not_negative), max_size=2))),
        beside_others=draw(st.booleans()),
        promised=draw(maybe(promised)),
        provenance=draw(provenances),
    )
