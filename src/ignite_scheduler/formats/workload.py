"""A workload: a JSON-lines file, one job a line, each with the time at which it is submitted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_scheduler.formats.job import job_document, job_from_shape, queue_entry, queue_terms
from ignite_scheduler.formats.source import Source, parse_json, read_text
from ignite_scheduler.model import Job, QueueTerms

if TYPE_CHECKING:
    from ignite_scheduler.formats.shapes.job import TableLineShape

Mix = tuple[tuple[str, int], ...]
"""(kind, number of devices) pairs, sorted by kind, each kind once, each number ≥ 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJob:
    """A job whose pipeline isn't ours: known by its rates.

    ``rates``: mix of devices → units of work per second, above 0. ``total``: units of work.
    """

    name: str
    rates: Mapping[Mix, float]
    total: float
    queue: QueueTerms = field(default_factory=QueueTerms)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadJob:
    """One line: seconds from the workload's start to the submission, and the job.

    ``source`` is where a training job stands, for messages; None for one that was read from no file.
    """

    submit: float
    job: Job | TableJob
    source: Source | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The job's name, which no other job of the workload has."""
        return self.job.name


def load_workload(path: str | Path) -> tuple[WorkloadJob, ...]:
    """The jobs of the file at ``path``, in its order; empty lines are passed over.

    A relative path of a profile is resolved against the file's folder.

    Raises
    ------
    NotFoundError
        There is no such file.
    DocumentError
        A line is wrong (the message has its number), a name comes twice, or there is no line.
    """
    path, file = Path(path), str(path)
    folder = path.resolve().parent
    jobs: list[WorkloadJob] = []
    line_of: dict[str, int] = {}
    for number, text in enumerate(read_text(path).split("\n"), start=1):
        if not text.strip():
            continue
        data = parse_json(text, file, first_line=number)
        source = Source(data=data, file=file, folder=folder, json_text=text, first_line=number)
        job = _line(source)
        if job.name in line_of:
            raise source.error(("name",), f"line {line_of[job.name]} has a job called {job.name!r} too; rename one")
        line_of[job.name] = number
        jobs.append(job)
    if not jobs:
        raise Source(data=None, file=file).error((), "expected one job a line, found none")
    return tuple(jobs)


def workload_text(jobs: tuple[WorkloadJob, ...]) -> str:
    """The text of the file that reads back as ``jobs``."""
    return "".join(json.dumps(_entry(job), ensure_ascii=False, allow_nan=False) + "\n" for job in jobs)


def mix_text(mix: Mix) -> str:
    """A mix as the key of a throughput table.

    >>> mix_text((("T4", 2), ("V100", 1)))
    'T4:2+V100:1'
    """
    return "+".join(f"{kind}:{count}" for kind, count in mix)


def parse_mix(text: str) -> Mix:
    """The mix that a key of a throughput table names; ValueError for anything else.

    >>> parse_mix("V100:1+T4:2")
    (('T4', 2), ('V100', 1))
    """
    counts: dict[str, int] = {}
    for part in text.split("+"):
        kind, colon, count = (piece.strip() for piece in part.rpartition(":"))
        if not colon or not kind or not (count.isascii() and count.isdigit()) or int(count) < 1:
            raise ValueError(f"expected kinds with counts such as 'V100:1' or 'V100:1+T4:2', found {text!r}")
        if kind in counts:
            raise ValueError(f"the kind {kind!r} is named twice in {text!r}; add the counts up")
        counts[kind] = int(count)
    return tuple(sorted(counts.items()))


def _line(source: Source) -> WorkloadJob:
    from ignite_scheduler.formats.shapes.check import check
    from ignite_scheduler.formats.shapes.job import TableLineShape, TrainingLineShape

    if isinstance(source.data, Mapping) and ("rates" in source.data or not {"model", "batch"} & source.data.keys()):
        table = check(TableLineShape, source)
        return WorkloadJob(submit=table.submit_s, job=_table_job(source, table))
    training = check(TrainingLineShape, source)
    job = job_from_shape(source, training)
    if job.steps is None and job.epochs is None:
        raise source.error((), f"expected 'steps' or 'epochs', to say how long {job.name!r} trains; found neither")
    return WorkloadJob(submit=training.submit_s, job=job, source=source)


def _table_job(source: Source, shape: TableLineShape) -> TableJob:
    rates: dict[Mix, float] = {}
    for text, rate in shape.rates.items():
        try:
            mix = parse_mix(text)
        except ValueError as error:
            raise source.error(("rates", text), str(error)) from None
        if mix in rates:
            raise source.error(("rates", text), f"the mix {mix_text(mix)!r} is given twice; keep one")
        rates[mix] = rate
    return TableJob(name=shape.name, rates=rates, total=shape.total, queue=queue_terms(shape.queue))


def _entry(job: WorkloadJob) -> dict[str, Any]:
    if isinstance(job.job, Job):
        return {"submit_s": job.submit} | job_document(job.job)
    table = job.job
    return {
        "submit_s": job.submit,
        "name": table.name,
        "rates": {mix_text(mix): rate for mix, rate in table.rates.items()},
        "total": table.total,
        "queue": queue_entry(table.queue),
    }
