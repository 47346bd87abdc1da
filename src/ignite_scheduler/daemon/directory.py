"""The directory of a run: what it was asked, its journal, and one run directory a job.

::

    DIR/
      run.json            what was asked: jobs, profiles, cluster, policy (losslessly, in the journal's coding)
      journal.sqlite      every event and decision
      lock                held by the process that drives the run
      jobs/NAME/          plan.json, metrics.jsonl, timeline.json, checkpoints/, events.jsonl, observation.json

``run.json`` is written whole or not at all and never changed: a run that was killed is continued from it and the
journal.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ignite_scheduler.cost.calibration import Calibration
from ignite_scheduler.errors import ConflictError, DocumentError, InputError, NotFoundError
from ignite_scheduler.formats.codec import coding
from ignite_scheduler.model import Cluster, Job, Profile
from ignite_scheduler.planner import Objective

SCHEMA: Final = "ignite/run/v1"
_LONGEST: Final = 80  # bytes of a name that becomes part of a path; file systems allow 255


def slug(name: str) -> str:
    """The job's name as the name of a directory: letters, digits, ``.``, ``_`` and ``-`` stay, all else becomes ``-``.

    Where anything was changed, eight digits of the name's hash are appended, so that ``a b`` and ``a-b`` stay apart.

    Raises
    ------
    InputError
        The name is empty.

    >>> slug("gpt-small.v2")
    'gpt-small.v2'
    >>> slug("../../etc/passwd")
    'etc-passwd-3754d6cb'
    """
    if not name.strip():
        raise InputError(f"a job's name must not be empty, found {name!r}")
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:_LONGEST]
    if plain == name:
        return plain
    digits = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{plain}-{digits}" if plain else digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One job as it was handed over: ``submitted`` in seconds after the start of the run, ``work`` in steps.

    ``startup`` and ``checkpoint_cost`` are the seconds that the scheduler reckons with, ``startup_range`` its early and
    late end where those are known.
    """

    job: Job
    profile: Profile
    work: int
    submitted: float = 0.0
    startup: float = 0.0
    checkpoint_cost: float = 0.0
    startup_range: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """All that a run was asked. ``origin`` is the wall clock at its start, in seconds since 1970.

    Profiles and cluster are those before calibration; ``calibration`` is charged to them for each prediction.
    """

    jobs: tuple[Asked, ...]
    cluster: Cluster
    policy: str
    objective: Objective
    memory_margin: float
    search_work: int
    origin: float
    calibration: Calibration | None = None


class RunDirectory:
    """Paths and documents of one run."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def journal(self) -> Path:
        """The journal's database."""
        return self.root / "journal.sqlite"

    def job(self, name: str) -> Path:
        """The run directory of the job called ``name``."""
        return self.root / "jobs" / slug(name)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Drive this run alone. The lock goes with the process that holds it, however that ends.

        Raises
        ------
        ConflictError
            Another process drives the run.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise ConflictError(f"process {file.read().strip()} is driving the run in {self.root}") from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def check(self, request: Request) -> None:
        """Refuse what :meth:`begin` would refuse, before anything is written.

        Raises
        ------
        ConflictError
            The directory holds a run or other files already.
        InputError
            Two jobs have the same name.
        """
        slugs = [slug(asked.job.name) for asked in request.jobs]
        twice = sorted({asked.job.name for asked in request.jobs if slugs.count(slug(asked.job.name)) > 1})
        if twice:
            raise InputError(f"each job of a run needs a name of its own; found {', '.join(map(repr, twice))} twice")
        present = {path.name for path in self.root.iterdir()} - {"lock"} if self.root.is_dir() else set()
        if "run.json" in present:
            raise ConflictError(
                f"{self.root} holds a run already: continue it with --resume, or choose another directory"
            )
        if present:
            raise ConflictError(f"{self.root} is not empty: choose another directory for the run")

    def begin(self, request: Request) -> None:
        """Write down what was asked; errors as those of :meth:`check`."""
        self.check(request)
        write_document(self.root / "run.json", {"schema": SCHEMA, **coding(Request).encode(request)})

    def request(self) -> Request:
        """What was asked, read back exactly.

        Raises
        ------
        NotFoundError
            There is no run in the directory.
        DocumentError
            Its document is broken or of another version.
        """
        path = self.root / "run.json"
        if not path.is_file():
            raise NotFoundError(f"no run in {self.root}: expected a file {path}, as 'ignite run' leaves it")
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            schema = document.pop("schema", None)
        except (ValueError, AttributeError) as error:
            raise DocumentError(f"expected what 'ignite run' wrote, found {error}", file=str(path)) from error
        if schema != SCHEMA:
            raise DocumentError(f"expected {SCHEMA!r}, found {schema!r}", file=str(path), field="schema")
        request: Request = coding(Request).decode(document)
        return request


def write_document(path: Path, document: object) -> None:
    """Write JSON to ``path`` so that a reader or a crash never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("w", encoding="utf-8") as file:
        json.dump(document, file, indent=1, ensure_ascii=False, allow_nan=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
