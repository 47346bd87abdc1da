"""Models, data sets and losses that need no download, and references to a user's own.

Names and descriptions need no torch; what is built does. See :mod:`ignite_scheduler.zoo.chain` for the layers of a
built model and :mod:`ignite_scheduler.zoo.dropout` for dropout that does not depend on how a batch is cut.
"""

from ignite_scheduler.zoo.catalogue import DATASETS, LOSSES, MODELS
from ignite_scheduler.zoo.entries import Entry
from ignite_scheduler.zoo.resolve import (
    Samples,
    build,
    check_trainable,
    dataset,
    default_data,
    default_loss,
    load_code,
    loss,
    outline,
)

__all__ = [
    "DATASETS",
    "LOSSES",
    "MODELS",
    "Entry",
    "Samples",
    "build",
    "check_trainable",
    "dataset",
    "default_data",
    "default_loss",
    "load_code",
    "loss",
    "outline",
]
