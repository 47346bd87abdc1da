"""Learning from finished runs: their observations in, a calibration and each device's drift out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ignite_scheduler.api.markup import table
from ignite_scheduler.api.planning import read_calibration
from ignite_scheduler.api.running import drift_entry
from ignite_scheduler.errors import DocumentError, InputError, NotFoundError
from ignite_scheduler.formats import calibration_document, load_observation, observation_document, parse_calibration
from ignite_scheduler.formats.files import digest
from ignite_scheduler.formats.run_files import OBSERVATION_FILE

if TYPE_CHECKING:
    from ignite_scheduler.cost.calibration import Calibration
    from ignite_scheduler.cost.drift import Drift
    from ignite_scheduler.cost.observation import Observation

_LEARNT_FROM: Final = "observations"
"""Key of a calibration's provenance: digests of the runs that it was fitted on."""


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """What finished runs teach. Shows itself as a table in a notebook.

    ``drifts`` says how each device did against ``before``, the calibration that was refined; against the new one where
    there was none. ``num_known`` runs were passed over, since ``before`` had learnt from them already.
    """

    calibration: Calibration
    before: Calibration | None
    observations: tuple[Observation, ...]
    drifts: tuple[Drift, ...]
    num_known: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The document ``ignite/calibration/v1``."""
        return calibration_document(self.calibration)

    def report(self) -> dict[str, Any]:
        """The document ``ignite/calibration-report/v1``: the calibration, each device's drift, each run's step."""
        return {
            "schema": "ignite/calibration-report/v1",
            "calibration": self.to_dict(),
            "devices": [drift_entry(drift) for drift in self.drifts],
            "runs": [
                {
                    "job": one.job,
                    "planned_step_s": one.planned_step,
                    "measured_step_s": one.step.median,
                    "steps": one.step.count,
                    "promised_step_s": None if one.promised is None else one.promised.step.middle,
                    "beside_others": one.beside_others,
                }
                for one in self.observations
            ],
        }

    def _repr_html_(self) -> str:
        rows = [
            [name, f"{kind.rate:.4g}", f"{1e3 * kind.launch:.4g} ms", kind.num_stages]
            for name, kind in self.calibration.kinds.items()
        ]
        return table(["kind", "rate", "launch", "stages"], rows)


def calibrate(
    runs: Sequence[Observation | str | Path], *, update: Calibration | str | Path | None = None
) -> Calibrated:
    """What the runs teach about predictions on the devices that they ran on.

    Parameters
    ----------
    runs
        Observations, or paths: of an ``observation.json`` or of a directory somewhere below which there are some.
    update
        An earlier calibration that is refined; what the runs say nothing of is kept, and a run that it was fitted on
        does not count again. None = a fresh one.

    Raises
    ------
    NotFoundError
        A path does not exist, or there is no observation below it.
    InputError
        An observation is broken, there is none that is new, or what they show is not of this world.
    """
    from ignite_scheduler.cost.drift import drifts
    from ignite_scheduler.cost.fitting import fit

    before = read_calibration(update)
    observations: list[Observation] = []
    for run in runs:
        if isinstance(run, str | Path):
            observations += map(load_observation, observation_files(Path(run)))
        else:
            observations.append(run)
    known = None if before is None else before.provenance.get(_LEARNT_FROM)
    learnt = [str(digest) for digest in known] if isinstance(known, list) else []
    by_digest = {_digest(one): one for one in observations}
    new = {digest: one for digest, one in by_digest.items() if digest not in learnt}
    if by_digest and not new:
        raise InputError(
            f"expected runs that are new, found {len(by_digest)} which this calibration was fitted on already"
        )
    calibration = fit(new.values(), before)
    facts = {"date": datetime.now(UTC).date().isoformat(), _LEARNT_FROM: learnt + sorted(new)}
    calibration = replace(calibration, provenance={**calibration.provenance, **facts})
    try:
        parse_calibration(calibration_document(calibration))
    except DocumentError as error:
        raise InputError(
            f"the runs' figures make no calibration ({error}); look for a planned or measured time that cannot be"
        ) from None
    return Calibrated(
        calibration=calibration,
        before=before,
        observations=tuple(new.values()),
        drifts=drifts(new.values(), before or calibration),
        num_known=len(observations) - len(new),
    )


def _digest(observation: Observation) -> str:
    """Digits that tell one run's observation from another's."""
    return digest(observation_document(observation))[:12]


def observation_files(place: Path) -> tuple[Path, ...]:
    """The observation at ``place``, or all those below it, each once, in order of their paths.

    Raises
    ------
    NotFoundError
        Nothing is there, or no observation below it.
    """
    if place.is_file():
        return (place,)
    if not place.is_dir():
        raise NotFoundError(f"no run at {str(place)!r}; give the directory of a run, as 'ignite run' leaves it")
    found = sorted(Path(folder, OBSERVATION_FILE) for folder, _, names in os.walk(place) if OBSERVATION_FILE in names)
    if not found:
        raise NotFoundError(
            f"no {OBSERVATION_FILE} below {str(place)!r}: a run writes one for each job that finishes with more than a "
            "few steps"
        )
    return tuple(found)
