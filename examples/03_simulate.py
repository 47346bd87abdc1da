"""Play a workload of many jobs under several policies; the deciding code is that of the live loop.

Runs anywhere, without PyTorch:  python examples/03_simulate.py
"""

import tempfile
from pathlib import Path

from click.testing import CliRunner

import ignite_scheduler as ignite
from ignite_scheduler.cli import ignite as command

with tempfile.TemporaryDirectory() as folder:
    CliRunner().invoke(command, ["init", folder], catch_exceptions=False)

    played = ignite.simulate(
        Path(folder) / "workload.jsonl", Path(folder) / "cluster.yaml", policies=["fifo", "backfill", "ignite"]
    )

    for result in played.results:
        print(
            f"{result.policy}: mean JCT {result.jct_mean:.0f} s, {result.deadlines_met} of {result.deadlines} deadlines"
        )
    (Path(folder) / "ignite.svg").write_text(played.to_svg("ignite"))
