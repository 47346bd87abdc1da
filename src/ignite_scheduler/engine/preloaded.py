"""What the server process loads before it forks ranks, so that none of them has to. Starts no thread."""

from contextlib import suppress

import torch

import ignite_scheduler.engine.training

with suppress(ImportError):  # the zoo's data sets; each rank would take a second for it
    import sklearn.datasets

torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)  # the first optimizer of a process loads half of torch

__all__ = ["ignite_scheduler", "sklearn", "torch"]
