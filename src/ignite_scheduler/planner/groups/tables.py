"""Cost-to-go tables over (stages to the end, devices used, first group, layer).

As :mod:`ignite_scheduler.planner.tables` has them for single devices, with two differences. How many devices are used
does not tell how many stages there are: where memory, or the request, depends on that, depth is a dimension of its own.
And a stage ends with an all-reduce that overlaps what stages in front still do, so that two figures of the front are
kept: the least way of the first microbatch *in*, and the least of *both* ways. After its last backward a stage has its
all-reduce and update to do, while the gradient goes on to the stages in front: a step lasts until the later of the two.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.tables import pace_of


@compiled
def behind_tables(field: Any, work_cap: float) -> Any:  # noqa: PLR0912
    """Least fill of everything behind, by state.

    Returns
    -------
    behind
        [depth, pair, layer]: least fill of the layers from j on and of the link to them, where a stage on the pair's
        group ends at j and its multiset is used, the group included. Infinite where no permitted plan exists.
    """
    depths, size, may_cut = len(field.ends), field.num_layers, field.may_cut
    behind = np.full((depths, len(field.pair_group), size + 1), np.inf)
    suffix = np.full((depths, len(field.pair_group), size + 1), np.inf)
    for v in range(1, len(field.held)):
        for p in range(field.pair_start[v], field.pair_start[v + 1]):
            g = field.pair_group[p]
            rest = v - field.usage[g]
            for t in range(depths):
                if field.held[rest] < t or (rest > 0 and depths > 1 and t == 0):
                    continue
                if rest == 0 and t == 0:
                    behind[t, p, size] = 0.0
                for q in range(field.pair_start[rest], field.pair_start[rest + 1]):
                    k = field.link[g, field.pair_group[q]]
                    if k < 0:
                        continue
                    there, back = field.hops[k, 0], field.hops[k, 2]
                    for u in range(max(0, t - 1), t if t < depths - 1 else t + 1):
                        for j in range(1, size):
                            if may_cut[j]:
                                behind[t, p, j] = min(behind[t, p, j], there[j] + back[j] + suffix[u, q, j])
                row = field.row[min(t + 1, len(field.row) - 1)] if depths > 1 else 0
                for j in range(1, size + 1):
                    if behind[t, p, j] == np.inf:
                        continue
                    for i in range(j - 1, field.lowest[g, row, j] - 1, -1):
                        if not may_cut[i] or field.status[g, row, j, i] < 0:
                            continue
                        at = field.status[g, row, j, i]
                        times = field.figures[g, j, i] if at == 0 else field.special[at]
                        if (field.num_microbatches - 1) * (times[0] + times[1]) + times[2] + times[3] > work_cap:
                            break
                        suffix[t, p, i] = min(suffix[t, p, i], times[0] + times[3] + behind[t, p, j])
    return behind


@compiled
def front_tables(field: Any, behind: Any, work_cap: float, step_cap: float) -> Any:
    """Least ways in front, by state.

    Parameters
    ----------
    behind
        What :func:`behind_tables` returned.
    work_cap
        Stages that are busy longer in a step are left out.
    step_cap
        Stages and links with which no step can end by then are left out.

    Returns
    -------
    stage_in, stage_both, front_in, front_both
        [depth, pair, layer]. ``front_…[t, p, j]``: least of the layers before j and of the link to them, where a stage
        on the pair's group begins at j and its multiset is used. ``stage_…[t, p, j]``: the same where that stage is
        still to be placed and ends at j, itself included. ``in`` is the way of the first microbatch, ``both`` that and
        the way of the last gradient, or what the all-reduces and updates take if that is longer.
    """
    depths, size, last = len(field.ends), field.num_layers, max(1, field.num_microbatches - 1)
    shape = (depths, len(field.pair_group), size + 1)
    stage_in, stage_both = np.full(shape, np.inf), np.full(shape, np.inf)
    front_in, front_both = np.full(shape, np.inf), np.full(shape, np.inf)
    full = len(field.held) - 1
    for v in range(full, 0, -1):
        for p in range(field.pair_start[v], field.pair_start[v + 1]):
            g = field.pair_group[p]
            used = field.usage[g]
            for t in range(depths):
                if field.held[v - used] < t or (v > used and depths > 1 and t == 0) or (v == used and t > 0):
                    continue
                into_in, into_both = front_in[t, p], front_both[t, p]
                if field.allowed[v] and field.ends[t]:
                    into_in[0] = into_both[0] = 0.0
                ahead = t + 1 if t + 1 < depths else t
                if t + 1 < field.max_stages or depths == 1:
                    for at in range(field.pair_start[full - v], field.pair_start[full - v + 1]):
                        e = field.pair_group[at]
                        k = field.link[e, g]
                        if k < 0:
                            continue
                        q = field.pair_index[v + field.usage[e], e]
                        for j in range(1, size):
                            if stage_both[ahead, q, j] == np.inf:
                                continue
                            both = field.hops[k, 0, j] + field.hops[k, 2, j] + stage_both[ahead, q, j]
                            queue = (last if field.even else last - 1) * max(field.hops[k, 0, j], field.hops[k, 1, j])
                            if both + queue <= step_cap:  # a link is a serial resource
                                into_both[j] = min(into_both[j], both)
                                into_in[j] = min(into_in[j], field.hops[k, 0, j] + stage_in[ahead, q, j])
                row = field.row[min(t + 1, len(field.row) - 1)] if depths > 1 else 0
                n = field.held[v - used] + 1 if depths == 1 else t + 1
                _stage_rows(
                    field.status[g, row], field.figures[g], field.special, field.lowest[g, row], field.may_cut,
                    behind[t, p], into_in, into_both, stage_in[t, p], stage_both[t, p], field.num_microbatches, n,
                    v == used, field.even, field.shrinking, field.gpipe, work_cap, step_cap,
                )  # fmt: skip
    return stage_in, stage_both, front_in, front_both


@compiled
def _stage_rows(status: Any, figures: Any, special: Any, lowest: Any, may_cut: Any, behind: Any,
                into_in: Any, into_both: Any, stage_in: Any, stage_both: Any, m: int, n: int, ends: bool, even: bool,
                shrinking: bool, gpipe: bool, work_cap: float, step_cap: float) -> None:  # fmt: skip
    """Fill the rows of one state; the stage is the n-th from the end, or nearer to it."""
    size = len(may_cut) - 1
    for j in range(1, size + 1):
        rest = behind[j]
        if rest == np.inf or ends != (j == size):
            continue
        best_in, best_both = np.inf, np.inf
        for i in range(j - 1, lowest[j] - 1, -1):
            if into_both[i] == np.inf or status[j, i] < 0 or not may_cut[i]:
                continue
            times = figures[j, i] if status[j, i] == 0 else special[status[j, i]]
            f, b, f_last, b_last = times[0], times[1], times[2], times[3]
            busy = (m - 1) * (f + b) + f_last + b_last
            if busy > work_cap:
                break
            finish = times[5] + times[6]
            tail = max(into_both[i], into_in[i] + finish)
            if busy + tail > step_cap:
                continue
            pace = pace_of(m, n, even, shrinking, gpipe, f, b, f_last)
            if f + b_last + into_both[i] + rest + pace > step_cap:
                continue
            best_in = min(best_in, f + into_in[i])
            best_both = min(best_both, f + b_last + tail)
        stage_in[j], stage_both[j] = best_in, best_both


@compiled
def least_fill_plan(field: Any, tables: Any, work_cap: float, groups: Any, first: Any) -> int:
    """Write the pipeline of least way in and back from the end into ``groups`` and ``first``; its number of stages.

    ``tables`` are from :func:`front_tables` under the same ``work_cap`` and no other limits. 0 where there is none.
    """
    stage_both, front_in, front_both = tables[1], tables[2], tables[3]
    depths, full, m = len(field.ends), len(field.held) - 1, field.num_microbatches
    v, n, j, t = 0, 0, field.num_layers, 0
    while j > 0:
        best = np.inf
        chosen = -1
        for at in range(field.pair_start[full - v], field.pair_start[full - v + 1]):
            e = field.pair_group[at]
            value = stage_both[t, field.pair_index[v + field.usage[e], e], j]
            if n > 0 and value < np.inf:
                k = field.link[e, groups[n - 1]]
                if k < 0:
                    continue
                value += field.hops[k, 0, j] + field.hops[k, 2, j]
            if value < best:
                best, chosen = value, e
        if chosen < 0:
            return 0
        v += field.usage[chosen]
        p = field.pair_index[v, chosen]
        row = field.row[min(t + 1, len(field.row) - 1)] if depths > 1 else 0
        best, start = np.inf, -1
        for i in range(j - 1, field.lowest[chosen, row, j] - 1, -1):
            if not field.may_cut[i] or field.status[chosen, row, j, i] < 0:
                continue
            at = field.status[chosen, row, j, i]
            times = field.figures[chosen, j, i] if at == 0 else field.special[at]
            if (m - 1) * (times[0] + times[1]) + times[2] + times[3] > work_cap:
                break
            value = times[0] + times[3] + max(front_both[t, p, i], front_in[t, p, i] + times[5] + times[6])
            if value < best:
                best, start = value, i
        if start < 0:
            return 0
        groups[n], first[n] = chosen, start
        n, j, t = n + 1, start, min(t + 1, depths - 1)
    return n
