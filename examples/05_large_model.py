"""Plan a model that is too large for this machine: sized without being in memory, timed by the catalogue's figures.

Needs PyTorch:  python examples/05_large_model.py
"""

import tempfile
from pathlib import Path

import ignite_scheduler as ignite

CLUSTER = """
version: 1
name: cloud
nodes:
  - {name: old, devices: [{kind: A100-SXM4-80GB, count: 4}]}
  - {name: new, devices: [{kind: H100-SXM5-80GB, count: 4}]}
links:
  default: {bandwidth: 25GB/s, latency: 10us}
  pairs:
    - {within: old, bandwidth: 300GB/s, latency: 5us}
    - {within: new, bandwidth: 450GB/s, latency: 5us}
"""
JOB = """
version: 1
name: llama
model: {zoo: llama-7b}
steps: 1000
batch: {global: 32, micro: 1}
optimizer: {name: adamw, lr: 0.0003}
precision: bf16
"""

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    (folder / "cluster.yaml").write_text(CLUSTER)
    (folder / "job.yaml").write_text(JOB)

    sized = ignite.profile("llama-7b", device="meta", samples=(1,))
    print(f"{sized.provenance['parameters']:,} parameters in {len(sized.layers)} layers")
    print(f"{sum(layer.forward_flops for layer in sized.layers) / 1e12:.1f} TFLOP forward for 2,048 tokens")

    planned = ignite.plan(folder / "job.yaml", folder / "cluster.yaml", profile=sized)
    for stage in planned.plan.stages:
        (device,) = stage.devices
        memory = f"{device.memory / 1e9:.0f} of {device.memory_limit / 1e9:.0f} GB"
        print(f"{device.device}: {len(stage.layers)} layers, {memory}")
    print(f"a step takes {planned.plan.predicted.step:.2f} s if each device keeps to its usual share of its peak")
