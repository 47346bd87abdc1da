"""What the server process loads before it forks ranks, so that none of them has to."""

import torch
import torch.distributed
import torch.distributed.checkpoint

import ignite_scheduler.engine.training

__all__ = ["ignite_scheduler", "torch"]
