"""Which runs of layers a group can have in a chain whose step ends in time, before anything is fitted into memory.

Fitting a run of layers into the memory of a group is slow, and most runs are of no use. So the tables of
:mod:`.tables` are made once for a family in which everything fits and takes no longer than it does under any shares and
actions: what even there is in no chain within the limit is in none at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.groups.costs import Costs, Groups
from ignite_scheduler.planner.groups.memory import per_sample
from ignite_scheduler.planner.groups.tables import behind_tables, front_tables
from ignite_scheduler.planner.kernel import Floats
from ignite_scheduler.planner.tables import pace_of


def reachable(relaxed: Any, costs: Costs, groups: Groups, most: float) -> npt.NDArray[np.bool_]:
    """[group, end, first]: whether a chain of the relaxed family whose step ends by ``most`` may have it.

    ``relaxed`` is the family's field with its true figures, a status of 0 for all that the classes have times for and
    −1 elsewhere, no special entries and links that hold for all shares.
    """
    field = relaxed._replace(figures=least_figures(relaxed.figures, costs, groups))
    tables = front_tables(field, behind_tables(field, most), most, most)
    found = np.zeros(field.figures.shape[:3], dtype=np.bool_)
    _reach(field, behind_tables(field, most), tables[2], tables[3], most, found)
    return found


def least_figures(figures: Floats, costs: Costs, groups: Groups) -> Floats:
    """The figures with seconds of forward and backward that no shares go below; actions only add to them."""
    found = figures.copy()
    for part, rows in ((0, costs.forward), (1, costs.backward)):
        for g, count in enumerate(groups.size):
            members = groups.members[g, :count]
            with np.errstate(divide="ignore"):
                speed = sum(1.0 / per_sample(costs, rows[c]) for c in members)
                found[g, ..., part] = costs.samples / speed
                found[g, ..., 2 + part] = costs.last / speed
    return found


@compiled
def _reach(field: Any, behind: Any, front_in: Any, front_both: Any, most: float, found: Any) -> None:
    """Mark in ``found`` the runs of layers with which some front and some rest end by ``most``."""
    m, full = field.num_microbatches, len(field.held) - 1
    for v in range(1, full + 1):
        for p in range(field.pair_start[v], field.pair_start[v + 1]):
            g = field.pair_group[p]
            n = field.held[v - field.usage[g]] + 1
            for j in range(1, field.num_layers + 1):
                if behind[0, p, j] == np.inf:
                    continue
                for i in range(j):
                    if front_both[0, p, i] == np.inf or field.status[g, 0, j, i] < 0:
                        continue
                    f, b = field.figures[g, j, i, 0], field.figures[g, j, i, 1]
                    f_last, b_last = field.figures[g, j, i, 2], field.figures[g, j, i, 3]
                    finish = field.figures[g, j, i, 5] + field.figures[g, j, i, 6]
                    tail = max(front_both[0, p, i], front_in[0, p, i] + finish)
                    pace = pace_of(m, n, field.even, field.shrinking, field.gpipe, f, b, f_last)
                    if (m - 1) * (f + b) + f_last + b_last + tail <= most and (
                        f + b_last + front_both[0, p, i] + behind[0, p, j] + pace <= most
                    ):
                        found[g, j, i] = True
