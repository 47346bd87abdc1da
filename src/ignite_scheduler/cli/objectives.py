"""The objectives of a Pareto set on the command line and in its document."""

from __future__ import annotations

from typing import Any, Final

import click

KEYS: Final = {
    "time": "step_s",
    "money": "money_per_sample",
    "energy": "energy_per_sample_j",
    "devices": "devices",
    "headroom": "headroom",
}
"""Objectives → their keys in the document."""

DEFAULT: Final = ("time", "money", "devices")
"""What ``--pareto`` alone asks for; money is left out where a price is unknown."""


class Objectives(click.ParamType[tuple[str, ...]]):
    """Objectives parted by commas, ``time,energy``, in the order of :data:`KEYS`."""

    name = "objectives"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """The names; a usage error for one that is unknown or comes twice."""
        names = [name.strip() for name in str(value).split(",")]
        if set(names) - set(KEYS) or len(set(names)) < len(names):
            self.fail(
                f"expected some of {', '.join(KEYS)}, each once and parted by commas, found {value!r} "
                "(where no objectives are given, --pareto comes after JOB)",
                param,
                ctx,
            )
        return tuple(name for name in KEYS if name in names)
