"""Sailor's files: layer times, sizes, link models and measured plans.

A directory holds ``compute/MODEL/GPU.json`` (microbatch → tensor-parallel degree → layer → [forward s, backward s,
update s]), ``memory/MODEL.json`` (degree → layer → sizes for one sample on one device of the group), link models in
``network/`` and plans in ``measured/CLUSTER/*.json``. Nothing here knows a plan, a cluster or a GPU by name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import TypeAdapter

from ignite_scheduler.cost import BandwidthCurve, LayerSeconds, layer_seconds
from ignite_scheduler.errors import InputError
from ignite_scheduler.formats.foreign import shapes
from ignite_scheduler.formats.shapes.check import checked
from ignite_scheduler.formats.source import read_source
from ignite_scheduler.model import Device, Layer, LayerInput, LayerTimes, Profile

MEGABYTE = 1e6
MOST_MICROBATCHES = 100_000
LARGEST = 1e30  # no figure that was measured is larger

_TIMES: TypeAdapter[Any] = TypeAdapter(shapes.Sailor)
_SIZES: TypeAdapter[Any] = TypeAdapter(shapes.SailorMemory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One copy of a stage: a tensor-parallel group of ``degree`` GPUs of one kind, which acts as one device."""

    gpu: str
    zone: str
    degree: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A plan that was run. ``stages[s]`` = (its layers, its replicas); seconds and bytes, None where not recorded."""

    name: str
    cluster: str
    stages: tuple[tuple[tuple[int, ...], tuple[Replica, ...]], ...]
    micro: int
    batch: int
    step: float | None
    reduction: float | None
    peak: float | None

    @property
    def num_layers(self) -> int:
        """Layers of the model."""
        return sum(len(layers) for layers, _ in self.stages)


def read_json(path: Path) -> Any:
    """What the file holds; InputError says what is wrong with it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (ValueError, OSError) as error:
        raise InputError(f"{path}: expected a JSON document ({error})") from None


def read_plan(path: Path) -> Measured:
    """The plan in a file, with what was measured.

    Raises
    ------
    InputError
        The file is no such plan; says which part.
    """
    document = read_json(path)
    try:
        pipelines = document["pipeline_list"]
        if len(pipelines) != 1:
            raise ValueError(f"found {len(pipelines)}; unlike pipelines side by side are not predicted")
        (pipeline,) = pipelines
        layers = [tuple(int(layer) for layer in stage) for stage in pipeline["layers_per_stage"]]
        groups = [tuple(_replica(group) for group in stage) for stage in pipeline["tmp_per_stage"]]
        plan = Measured(
            name=path.stem.removeprefix("plan_config_"),
            cluster=path.parent.name,
            stages=tuple(zip(layers, groups, strict=True)),
            micro=int(document["mbs"]),
            batch=int(document["gbs"]),
            step=_measured(document, "real"),
            reduction=_measured(document, "red_grads"),
            peak=_measured(document, "max_mem"),
        )
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise InputError(
            f"{path}: expected one pipeline with layers_per_stage, tmp_per_stage, mbs and gbs ({error!r})"
        ) from None
    if plan.micro < 1 or plan.batch < 1 or not all(layers and replicas for layers, replicas in plan.stages):
        raise InputError(f"{path}: expected mbs and gbs of 1 or more, and layers and replicas in each stage")
    if plan.batch > MOST_MICROBATCHES * plan.micro:
        raise InputError(
            f"{path}: expected at most {MOST_MICROBATCHES} microbatches, found {plan.batch / plan.micro:g}"
        )
    listed = [layer for layers, _ in plan.stages for layer in layers]
    if listed != list(range(len(listed))):
        raise InputError(f"{path}: expected each layer once, from 0 on in the order of the stages")
    if plan.step == 0:
        raise InputError(f"{path}: expected 'real' above 0, found 0")
    return plan


def _replica(group: Any) -> Replica:
    members, degree = group
    kinds = {(str(gpu), str(zone)) for gpu, _, zone in members}
    if len(kinds) != 1:
        raise ValueError(f"a tensor-parallel group of one kind in one zone, not {sorted(kinds)}")
    ((gpu, zone),) = kinds
    return Replica(gpu=gpu, zone=zone, degree=int(degree))


def _measured(document: Mapping[str, Any], key: str) -> float | None:
    value = document.get(key)
    if value is None:
        return None
    if not isinstance(value, int | float) or not 0 <= value < LARGEST or 0 < value < 1 / LARGEST:
        raise ValueError(f"{key}: expected a figure of at least 0, found {value!r}")
    return float(value)


def read_checked(path: Path, shape: TypeAdapter[Any]) -> dict[str, Any]:
    """A file of times or sizes as it stands; InputError where it is not of that shape."""
    source = read_source(path)
    checked(shape.validate_python, source)
    found: dict[str, Any] = source.data
    return found


