"""``job.yaml`` ↔ :class:`~ignite_scheduler.model.Job`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_scheduler.formats.quantities import duration_text
from ignite_scheduler.formats.source import Place, Source, read_source
from ignite_scheduler.model import (
    Batch,
    Checkpointing,
    Evaluation,
    Job,
    LearningRateSchedule,
    MemoryFactors,
    Optimizer,
    PipelineChoice,
    QueueTerms,
    Reference,
    Resources,
)

if TYPE_CHECKING:
    from ignite_scheduler.formats.shapes.job import (
        DataShape,
        EvaluationShape,
        FactorsShape,
        ModelShape,
        OptimizerShape,
        PipelineShape,
        QueueShape,
        WorkShape,
    )


def load_job(path: str | Path) -> Job:
    """The job that the file at ``path`` describes; a relative path of a profile is resolved against the file's folder.

    Raises
    ------
    NotFoundError
        There is no such file.
    DocumentError
        The file is wrong; the message has the line, the field and what to do.

    Notes
    -----
    A job may leave out both ``steps`` and ``epochs``: it can be planned, but neither simulated nor run.
    """
    return _job(read_source(path))


def parse_job(data: Mapping[str, Any], *, folder: str | Path = "") -> Job:
    """The job of a document that is plain data already, such as :func:`job_document` gives."""
    return _job(Source(data=data, folder=Path(folder)))


def job_document(job: Job) -> dict[str, Any]:
    """The document that reads back as ``job``; keys with their default value are left out."""
    document: dict[str, Any] = {
        "version": 1,
        "name": job.name,
        "model": _reference_entry(job.model),
        "data": job.data and _data_entry(job.data),
        "loss": _unless(job.loss, "cross_entropy"),
        "seed": job.seed or None,
        "steps": job.steps,
        "epochs": job.epochs,
        "batch": {"global": job.batch.total, "micro": "auto" if job.batch.micro is None else job.batch.micro},
        "optimizer": _optimizer_entry(job.optimizer),
        "gradient_clip": job.gradient_clip,
        "lr_schedule": {"name": job.lr_schedule.name, "warmup": job.lr_schedule.warmup},
        "evaluate": job.evaluate and {"every": job.evaluate.every, "data": _data_entry(job.evaluate.data)},
        "precision": job.precision,
        "resources": _resources_entry(job.resources),
        "pipeline": _pipeline_entry(job.pipeline),
        "checkpoint": _pruned(
            {"every": job.checkpoint.every and f"{job.checkpoint.every} steps", "keep": job.checkpoint.keep}
        ),
        "queue": queue_entry(job.queue),
        "output": job.output,
    }
    return _pruned(document)


# --- reading --------------------------------------------------------------------------------------------------------


def _job(source: Source) -> Job:
    from ignite_scheduler.formats.shapes.check import check
    from ignite_scheduler.formats.shapes.job import JobShape

    return job_from_shape(source, check(JobShape, source))


def job_from_shape(source: Source, shape: WorkShape) -> Job:
    """The job of a shape that is valid key by key; what one key asks of another is checked here."""
    if shape.steps is not None and shape.epochs is not None:
        raise source.error(("epochs",), "expected one of 'steps' and 'epochs', found both; keep one")
    return Job(
        name=shape.name,
        model=_model(source, shape.model),
        batch=Batch(total=shape.batch.total, micro=None if shape.batch.micro == "auto" else shape.batch.micro),
        data=None if shape.data is None else _data(source, ("data",), shape.data),
        loss=shape.loss,
        seed=shape.seed,
        steps=shape.steps,
        epochs=shape.epochs,
        optimizer=_optimizer(source, shape.optimizer),
        gradient_clip=shape.gradient_clip,
        lr_schedule=LearningRateSchedule(name=shape.lr_schedule.name, warmup=shape.lr_schedule.warmup),
        evaluate=None if shape.evaluate is None else _evaluation(source, shape.evaluate),
        precision=shape.precision,
        resources=Resources(
            any_of=tuple(shape.resources.any_of or ()),
            max_devices=shape.resources.max_devices,
            exclude=tuple(shape.resources.exclude),
        ),
        pipeline=_pipeline(source, shape.pipeline),
        checkpoint=Checkpointing(every=shape.checkpoint.every, keep=shape.checkpoint.keep),
        queue=queue_terms(shape.queue),
        output=shape.output,
    )


def _model(source: Source, shape: ModelShape) -> Reference:
    if shape.zoo is not None and shape.module is not None:
        raise source.error(("model", "module"), "expected one of 'zoo' and 'module', found both; keep one")
    if shape.zoo is None and shape.module is None and shape.profile is None:
        raise source.error(("model",), "expected 'zoo', 'module' or 'profile', to say which model; found none of them")
    if shape.args and shape.zoo is None and shape.module is None:
        raise source.error(("model", "args"), "arguments need a builder: give 'zoo' or 'module' beside them")
    profile = shape.profile
    if profile is not None:
        profile = os.path.normpath(source.folder / profile)
    return Reference(zoo=shape.zoo, module=shape.module, profile=profile, args=shape.args)


def _data(source: Source, place: Place, shape: DataShape) -> Reference:
    from ignite_scheduler.formats.shapes.job import attribute

    name = shape.dataset if shape.dataset is not None else shape.zoo
    if name is None or (shape.dataset is not None and shape.zoo is not None):
        found = "none" if name is None else "both"
        raise source.error(place, f"expected 'dataset' (or 'zoo'), to say which data; found {found}")
    if shape.zoo is not None or ":" not in name:
        return Reference(zoo=name, args=shape.args)
    try:
        return Reference(module=attribute(name), args=shape.args)
    except ValueError as error:
        raise source.error((*place, "dataset"), str(error)) from None


def _evaluation(source: Source, shape: EvaluationShape) -> Evaluation:
    return Evaluation(every=shape.every, data=_data(source, ("evaluate", "data"), shape.data))


def _factors(shape: FactorsShape) -> MemoryFactors:
    return MemoryFactors(weights=shape.weights, gradients=shape.gradients, optimizer=shape.optimizer)


def _optimizer(source: Source, shape: OptimizerShape) -> Optimizer:
    from ignite_scheduler.formats.shapes.job import OPTIMIZER_OPTIONS

    known = OPTIMIZER_OPTIONS[shape.name]
    options: dict[str, Any] = {}
    for key in ("weight_decay", "momentum", "dampening", "nesterov", "betas", "eps", "amsgrad"):
        value = getattr(shape, key)
        if value is None:
            continue
        if key not in known:
            message = f"{shape.name!r} has no option {key!r}; its options are {', '.join(('lr', *known))}"
            raise source.error(("optimizer", key), message)
        options[key] = value
    memory = None if shape.memory is None else _factors(shape.memory)
    return Optimizer(name=shape.name, lr=shape.lr, memory=memory, options=options)


def _pipeline(source: Source, shape: PipelineShape) -> PipelineChoice:
    split = shape.split if shape.split == "auto" else tuple(shape.split)
    if shape.stages != "auto" and split != "auto" and len(split) != shape.stages:
        raise source.error(
            ("pipeline", "split"),
            f"pipeline.stages is {shape.stages} but pipeline.split has {len(split)} stages: leave one of them out",
        )
    return PipelineChoice(
        stages=shape.stages,
        schedule=shape.schedule,
        split=split,
        replicas=shape.replicas,
        recompute=shape.recompute,
        shard=shape.shard,
        offload=shape.offload,
    )


def queue_terms(shape: QueueShape) -> QueueTerms:
    """The terms of a valid ``queue`` entry."""
    return QueueTerms(
        priority=shape.priority,
        weight=shape.weight,
        deadline=shape.deadline,
        max_time=shape.max_time,
        budget=shape.budget,
        preemptible=shape.preemptible,
    )


# --- writing --------------------------------------------------------------------------------------------------------


def _unless(value: Any, default: Any) -> Any:
    return None if value == default else value


def _pruned(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if value is not None and value != {}}


def _reference_entry(reference: Reference) -> dict[str, Any]:
    entry = {"zoo": reference.zoo, "module": reference.module, "profile": reference.profile}
    return _pruned(entry | {"args": dict(reference.args)})


def _data_entry(reference: Reference) -> dict[str, Any]:
    entry = {"dataset": reference.module, "zoo": reference.zoo}
    return _pruned(entry | {"args": dict(reference.args)})


def _optimizer_entry(optimizer: Optimizer) -> dict[str, Any]:
    memory = optimizer.memory
    factors = memory and {"weights": memory.weights, "gradients": memory.gradients, "optimizer": memory.optimizer}
    return _pruned({"name": optimizer.name, "lr": optimizer.lr, "memory": factors, **optimizer.options})


def _resources_entry(resources: Resources) -> dict[str, Any]:
    any_of = [dict(request) for request in resources.any_of]
    exclude = list(resources.exclude)
    return _pruned({"any_of": any_of or None, "max_devices": resources.max_devices, "exclude": exclude or None})


def _pipeline_entry(choice: PipelineChoice) -> dict[str, Any]:
    return {
        "stages": choice.stages,
        "schedule": choice.schedule,
        "split": choice.split if choice.split == "auto" else list(choice.split),
        "replicas": choice.replicas,
        "recompute": choice.recompute,
        "shard": choice.shard,
        "offload": choice.offload,
    }


def queue_entry(terms: QueueTerms) -> dict[str, Any]:
    """The ``queue`` entry that reads back as ``terms``."""
    return _pruned(
        {
            "priority": terms.priority,
            "weight": terms.weight,
            "deadline": None if terms.deadline is None else duration_text(terms.deadline),
            "max_time": None if terms.max_time is None else duration_text(terms.max_time),
            "budget": terms.budget,
            "preemptible": terms.preemptible,
        }
    )
