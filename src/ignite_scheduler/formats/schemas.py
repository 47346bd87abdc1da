"""JSON schemas of our documents, made from the shapes that validate them."""

from __future__ import annotations

import importlib
from typing import Any, Final

from ignite_scheduler.errors import InputError

_SHAPES: Final = {
    "cluster": ("cluster", "ClusterShape"),
    "job": ("job", "JobShape"),
    "profile": ("profile", "ProfileShape"),
    "plan": ("plan", "PlanShape", "InfeasibleShape"),
    "comparison": ("comparison", "ComparisonShape"),
    "workload": ("job", "TableLineShape", "TrainingLineShape"),
    "report": ("report", "ReportShape"),
    "timeline": ("timeline", "TimelineShape"),
    "metrics": ("timeline", "MetricsShape"),
    "calibration": ("calibration", "CalibrationShape"),
    "observation": ("calibration", "ObservationShape"),
    "links": ("links", "LinksMeasuredShape"),
    "devices": ("devices", "DevicesShape"),
}

SCHEMA_NAMES: Final = tuple(_SHAPES)
"""Documents that have a schema; ``workload`` and ``metrics`` describe one line of their file."""

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def schema(name: str) -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a document.

    Raises
    ------
    InputError
        There is no document of that name; the message names those there are.
    """
    if name not in _SHAPES:
        from ignite_scheduler.formats.shapes.fields import nearest, or_list

        near = nearest(name, SCHEMA_NAMES)
        hint = f"; did you mean {near!r}?" if near else ""
        raise InputError(f"no schema is called {name!r}: expected {or_list(SCHEMA_NAMES)}{hint}")
    from pydantic import TypeAdapter

    module_name, *shapes = _SHAPES[name]
    module = importlib.import_module(f"ignite_scheduler.formats.shapes.{module_name}")
    union: Any = getattr(module, shapes[0])
    for shape in shapes[1:]:
        union = union | getattr(module, shape)
    return TypeAdapter(union).json_schema() | {"$schema": _DIALECT, "title": f"ignite {name}"}