class Sailor:
    """A directory of such files. Everything is read when it is first asked for.

    ``model`` is the one that all plans train, where their folders do not say.
    """

    def __init__(self, root: Path, model: str | None = None) -> None:
        self.root, self.model = root, model
        self._profiles: dict[tuple[str, int], Profile] = {}
        self._read_sizes: dict[str, dict[str, Any]] = {}
        self._documents: dict[tuple[str, str, int], dict[str, Mapping[str, Any]]] = {}

    def plans(self) -> list[Path]:
        """Files of measured plans, in order of their names."""
        return sorted((self.root / "measured").glob("*/*.json"))

    @cached_property
    def models(self) -> dict[str, dict[str, Any]]:
        """Model → GPU → its file of times."""
        folders = sorted(path for path in (self.root / "compute").glob("*") if path.is_dir())
        return {
            folder.name: {path.stem: read_checked(path, _TIMES) for path in sorted(folder.glob("*.json"))}
            for folder in folders
        }

    def model_of(self, plan: Measured) -> str:
        """The model that a plan trains: the one given, that of its folder (``CLUSTER-MODEL``), or the only one of so
        many layers."""
        if self.model is not None and self.model not in self.models:
            raise InputError(f"no model {self.model!r}; there are {', '.join(self.models) or 'none'}")
        named = [model for model in self.models if self.model == model or plan.cluster.endswith(f"-{model}")]
        fitting = [model for model in named or self.models if self.num_layers(model) == plan.num_layers]
        if len(fitting) != 1:
            known = ", ".join(f"{model} ({self.num_layers(model)} layers)" for model in self.models)
            raise InputError(f"which model of {plan.num_layers} layers is this? there are {known or 'none'}")
        return fitting[0]

    def num_layers(self, model: str) -> int:
        """Layers of a model, the embedding and the head included."""
        return len(next(iter(self._sizes(model).values()), ()))

    def _sizes(self, model: str) -> dict[str, Any]:
        """Degree → layer → sizes; a file is read and checked once."""
        if model not in self._read_sizes:
            self._read_sizes[model] = read_checked(self.root / "memory" / f"{model}.json", _SIZES)
        return self._read_sizes[model]

    def profile(self, model: str, degree: int) -> Profile:
        """The model as one member of a tensor-parallel group of that degree holds it; kinds are names of GPUs."""
        key = (model, degree)
        if key not in self._profiles:
            self._profiles[key] = self._read_profile(model, degree)
        return self._profiles[key]

    def _read_profile(self, model: str, degree: int) -> Profile:
        path = self.root / "memory" / f"{model}.json"
        sizes = self._sizes(model).get(str(degree))
        if sizes is None:
            raise InputError(f"{path}: there are no sizes for tensor-parallel degree {degree}")
        if missing := [index for index in range(len(sizes)) if str(index) not in sizes]:
            raise InputError(f"{path}: there are no sizes of layer {missing[0]} for tensor-parallel degree {degree}")
        layers = []
        for index in range(len(sizes)):
            size = sizes[str(index)]
            times = {gpu: self._times(document, degree, index) for gpu, document in self.models[model].items()}
            layers.append(
                Layer(
                    name=str(index),
                    parameter_bytes=size["params_bytes"],
                    output_bytes=size["act_output_bytes"],
                    activation_bytes=size["act_mem_bytes"],
                    times={gpu: found for gpu, found in times.items() if found},
                    inputs=(LayerInput(source="input" if index == 0 else str(index - 1)),),
                )
            )
        return Profile(name=model, precision="fp32", reference=None, layers=tuple(layers))

    @staticmethod
    def _times(document: Mapping[str, Any], degree: int, index: int) -> dict[int, LayerTimes]:
        """Times by samples; a time above that of a larger microbatch is lowered to it.

        More samples never take less time: a small microbatch that was measured slower shows the host's launches, not
        the GPU's work.
        """
        found: dict[int, LayerTimes] = {}
        forward = backward = math.inf
        measured_sizes = [int(size) for size in document if str(index) in document[size].get(str(degree), {})]
        for samples in sorted(measured_sizes, reverse=True):
            measured = document[str(samples)][str(degree)][str(index)]
            forward, backward = min(forward, measured[0]), min(backward, measured[1])
            found[samples] = LayerTimes(forward=forward, backward=backward)
        return found

    def seconds(self, model: str, replica: Replica, layer: int, samples: int) -> LayerSeconds:
        """Seconds of a layer for a microbatch on a replica."""
        device = Device(id=replica.gpu, node=replica.gpu, kind=replica.gpu, memory=math.inf)
        self._document(model, replica)
        found = layer_seconds(self.profile(model, replica.degree), layer, device, samples)
        assert found is not None, "a document of the GPU has times of each layer"
        return found

    def _document(self, model: str, replica: Replica) -> dict[str, Mapping[str, Any]]:
        """Samples → layer → times of a replica.

        Raises
        ------
        InputError
            The GPU, or groups of that many of it, were not measured; says what was.
        """
        key = (model, replica.gpu, replica.degree)
        if key not in self._documents:
            self._documents[key] = self._read_document(model, replica)
        return self._documents[key]

    def _read_document(self, model: str, replica: Replica) -> dict[str, Mapping[str, Any]]:
        known = self.models[model]
        if replica.gpu not in known:
            raise InputError(f"no times of {model} on {replica.gpu}; there are files for {', '.join(known)}")
        degree = str(replica.degree)
        found = {size: of_degree[degree] for size, of_degree in known[replica.gpu].items() if degree in of_degree}
        if not found:
            raise InputError(f"no times of {model} on {replica.gpu} with tensor-parallel degree {degree}")
        for size, times in found.items():
            if missing := [layer for layer in range(self.num_layers(model)) if str(layer) not in times]:
                raise InputError(
                    f"no times of layer {missing[0]} of {model} on {replica.gpu} with tensor-parallel degree {degree} "
                    f"for {size} samples"
                )
        return found

    def raw(self, model: str, replica: Replica, layers: Sequence[int]) -> dict[int, float]:
        """Seconds of both passes of some layers as they stand in the file, by samples."""
        document = self._document(model, replica)
        return {
            int(size): sum(sum(times[str(layer)][:2]) for layer in layers)
            for size, times in sorted(document.items(), key=lambda item: int(item[0]))
        }

    def update(self, model: str, replica: Replica, layer: int) -> float:
        """Seconds of the optimizer's update, which does not depend on samples: the median over all measurements."""
        return median(times[str(layer)][2] for times in self._document(model, replica).values())

    @cached_property
    def _links(self) -> tuple[Mapping[str, Any], ...]:
        names = ("multizone_bandwidths_het.json", "multizone_bandwidths.json")
        return tuple(read_json(path) for name in names if (path := self.root / "network" / name).exists())

    @cached_property
    def _inside(self) -> Mapping[str, Any]:
        return read_json(self.root / "network" / "intra_node_bandwidths.json")

    def link(self, sender: Replica, receiver: Replica) -> BandwidthCurve:
        """The link between the nodes of two replicas when all members of the smaller one use it at once.

        A pair that was not measured is looked up the other way round, then with as many members on both sides, and
        within a zone it is the slower one of the two kinds' own links: a node's network port is its own.
        """
        fewer = min(sender.degree, receiver.degree)
        ends = [(sender, receiver), (replace(sender, degree=fewer), replace(receiver, degree=fewer))]
        for pair in ends:
            for a, b in (pair, pair[::-1]):
                if (found := self._pair(a, b)) is not None:
                    return found
        own = [found for end in ends[1] if (found := self._pair(end, end)) is not None]
        if sender.zone != receiver.zone or len(own) < 2:
            raise InputError(
                f"no link model from {sender.degree} {sender.gpu} in {sender.zone} "
                f"to {receiver.degree} {receiver.gpu} in {receiver.zone}"
            )
        return min(own, key=lambda curve: curve.limit)

    def _pair(self, a: Replica, b: Replica) -> BandwidthCurve | None:
        for document in self._links:
            try:
                return _curve(document[a.zone][a.gpu][str(a.degree)][b.zone][b.gpu][str(b.degree)])
            except KeyError:
                continue
            except (TypeError, ValueError, OverflowError) as error:
                raise InputError(f"a link of {a.gpu} in {a.zone} to {b.gpu} in {b.zone} is no fit ({error})") from None
        return None

    def inside(self, replica: Replica) -> BandwidthCurve:
        """The links among the members of a replica, all sending at once."""
        try:
            return _curve(self._inside[replica.gpu][str(replica.degree)])
        except KeyError:
            raise InputError(f"no link model within a node of {replica.degree} {replica.gpu}") from None
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"the link within a node of {replica.degree} {replica.gpu} is no fit ({error})") from None


def _curve(entry: Any) -> BandwidthCurve:
    """GB/s as a·x² + b·x + c of x = log2(megabytes), and the most that was measured, in bytes/s.

    The fit is used from 1 MB on (below, the polynomial leaves what a link can do) and up to its vertex where it falls
    again, which no link does.
    """
    (a, b, c), limit = entry
    vertex = 2.0 ** min(-b / (2 * a), 40.0) if a < 0 < b else 2.0**40
    return BandwidthCurve(
        coefficients=(a * 1e9, b * 1e9, c * 1e9),
        unit=MEGABYTE,
        smallest=MEGABYTE,
        largest=max(vertex, 1.0) * MEGABYTE,
        limit=float(limit),
    )


def neighbours(members: Sequence[Replica]) -> list[tuple[Replica, Replica]]:
    """Each member of a ring with the next one."""
    return [*pairwise(members), (members[-1], members[0])] if len(members) > 1 else []
