"""Is a profile that of the model that a job names? Asked before anything is planned by it or started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Job, Profile, Reference


def check_reference(job: Job, profile: Profile) -> None:
    """Compare the model that the profile says it was measured on with the job's, by name and arguments; needs no torch.

    Raises
    ------
    InputError
        They differ. A job without a model of its own, or a profile that was not measured here, does not tell.
    """
    measured = _measured_on(profile)
    if (job.model.zoo is None and job.model.module is None) or measured is None:
        return
    if _named(job.model) != _named(measured):
        raise InputError(
            f"job {job.name!r}: profile {profile.name!r} was measured on another model: expected "
            f"{_text(job.model)}, found {_text(measured)}; {_anew(job)}"
        )


def check_structure(job: Job, profile: Profile) -> None:
    """Compare the layers, sizes and options of the job's model itself with those that were measured.

    Raises
    ------
    InputError
        They differ.
    ExternalError
        PyTorch is missing.
    """
    from ignite_scheduler import zoo
    from ignite_scheduler.zoo.chain import first_difference, is_stale

    model = zoo.outline(job.model, data=job.data)
    difference = first_difference(model, profile)
    if difference is not None:
        raise InputError(
            f"job {job.name!r}: profile {profile.name!r} is that of another model: {difference}; {_anew(job)}"
        )
    if is_stale(model, profile) and is_stale(zoo.build(job.model, seed=job.seed, data=job.data), profile):
        raise InputError(
            f"job {job.name!r}: profile {profile.name!r} was measured on a model of other sizes or options than the "
            f"one that will be trained; {_anew(job)}"
        )


def _measured_on(profile: Profile) -> Reference | None:
    """The model that the profile's provenance names, which may hold anything; None where it does not tell."""
    said = profile.provenance.get("model")
    if not isinstance(said, Mapping):
        return None
    zoo, module = (name if isinstance(name, str) else None for name in (said.get("zoo"), said.get("module")))
    args = said.get("args")
    return Reference(zoo=zoo, module=module, args=args if isinstance(args, Mapping) else {})


def _named(reference: Reference) -> tuple[Any, ...]:
    """What tells one model from another: its name and all arguments, defaults of the zoo included."""
    from ignite_scheduler.zoo.catalogue import MODELS

    entry = MODELS.get(reference.zoo) if reference.zoo is not None else None
    every = dict(entry.args if entry is not None else {}) | dict(reference.args)
    return reference.zoo, reference.module, {name: _listed(value) for name, value in every.items()}


def _listed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value


def _text(reference: Reference) -> str:
    args = ", ".join(f"{name}={value}" for name, value in reference.args.items())
    return f"{reference.zoo or reference.module}({args})"


def _anew(job: Job) -> str:
    return f"measure it anew: ignite profile JOB --out {job.model.profile or 'FILE'}"
