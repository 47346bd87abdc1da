"""IgNITE: measure models on unlike devices, plan their pipelines, schedule many such jobs over one cluster, run them.

>>> import ignite_scheduler as ignite
>>> sorted(set(ignite.__all__) & {"load_cluster", "load_job", "plan", "profile", "run", "simulate"})
['load_cluster', 'load_job', 'plan', 'profile', 'run', 'simulate']

Nothing heavy is imported until a name is used; planning and simulating need no PyTorch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ignite_scheduler.api import (
        Calibrated,
        Planned,
        Ran,
        Simulated,
        calibrate,
        load_calibration,
        load_cluster,
        load_job,
        load_profile,
        pareto,
        plan,
        profile,
        run,
        simulate,
    )
    from ignite_scheduler.errors import (
        ConflictError,
        DocumentError,
        ExternalError,
        IgniteError,
        InputError,
        NotFoundError,
    )

_HOMES = {
    **dict.fromkeys(("ConflictError", "DocumentError", "ExternalError", "IgniteError"), "ignite_scheduler.errors"),
    **dict.fromkeys(("InputError", "NotFoundError"), "ignite_scheduler.errors"),
}

__all__ = [
    "Calibrated",
    "ConflictError",
    "DocumentError",
    "ExternalError",
    "IgniteError",
    "InputError",
    "NotFoundError",
    "Planned",
    "Ran",
    "Simulated",
    "calibrate",
    "load_calibration",
    "load_cluster",
    "load_job",
    "load_profile",
    "pareto",
    "plan",
    "profile",
    "run",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its home when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES.get(name, "ignite_scheduler.api")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
