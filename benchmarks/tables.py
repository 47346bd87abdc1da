"""What the benchmarks print: errors summed up, tables, and the line that says how and on what they were made."""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ignite_scheduler.profiler.machine import describe_machine

CHECKOUT = Path(__file__).resolve().parent.parent
PROFILES = Path(os.environ.get("IGNITE_SHARED", CHECKOUT.parent / "shared")) / "data" / "profiles"
"""Where the public profiles are looked for."""


def stamp() -> str:
    """When, by which command and on what a table was made."""
    command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    here = describe_machine()
    return (
        f"{datetime.date.today()}, `{command}`, {here['cpu']}, {here['cores']} cores, load average over the last "
        f"minute at the end {here['load_average']}, {here['platform']}, Python {here['python']}."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Quantiles of |predicted ÷ measured − 1|."""

    count: int
    median: float
    p90: float
    worst: float

    def __str__(self) -> str:
        return f"{self.count} points: median {self.median:.1%}, 90th percentile {self.p90:.1%}, worst {self.worst:.1%}"


def summary(errors: Iterable[float]) -> Summary:
    """The quantiles of some signed errors; at least one."""
    absolute = np.abs(np.array(list(errors), dtype=float))
    if not absolute.size:
        raise ValueError("expected at least one error to sum up, found none")
    median, p90, worst = np.quantile(absolute, [0.5, 0.9, 1.0])
    return Summary(count=absolute.size, median=float(median), p90=float(p90), worst=float(worst))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def by_group(errors: Iterable[tuple[str, float]], title: str) -> str:
    """A table of quantiles, one row for each group, in order of first appearance, and one for all."""
    groups: dict[str, list[float]] = {}
    for name, error in errors:
        groups.setdefault(name, []).append(error)
    rows = [[name, *_cells(summary(found))] for name, found in groups.items()]
    if len(groups) > 1:
        rows.append(["all", *_cells(summary(error for found in groups.values() for error in found))])
    return table([title, "points", "median", "90th percentile", "worst"], rows)


def _cells(found: Summary) -> list[str]:
    return [str(found.count), f"{found.median:.1%}", f"{found.p90:.1%}", f"{found.worst:.1%}"]
