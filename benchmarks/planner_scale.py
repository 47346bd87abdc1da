"""How good and how quick plans over wide clusters are: fixed instances, proven gaps, growth at n and 2n.

Each instance is planned with groups (``replicas: auto``) and straight (1), with the default budget of work and with a
multiple of it, whose best plan stands for the best known. CPU seconds stand beside a yardstick of the same run.

Usage: ``python benchmarks/planner_scale.py [NAME …] [--long N]`` with names of :data:`CASES`.
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import replace
from typing import Final, Literal

from ignite_scheduler.model import Infeasible
from ignite_scheduler.planner import Problem
from ignite_scheduler.planner.found import Found
from ignite_scheduler.planner.large import search
from ignite_scheduler.planner.problem import DEFAULT_WORK
from ignite_scheduler.planner.request import requested
from scale_cases import DOUBLE_LARGE, HALF, HALF_LARGE, LARGE, SMALL, Case, make_problem
from tables import stamp, table
from yardstick import beside, yardstick

Replicas = int | Literal["auto"]

CASES: Final[dict[str, tuple[Case, Replicas, int | None, int]]] = {
    "half": (HALF, "auto", 8, 1),
    "small": (SMALL, "auto", 8, 1),
    "small-auto": (SMALL, "auto", None, 1),
    "half-straight": (HALF, 1, 1, 1),
    "small-straight": (SMALL, 1, 1, 1),
    "half-large": (HALF_LARGE, "auto", 8, 1),
    "large": (LARGE, "auto", 8, 1),
    "large-straight": (replace(LARGE, batch=512), 1, 1, 1),
    "double-large": (DOUBLE_LARGE, "auto", 8, 1),
}
"""Instance, devices a stage, samples of a microbatch, and the budget of work in multiples of the default."""


def problem_of(name: str) -> Problem:
    """The instance of that name with its budget."""
    case, replicas, micro, work = CASES[name]
    problem = make_problem(case, replicas, DEFAULT_WORK * work)
    job = problem.job
    return replace(problem, job=replace(job, batch=replace(job.batch, micro=micro)))


def found_for(problem: Problem) -> tuple[Found, float]:
    """What the search finds, and its CPU seconds."""
    begin = time.process_time()
    request = requested(problem)
    assert not isinstance(request, Infeasible)
    found = search(problem, request)
    return found, time.process_time() - begin


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(CASES))
    parser.add_argument("--long", type=int, default=0, help="how many times the budget for the best known")
    options = parser.parse_args()
    unit = yardstick()
    found_for(replace(problem_of("half"), work=1000))  # compiles
    rows = []
    for name in options.names or list(CASES):
        problem = problem_of(name)
        found, seconds = found_for(problem)
        known = found.value
        if options.long:
            known = min(known, found_for(replace(problem, work=problem.work * options.long))[0].value)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        rows.append(
            [
                name,
                CASES[name][0].name,
                str(len(found.best.stages) if found.best else 0),
                f"{found.value:.4f} s",
                f"{found.value / known - 1:.1%}" if options.long else "",
                f"{found.value / found.bound - 1:.1%}",
                beside(seconds, unit),
                f"{peak:.2f} GiB",
            ]
        )
        print(*rows[-1], flush=True)
    print(stamp())
    print(table(["name", "instance", "stages", "step", "over best known", "gap", "CPU", "peak memory so far"], rows))


if __name__ == "__main__":
    main()
