"""The tables of Arena's plans."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ignite_scheduler.errors import InputError
from published.arena import SHEETS, Book, Row, read_measured, read_rows
from tables import by_group, summary, table


def read(folder: Path) -> tuple[Book, list[Row]]:
    """All plan profiles below a folder, and measured iterations where there are any."""
    profiles = sorted((folder / "plan_profiles").glob("*.csv"))
    if not profiles:
        raise InputError(f"{folder}: expected plan_profiles/*.csv, found none")
    measured = [row for path in sorted(folder.glob("ground_truth*.csv")) for row in read_measured(path)]
    rows = [row for path in profiles for row in read_rows(path)]
    if not rows:
        raise InputError(f"{folder}: expected feasible plans in plan_profiles/*.csv, found none")
    return Book(rows), measured


def one_stage_errors(book: Book) -> list[tuple[Row, float]]:
    """Pipelines predicted from plans with one stage: predicted ÷ listed iteration − 1."""
    found = []
    for row in book.rows:
        predicted = book.from_one_stage(row) if row.degrees[0] > 1 else None
        if predicted is not None:
            found.append((row, predicted / row.iteration - 1))
    return found


def kind_errors(book: Book, known: str) -> list[tuple[Row, float]]:
    """Compute predicted from another kind of GPU: predicted ÷ listed compute − 1. Kinds without a sheet don't count."""
    found = []
    for row in book.rows:
        other = row.work.gpu != known and {known, row.work.gpu} <= set(SHEETS)
        predicted = book.compute_from(known, row) if other else None
        if predicted is not None:
            found.append((row, predicted / row.compute - 1))
    return found


def report(book: Book, measured: Sequence[Row], known: str = "a100") -> str:
    """All tables."""
    sums = [abs(row.compute + sum(row.communication) - row.iteration) / row.iteration for row in book.rows]
    parts = [
        f"{len(book.rows)} feasible plans, whose parts add up to the iteration (largest difference {max(sums):.1e})."
    ]
    pipelines = one_stage_errors(book)
    if pipelines:
        deep = sorted(pipelines, key=lambda found: (found[0].degrees[0], found[0].work.model))
        parts += [
            f"Pipelines from plans with one stage: {summary(e for _, e in pipelines)}.",
            by_group(((f"{row.degrees[0]} stages, {row.work.model}", e) for row, e in deep), "plans"),
        ]
    kinds = kind_errors(book, known)
    if kinds:
        ordered = sorted(kinds, key=lambda found: (found[0].work.gpu, found[0].work.model))
        parts += [
            f"Compute on another kind of GPU, from {known}: {summary(e for _, e in kinds)}.",
            by_group(((f"{row.work.gpu}, {row.work.model}", e) for row, e in ordered), "plans"),
        ]
    unknown = sorted({row.work.gpu for row in book.rows} - set(SHEETS))
    if unknown:
        parts.append(f"No data sheet of {', '.join(unknown)}: nothing is predicted for or from them on other kinds.")
    parts.append(_measured(book, measured) if measured else "No measured iterations are among the files.")
    return "\n\n".join(parts)


def _measured(book: Book, measured: Sequence[Row]) -> str:
    lines, errors, missing = [], [], 0
    for row in measured:
        try:
            found = book.guess(row)
        except InputError as error:
            found = None
            lines.append([_name(row), f"{row.iteration:.3f}", "–", "–", str(error)])
        if found is None:
            missing += 1
            continue
        seconds, how = found
        errors.append((how, seconds / row.iteration - 1))
        lines.append([_name(row), f"{row.iteration:.3f}", f"{seconds:.3f}", f"{errors[-1][1]:+.1%}", how])
    parts = [f"Measured iterations: {len(errors)} predicted, {missing} that no row says anything about."]
    if errors:
        parts.append(by_group(errors, "predicted from"))
    parts.append(table(["plan", "measured s", "predicted s", "error", "from"], lines))
    return "\n\n".join(parts)


def _name(row: Row) -> str:
    pp, dp, tp = row.degrees
    return f"{row.work.model} {row.work.params} {row.work.batch} {row.work.gpu} pp{pp} dp{dp} tp{tp}"
