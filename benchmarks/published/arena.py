"""Arena's plans: pipelines from one-stage plans, one kind of GPU from another, and measured iterations where given.

Its rows are estimates from profiles of single devices (``iteration_s`` is the sum of the three parts, to the last
digit), so they check two of our rules rather than a whole prediction:

- *A pipeline from one stage.* The compute of pp stages is that of the one-stage plan with the same data and tensor
  parallelism, cut into pp equal stages and 16 microbatches (``--num_micro_batches 16`` in the artifact's instructions)
  and put through our timeline. Communication is the row's own.
- *Another kind of GPU.* Compute stretches by something between the ratio of the peaks and that of the memories'
  bandwidths (a roofline of which neither FLOPs nor bytes are known): we take the geometric mean of the two.

Where measured iterations are given, each is predicted from the row of its plan, or failing that by these two rules.

References
----------
S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009. NVIDIA's data sheets of A100-40GB, V100, A40, A10.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from ignite_scheduler.errors import InputError
from published.pipeline import step_seconds

MICROBATCHES = 16
MOST = 100_000  # samples, or devices on one side of a plan
LARGEST = 1e9  # seconds that no iteration takes

# (FLOP/s in 16 bits with matrix units, FLOP/s in 32 bits without, bytes/s of memory) by the data sheets
SHEETS = {
    "a100": (312e12, 19.5e12, 1555e9),
    "v100": (125e12, 15.7e12, 900e9),
    "a40": (149.7e12, 37.4e12, 696e9),
    "a10": (125e12, 31.2e12, 600e9),
}
FULL_PRECISION = ("wide_resnet",)  # Alpa's suites, which Arena's models come from, train these in 32 bits, others in 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is trained, and on what kind of GPU."""

    model: str
    params: str
    batch: int
    gpu: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A plan. ``compute`` and ``communication`` (within stages, between stages) are parts of ``iteration``, seconds.

    ``layout`` = (nodes, GPUs in each); None where a measured row does not say.
    """

    work: Work
    layout: tuple[int, int] | None
    degrees: tuple[int, int, int]  # pipeline, data, tensor
    compute: float
    communication: tuple[float, float]
    iteration: float


def read_rows(path: Path) -> list[Row]:
    """The feasible plans of a table of plan profiles.

    Raises
    ------
    InputError
        A column is missing, or a line is malformed; says which.
    """
    rows = []
    for number, line in _lines(path):
        try:
            row = Row(
                work=_work(line),
                layout=(int(line["nodes"]), int(line["gpus_per_node"])),
                degrees=(int(line["pp"]), int(line["dp"]), int(line["tp"])),
                compute=float(line["compute_s"]),
                communication=(float(line["intra_stage_comm_s"]), float(line["inter_stage_comm_s"])),
                iteration=float(line["iteration_s"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{path}:{number}: expected a plan with its parts ({error!r})") from None
        if row.iteration == math.inf:  # those that do not fit are listed so
            continue
        parts = (row.compute, *row.communication)
        if not (row.compute > 0 and 0 < row.iteration < LARGEST and all(0 <= part < LARGEST for part in parts)):
            raise InputError(f"{path}:{number}: expected seconds of at least 0 and an iteration that takes some")
        rows.append(row)
    return rows


def read_measured(path: Path) -> list[Row]:
    """Measured iterations of plans; their ``compute`` is not known (nan).

    The column of times ends in ``_s``; of several it is the one that says measured, real, actual or truth.
    """
    rows = []
    for number, line in _lines(path):
        times = [name for name in line if name and name.endswith("_s")]
        if len(times) > 1:
            times = [name for name in times if any(word in name for word in ("measured", "real", "actual", "truth"))]
        try:
            (time,) = times
            layout = (int(line["nodes"]), int(line["gpus_per_node"])) if "nodes" in line else None
            row = Row(
                work=_work({"gpu_type": "a40", **line}),
                layout=layout,
                degrees=(int(line["pp"]), int(line["dp"]), int(line["tp"])),
                compute=math.nan,
                communication=(math.nan, math.nan),
                iteration=float(line[time]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"{path}:{number}: expected model, params, global_batch, pp, dp, tp and one time, a column that ends "
                f"in _s ({error!r})"
            ) from None
        if 1 / LARGEST < row.iteration < LARGEST:
            rows.append(row)
    return rows


def _lines(path: Path) -> Iterable[tuple[int, dict[str, str]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from enumerate(csv.DictReader(file), 2)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: expected a table of text ({error})") from None


def _work(line: dict[str, str]) -> Work:
    if not all(1 <= int(line[name]) <= MOST for name in ("global_batch", "pp", "dp", "tp") if name in line):
        raise ValueError(f"batch and degrees of 1 to {MOST}")
    return Work(
        model=line["model"], params=line["params"], batch=int(line["global_batch"]), gpu=line["gpu_type"].lower()
    )


def pipeline_seconds(compute: float, communication: tuple[float, float], stages: int) -> float:
    """An iteration of equal stages, from the compute of one stage that does it all; communication is the plan's own.

    What goes between stages is spread over the messages of the longest path (M + S − 2 in each direction); what stays
    within comes after the last pass.
    """
    inside, between = communication
    each = compute / (stages * MICROBATCHES)
    message = between / (2 * (MICROBATCHES + stages - 2))
    return step_seconds(
        [each / 3] * stages,
        [each * 2 / 3] * stages,
        [message] * (stages - 1),
        [inside] * stages,
        MICROBATCHES,
        receive_first=True,
    )


def stretch(model: str, known: str, wanted: str) -> float:
    """How much longer compute takes on another kind of GPU.

    Raises
    ------
    InputError
        The data sheet of one of them is not here; says which are.
    """
    for gpu in (known, wanted):
        if gpu not in SHEETS:
            raise InputError(f"no data sheet of GPU {gpu!r}; there are: {', '.join(SHEETS)}")
    half, full, memory = (a / b for a, b in zip(SHEETS[known], SHEETS[wanted], strict=True))
    return math.sqrt((full if model in FULL_PRECISION else half) * memory)


class Book:
    """Rows that can be looked up."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = tuple(rows)
        self._compute: dict[tuple[Work, tuple[int, int, int]], list[float]] = {}
        for row in rows:
            self._compute.setdefault((row.work, row.degrees), []).append(row.compute)

    def compute(self, work: Work, degrees: tuple[int, int, int]) -> float | None:
        """Compute of a plan, which does not depend on where its devices stand: the median over layouts."""
        found = self._compute.get((work, degrees))
        return median(found) if found else None

    def row(self, work: Work, layout: tuple[int, int] | None, degrees: tuple[int, int, int]) -> Row | None:
        """The row of a plan; without a layout that with fewest nodes."""
        found = [r for r in self.rows if r.work == work and r.degrees == degrees and layout in (None, r.layout)]
        return min(found, key=lambda r: r.layout or (0, 0), default=None)

    def from_one_stage(self, row: Row) -> float | None:
        """The iteration of a pipeline, its compute taken from the plan with one stage; None where there is none."""
        one = self.compute(row.work, (1, *row.degrees[1:]))
        return None if one is None else pipeline_seconds(one, row.communication, row.degrees[0])

    def compute_from(self, gpu: str, row: Row) -> float | None:
        """The compute of a plan from that of the same plan on another kind of GPU; None where there is none."""
        known = self.compute(replace(row.work, gpu=gpu), row.degrees)
        return None if known is None else known * stretch(row.work.model, gpu, row.work.gpu)

    def guess(self, measured: Row) -> tuple[float, str] | None:
        """Seconds of a measured plan and how they were found; None where nothing says anything about it.

        Raises
        ------
        InputError
            The plan is known on other kinds of GPU, but there is no data sheet of the measured one.
        """
        own = self.row(measured.work, measured.layout, measured.degrees)
        if own is not None:
            return own.compute + sum(own.communication), "its own row"
        for row in self.rows:
            same = (row.degrees, row.work.model, row.work.params, row.work.batch)
            wanted = (measured.degrees, measured.work.model, measured.work.params, measured.work.batch)
            if same == wanted and row.work.gpu in SHEETS:
                compute = row.compute * stretch(row.work.model, row.work.gpu, measured.work.gpu)
                return compute + sum(row.communication), f"the row of {row.work.gpu}"
        one = self.compute(measured.work, (1, *measured.degrees[1:]))
        if one is not None:
            return pipeline_seconds(one, (0.0, 0.0), measured.degrees[0]), "the plan with one stage, no communication"
        return None
