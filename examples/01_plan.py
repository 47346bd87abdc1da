"""Plan one job: the best pipeline of a model on unlike devices, what is proven about it, and a picture of one step.

Runs anywhere, without PyTorch:  python examples/01_plan.py
"""

import tempfile
from pathlib import Path

from click.testing import CliRunner

import ignite_scheduler as ignite
from ignite_scheduler.cli import ignite as command

with tempfile.TemporaryDirectory() as folder:
    CliRunner().invoke(command, ["init", folder], catch_exceptions=False)  # the documents of "ignite init"

    planned = ignite.plan(Path(folder) / "job.yaml", Path(folder) / "cluster.yaml")

    for stage in planned.plan.stages:
        print(f"stage {stage.index}: {len(stage.layers)} layers on {stage.devices[0].device}")
    print(f"a step takes {1e3 * planned.plan.predicted.step:.1f} ms; optimal: {planned.plan.bound.optimal}")
    for unused in planned.plan.unused:
        print(f"left out: {unused.device}, {unused.reason}")

    (Path(folder) / "step.svg").write_text(planned.to_svg())  # in a notebook the value shows itself
