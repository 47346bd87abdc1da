"""A run in a process of its own, for tests that interrupt or kill it: ``python run_driver.py run|resume DIR``.

Says a line of JSON whenever the view changes, and one with the outcome at the end.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ignite_scheduler import wiring
from ignite_scheduler.daemon.view import Snapshot
from live_jobs import small_cluster, small_job, small_profile

STEPS = 150  # on devices slow enough that an interrupt comes before the end
JOBS = ("a", "b", "c")


def say(line: object) -> None:
    print(json.dumps(line), flush=True)


def watch(now: Snapshot) -> None:
    say({"done": {view.job_id: view.done for view in now.jobs}, "stopping": now.stopping})


def main(verb: str, directory: Path) -> None:
    if verb == "run":
        jobs = [
            wiring.ask(small_job(name, steps=STEPS, every=50, max_devices=1), small_profile(), submitted=0.3 * number)
            for number, name in enumerate(JOBS)
        ]
        report = wiring.run(jobs, small_cluster(0.1, 0.1), directory=directory, watch=watch)
    else:
        report = wiring.resume(directory, watch=watch)
    reasons = {job.job_id: job.reason and job.reason.code for job in report.jobs}
    states = {job.job_id: job.state for job in report.jobs}
    say({"outcome": report.outcome, "states": states, "reasons": reasons})


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
