"""``ignite/observation/v1`` ↔ :class:`~ignite_scheduler.cost.observation.Observation`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ignite_scheduler.formats.calibration import seconds_entry
from ignite_scheduler.formats.source import Place, Source, read_source

if TYPE_CHECKING:
    from ignite_scheduler.cost.observation import EdgeObservation, Observation, Promised, Sample, StageObservation
    from ignite_scheduler.formats.shapes.calibration import (
        EdgeObservationShape,
        ObservationShape,
        PromisedShape,
        SampleShape,
        StageObservationShape,
    )

OBSERVATION_SCHEMA: Final = "ignite/observation/v1"


def load_observation(path: str | Path) -> Observation:
    """The observation in the file at ``path``.

    Raises
    ------
    NotFoundError
        There is no such file.
    DocumentError
        The file is wrong; the message has the line, the field and what to do.
    """
    return _observation(read_source(path))


def parse_observation(data: Mapping[str, Any]) -> Observation:
    """The observation of a document that is plain data already, such as :func:`observation_document` gives."""
    return _observation(Source(data=data))


# --- writing ----------------------------------------------------------------------------------------------------------


def observation_document(observation: Observation) -> dict[str, Any]:
    """The document that reads back as ``observation``."""
    document: dict[str, Any] = {
        "schema": OBSERVATION_SCHEMA,
        "job": observation.job,
        "model": observation.model,
        "schedule": observation.schedule,
        "microbatches": list(observation.microbatches),
        "stages": [_stage_entry(stage) for stage in observation.stages],
        "edges": [_edge_entry(edge) for edge in observation.edges],
        "reductions": [{"stages": list(each.stages), "planned_s": each.planned} for each in observation.reductions],
        "planned_step_s": observation.planned_step,
        "step": _sample_entry(observation.step),
        "startup_s": observation.startup,
        "checkpoints": [{"bytes": num_bytes, "save_s": seconds} for num_bytes, seconds in observation.checkpoints],
        "beside_others": observation.beside_others,
    }
    if observation.others:
        document["others"] = [_stage_entry(stage) for stage in observation.others]
    if observation.promised is not None:
        document["promised"] = _promised_entry(observation.promised)
    if observation.provenance:
        document["provenance"] = dict(observation.provenance)
    return document


def _sample_entry(sample: Sample | None) -> dict[str, Any] | None:
    return None if sample is None else {"median_s": sample.median, "spread": sample.spread, "count": sample.count}


def _stage_entry(stage: StageObservation) -> dict[str, Any]:
    return {
        "device": stage.device,
        "kind": stage.kind,
        "speed": stage.speed,
        "num_sharing": stage.num_sharing,
        "forward_s": list(stage.forward),
        "backward_s": list(stage.backward),
        "update_s": stage.update,
        "measured_forward": _sample_entry(stage.measured_forward),
        "measured_backward": _sample_entry(stage.measured_backward),
        "measured_update": _sample_entry(stage.measured_update),
        "planned_memory_bytes": stage.planned_memory,
        "peak_memory_bytes": stage.peak_memory,
    }


def _edge_entry(edge: EdgeObservation) -> dict[str, Any]:
    return {
        "source": edge.source,
        "target": edge.target,
        "kind": edge.kind,
        "wire": edge.wire,
        "bytes": edge.bytes,
        "planned_s": list(edge.planned),
        "measured": _sample_entry(edge.measured),
    }


def _promised_entry(promised: Promised) -> dict[str, Any]:
    return {
        "calibration": promised.calibration,
        "step": seconds_entry(promised.step),
        "finish_low_s": promised.finish_low,
        "finish_high_s": promised.finish_high,
        "finished_s": promised.finished,
        "kept": promised.kept,
    }


# --- reading ----------------------------------------------------------------------------------------------------------


def _observation(source: Source) -> Observation:
    from ignite_scheduler.cost.observation import Observation, ReductionObservation
    from ignite_scheduler.formats.shapes.calibration import ObservationShape
    from ignite_scheduler.formats.shapes.check import check

    shape = check(ObservationShape, source)
    _check_counts(source, shape)
    return Observation(
        job=shape.job,
        model=shape.model,
        schedule=shape.schedule,
        microbatches=tuple(shape.microbatches),
        stages=tuple(map(_stage, shape.stages)),
        edges=tuple(map(_edge, shape.edges)),
        reductions=tuple(
            ReductionObservation(stages=tuple(each.stages), planned=each.planned_s) for each in shape.reductions
        ),
        others=tuple(map(_stage, shape.others)),
        planned_step=shape.planned_step_s,
        step=_measured(shape.step),
        startup=shape.startup_s,
        checkpoints=tuple((each.bytes, each.save_s) for each in shape.checkpoints),
        beside_others=shape.beside_others,
        promised=None if shape.promised is None else _promised(shape.promised),
        provenance=shape.provenance,
    )


def _check_counts(source: Source, shape: ObservationShape) -> None:
    """Each stage and edge speaks of each microbatch; edges and reductions speak of stages that there are."""
    wanted, num_stages = len(shape.microbatches), len(shape.stages)
    rows: list[tuple[Place, list[float]]] = []
    for index, stage in enumerate(shape.stages):
        rows += [(("stages", index, "forward_s"), stage.forward_s), (("stages", index, "backward_s"), stage.backward_s)]
    rows += [(("edges", index, "planned_s"), edge.planned_s) for index, edge in enumerate(shape.edges)]
    for index, stage in enumerate(shape.others):
        rows += [(("others", index, "forward_s"), stage.forward_s), (("others", index, "backward_s"), stage.backward_s)]
    for place, values in rows:
        if len(values) != wanted:
            raise source.error(place, f"expected a number for each of the {wanted} microbatches, found {len(values)}")
    ends: list[tuple[Place, int]] = []
    for index, edge in enumerate(shape.edges):
        ends += [(("edges", index, "source"), edge.source), (("edges", index, "target"), edge.target)]
    for index, each in enumerate(shape.reductions):
        ends += [(("reductions", index, "stages", position), end) for position, end in enumerate(each.stages)]
    for place, end in ends:
        if end >= num_stages:
            raise source.error(place, f"expected a stage from 0 to {num_stages - 1}, found {end}")
    _check_pairs(source, shape)


def _check_pairs(source: Source, shape: ObservationShape) -> None:
    """What is sent forward between two stages has its gradient back, once."""
    found: set[tuple[str, int, int]] = set()
    for index, edge in enumerate(shape.edges):
        key = edge.kind, edge.source, edge.target
        if edge.source == edge.target:
            raise source.error(("edges", index), f"expected two stages, found {edge.source} twice")
        if key in found:
            text = f"messages {edge.kind} from stage {edge.source} to {edge.target} are there twice; keep one"
            raise source.error(("edges", index), text)
        found.add(key)
    for index, edge in enumerate(shape.edges):
        back = "B" if edge.kind == "F" else "F"
        if (back, edge.target, edge.source) not in found:
            text = f"expected messages {back} from stage {edge.target} to {edge.source} too, found none"
            raise source.error(("edges", index), text)


def _measured(shape: SampleShape) -> Sample:
    from ignite_scheduler.cost.observation import Sample

    return Sample(median=shape.median_s, spread=shape.spread, count=shape.count)


def _sample(shape: SampleShape | None) -> Sample | None:
    return None if shape is None else _measured(shape)


def _stage(shape: StageObservationShape) -> StageObservation:
    from ignite_scheduler.cost.observation import StageObservation

    return StageObservation(
        device=shape.device,
        kind=shape.kind,
        speed=shape.speed,
        num_sharing=shape.num_sharing,
        forward=tuple(shape.forward_s),
        backward=tuple(shape.backward_s),
        update=shape.update_s,
        measured_forward=_sample(shape.measured_forward),
        measured_backward=_sample(shape.measured_backward),
        measured_update=_sample(shape.measured_update),
        planned_memory=shape.planned_memory_bytes,
        peak_memory=shape.peak_memory_bytes,
    )


def _edge(shape: EdgeObservationShape) -> EdgeObservation:
    from ignite_scheduler.cost.observation import EdgeObservation

    return EdgeObservation(
        source=shape.source,
        target=shape.target,
        kind=shape.kind,
        wire=shape.wire,
        bytes=shape.bytes,
        planned=tuple(shape.planned_s),
        measured=_sample(shape.measured),
    )


def _promised(shape: PromisedShape) -> Promised:
    from ignite_scheduler.cost.calibration import Quantiles
    from ignite_scheduler.cost.observation import Promised

    return Promised(
        calibration=shape.calibration,
        step=Quantiles(low=shape.step.low_s, middle=shape.step.middle_s, high=shape.step.high_s),
        finish_low=shape.finish_low_s,
        finish_high=shape.finish_high_s,
        finished=shape.finished_s,
    )
