"""What a choice costs: seconds, bytes, money, joules. Knows nothing of which choice is good.

:func:`evaluate` is the one place where a choice becomes a plan with figures: stages with their layers, devices, shares
and memory actions, microbatches, schedule. Chains, groups of devices, virtual workers and graphs of stages go the same
way.
"""

from ignite_scheduler.cost.choice import Assignment, StageChoice, straight
from ignite_scheduler.cost.communication import cut_bytes, ring_seconds, slowest_link
from ignite_scheduler.cost.compute import (
    LayerSeconds,
    action_overhead,
    held_update_seconds,
    layer_seconds,
    update_seconds,
)
from ignite_scheduler.cost.iteration import evaluate, microbatch_sizes, stage_durations
from ignite_scheduler.cost.links import BandwidthCurve, all_gather_seconds
from ignite_scheduler.cost.memory import (
    byte_scale,
    element_bytes,
    held_activations,
    held_parameters,
    memory_factors,
    replica_memory,
    resolved_precision,
    stage_activations,
    stage_memory,
    stage_parameters,
)
from ignite_scheduler.cost.money import energy_per_step, price_per_second
from ignite_scheduler.cost.replicas import (
    balanced_shares,
    gradient_weights,
    group_seconds,
    group_transfer_seconds,
    last_shares,
    parallel_pipelines,
    ring_over,
    samples_between,
)
from ignite_scheduler.cost.topology import Topology, topology

__all__ = [
    "Assignment",
    "BandwidthCurve",
    "LayerSeconds",
    "StageChoice",
    "Topology",
    "action_overhead",
    "all_gather_seconds",
    "balanced_shares",
    "byte_scale",
    "cut_bytes",
    "element_bytes",
    "energy_per_step",
    "evaluate",
    "gradient_weights",
    "group_seconds",
    "group_transfer_seconds",
    "held_activations",
    "held_parameters",
    "held_update_seconds",
    "last_shares",
    "layer_seconds",
    "memory_factors",
    "microbatch_sizes",
    "parallel_pipelines",
    "price_per_second",
    "replica_memory",
    "resolved_precision",
    "ring_over",
    "ring_seconds",
    "samples_between",
    "slowest_link",
    "stage_activations",
    "stage_durations",
    "stage_memory",
    "stage_parameters",
    "straight",
    "topology",
    "update_seconds",
]
