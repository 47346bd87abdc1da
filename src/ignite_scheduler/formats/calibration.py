"""``ignite/calibration/v1`` ↔ :class:`~ignite_scheduler.cost.calibration.Calibration`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ignite_scheduler.formats.files import digest
from ignite_scheduler.formats.source import Source, read_source
from ignite_scheduler.model import Plan

if TYPE_CHECKING:
    from ignite_scheduler.cost.calibration import Calibration, KindCalibration, Quantiles
    from ignite_scheduler.formats.shapes.calibration import CalibrationShape, KindCalibrationShape

CALIBRATION_SCHEMA: Final = "ignite/calibration/v1"


def load_calibration(path: str | Path) -> Calibration:
    """The calibration in the file at ``path``.

    Raises
    ------
    NotFoundError
        There is no such file.
    DocumentError
        The file is wrong; the message has the line, the field and what to do.
    """
    return _calibration(read_source(path))


def parse_calibration(data: Mapping[str, Any]) -> Calibration:
    """The calibration of a document that is plain data already, such as :func:`calibration_document` gives."""
    return _calibration(Source(data=data))


def calibration_document(calibration: Calibration) -> dict[str, Any]:
    """The document that reads back as ``calibration``."""
    document: dict[str, Any] = {
        "schema": CALIBRATION_SCHEMA,
        "num_runs": calibration.num_runs,
        "kinds": {name: _kind_entry(kind) for name, kind in calibration.kinds.items()},
        "message_s": calibration.message,
        "overlap": calibration.overlap,
        "update": calibration.update,
        "step_s": calibration.step,
        "startup": None if calibration.startup is None else seconds_entry(calibration.startup),
        "checkpoint": None,
        "residual": _ratios_entry(calibration.residual),
    }
    checkpoint = calibration.checkpoint
    if checkpoint is not None:
        bandwidth = checkpoint.bandwidth if math.isfinite(checkpoint.bandwidth) else None
        document["checkpoint"] = {"base_s": checkpoint.base, "bytes_per_s": bandwidth}
    if calibration.provenance:
        document["provenance"] = dict(calibration.provenance)
    return document


def calibration_name(calibration: Calibration) -> str:
    """A short text that is the same for equal calibrations and tells a reader how much is behind one.

    Number of runs, date where the provenance has one, and the first digits of a hash of the whole document.
    """
    digits = digest(calibration_document(calibration))[:8]
    date = calibration.provenance.get("date")
    dated = f" of {date}" if isinstance(date, str) and date else ""
    return f"{calibration.num_runs} run{'' if calibration.num_runs == 1 else 's'}{dated} ({digits})"


def named(plan: Plan, calibration: Calibration | None) -> Plan:
    """The plan, saying among its resolved values which calibration it was made with; unchanged without one."""
    if calibration is None:
        return plan
    return replace(plan, resolved={**plan.resolved, "calibration": calibration_name(calibration)})


def seconds_entry(quantiles: Quantiles) -> dict[str, float]:
    """Quantiles of seconds as a document has them."""
    return {"low_s": quantiles.low, "middle_s": quantiles.middle, "high_s": quantiles.high}


def _ratios_entry(quantiles: Quantiles) -> dict[str, float]:
    return {"low": quantiles.low, "middle": quantiles.middle, "high": quantiles.high}


def _kind_entry(kind: KindCalibration) -> dict[str, Any]:
    return {
        "rate": kind.rate,
        "launch_s": kind.launch,
        "contention": kind.contention,
        "achievable_flops": kind.achievable_flops,
        "achievable_bandwidth": kind.achievable_bandwidth,
        "num_stages": kind.num_stages,
        "spread": kind.spread,
    }


def _calibration(source: Source) -> Calibration:
    from ignite_scheduler.cost.calibration import Calibration, CheckpointTime, Quantiles
    from ignite_scheduler.formats.shapes.calibration import CalibrationShape
    from ignite_scheduler.formats.shapes.check import check

    shape = check(CalibrationShape, source)
    _check_order(source, shape)
    startup, checkpoint = shape.startup, shape.checkpoint
    return Calibration(
        kinds={name: _kind(kind) for name, kind in shape.kinds.items()},
        message=shape.message_s,
        overlap=shape.overlap,
        update=shape.update,
        step=shape.step_s,
        startup=None if startup is None else Quantiles(low=startup.low_s, middle=startup.middle_s, high=startup.high_s),
        checkpoint=None
        if checkpoint is None
        else CheckpointTime(
            base=checkpoint.base_s,
            bandwidth=math.inf if checkpoint.bytes_per_s is None else checkpoint.bytes_per_s,
        ),
        residual=Quantiles(low=shape.residual.low, middle=shape.residual.middle, high=shape.residual.high),
        num_runs=shape.num_runs,
        provenance=shape.provenance,
    )


def _check_order(source: Source, shape: CalibrationShape) -> None:
    residual, startup = shape.residual, shape.startup
    if not residual.low <= residual.middle <= residual.high:
        found = f"{residual.low:g}, {residual.middle:g}, {residual.high:g}"
        raise source.error(("residual",), f"expected low ≤ middle ≤ high, found {found}")
    if not residual.low <= 1 <= residual.high:
        raise source.error(
            ("residual",),
            f"expected low ≤ 1 ≤ high, found {residual.low:g} to {residual.high:g}; what steps take longer or shorter "
            "on the whole belongs to the rates of kinds",
        )
    if startup is not None and not startup.low_s <= startup.middle_s <= startup.high_s:
        found = f"{startup.low_s:g}, {startup.middle_s:g}, {startup.high_s:g}"
        raise source.error(("startup",), f"expected low_s ≤ middle_s ≤ high_s, found {found}")


def _kind(shape: KindCalibrationShape) -> KindCalibration:
    from ignite_scheduler.cost.calibration import KindCalibration

    return KindCalibration(
        rate=shape.rate,
        launch=shape.launch_s,
        contention=shape.contention,
        achievable_flops=shape.achievable_flops,
        achievable_bandwidth=shape.achievable_bandwidth,
        num_stages=shape.num_stages,
        spread=shape.spread,
    )
