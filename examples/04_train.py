"""Train a small model over two unlike devices that this machine plays, and hold the plan against what was measured.

Needs PyTorch:  python examples/04_train.py
"""

import tempfile
from pathlib import Path

import ignite_scheduler as ignite

CLUSTER = """
version: 1
name: pair
nodes:
  - name: here
    devices:
      - {kind: quick, speed: 0.6, memory: 1GB}
      - {kind: slow, speed: 0.3, memory: 1GB}
links: {default: {bandwidth: 1Gbit/s, latency: 1ms}}
"""
JOB = """
version: 1
name: mlp
model: {zoo: mlp, args: {features: 30, hidden: [256, 256, 256], outputs: 2}}
data: {dataset: breast_cancer}
steps: 20
batch: {global: 128, micro: 32}
optimizer: {name: adam, lr: 0.001}
pipeline: {stages: 2}
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cluster.yaml").write_text(CLUSTER)
        (folder / "job.yaml").write_text(JOB)

        profile = ignite.profile(folder / "job.yaml", repeats=5)
        ran = ignite.run(
            [folder / "job.yaml"], folder / "cluster.yaml", directory=folder / "run", profiles={"mlp": profile}
        )

        job = ran.job("mlp")
        print(f"planned step {1e3 * job.planned_step:.2f} ms, measured {1e3 * job.measured.step:.2f} ms")
        print(f"loss {job.measured.losses[0]:.3f} at first, {job.measured.losses[-1]:.3f} at the end")
        (folder / "step.svg").write_text(ran.trace("mlp").to_svg())


if __name__ == "__main__":  # the processes of the run import this file
    main()
