"""Ask "what if": the same job with a device more, and every choice that is worth its devices or its money.

Runs anywhere, without PyTorch:  python examples/02_what_if.py
"""

import tempfile
from pathlib import Path

from click.testing import CliRunner

import ignite_scheduler as ignite
from ignite_scheduler.api.what_if import changed
from ignite_scheduler.cli import ignite as command

with tempfile.TemporaryDirectory() as folder:
    CliRunner().invoke(command, ["init", folder], catch_exceptions=False)
    job, cluster = ignite.load_job(Path(folder) / "job.yaml"), ignite.load_cluster(Path(folder) / "cluster.yaml")

    now = ignite.plan(job, cluster).plan.predicted.step
    for change in ("+1xfast", "-node:closet"):
        then = ignite.plan(job, changed(cluster, change)).plan.predicted.step
        print(f"{change}: a step takes {then / now:.2f} times as long")

    for choice in ignite.pareto(job, cluster):
        plan = choice.plan
        print(f"{len(plan.device_ids)} devices, {1e3 * plan.predicted.step:.1f} ms, cost {plan.predicted.cost}")
