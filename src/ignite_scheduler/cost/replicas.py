"""A stage on several, maybe unlike devices: shares of samples, transfers between groups, pipelines side by side.

Two ways of working are told apart. In a *group* each microbatch is split among the replicas of a stage and all of them
finish before the next stage reads: its seconds are those of the slowest share, and between two groups each receiver
gets its samples from the senders that hold them. *Parallel pipelines* have microbatches of their own and meet only in
the all-reduce of their gradients, as in usual data parallelism.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from heapq import heapify, heappop, heapreplace
from itertools import chain

from ignite_scheduler.cost.communication import ring_seconds
from ignite_scheduler.errors import InputError
from ignite_scheduler.pipeline import Durations, Reduction, Schedule
from ignite_scheduler.pipeline.timeline import Number


def balanced_shares(
    samples: int, seconds: Sequence[Callable[[int], Number]], limits: Sequence[int] | None = None
) -> tuple[int, ...] | None:
    """Samples for each replica such that the slowest is done as early as possible; None if they do not fit.

    Parameters
    ----------
    seconds
        For each replica, its seconds for a number of samples ≥ 1; never falling with the number.
    limits
        The most samples that each replica's memory holds; None = any number.

    Returns
    -------
    tuple of int
        Sums to ``samples``; 0 leaves a replica out. Proportional to speed where seconds are proportional to samples,
        shifted off replicas at their limit.

    Notes
    -----
    Each sample goes where it would be done first; for seconds that never fall this minimises the largest of them.
    O(samples · log replicas). Equal choices go to the replica that stands first.

    >>> balanced_shares(8, [lambda u: u, lambda u: 3 * u])
    (6, 2)
    >>> balanced_shares(8, [lambda u: u, lambda u: 3 * u], limits=[4, 8])
    (4, 4)
    """
    if samples < 0 or not seconds:
        raise InputError(f"expected at least 0 samples and 1 replica, found {samples} and {len(seconds)}")
    room = [samples] * len(seconds) if limits is None else [min(limit, samples) for limit in limits]
    if sum(room) < samples:
        return None
    shares = [0] * len(seconds)
    heap = [(seconds[i](1), i) for i in range(len(seconds)) if room[i] > 0]
    heapify(heap)
    for _ in range(samples):
        _, i = heap[0]
        shares[i] += 1
        if shares[i] < room[i]:
            heapreplace(heap, (seconds[i](shares[i] + 1), i))
        else:
            heappop(heap)
    return tuple(shares)


def last_shares(shares: Sequence[int], samples: int) -> tuple[int, ...]:
    """Each replica's share of a microbatch of another size than the full one; 0 leaves a replica out of it.

    In proportion to the full shares, rounded down; what is left goes to the largest remainders, among equals to the
    replica that stands first.

    >>> last_shares((4, 2, 1), 3)
    (2, 1, 0)
    """
    full = sum(shares)
    found = [share * samples // full for share in shares]
    order = sorted(range(len(shares)), key=lambda i: (-(shares[i] * samples % full), i))
    for i in order[: samples - sum(found)]:
        found[i] += 1
    return tuple(found)


def group_seconds(shares: Sequence[int], seconds: Sequence[Callable[[int], Number]]) -> Number:
    """Seconds of a group for one microbatch: those of its slowest replica; replicas without samples do nothing."""
    return max((time(share) for share, time in zip(shares, seconds, strict=True) if share), default=0)


def gradient_weights(shares: Sequence[int]) -> tuple[Fraction, ...]:
    """What each replica's mean gradient counts for in that of the whole batch: its part of the samples.

    Raises
    ------
    InputError
        There is no sample at all.

    >>> gradient_weights((3, 1))
    (Fraction(3, 4), Fraction(1, 4))
    """
    total = sum(shares)
    if total < 1:
        raise InputError(f"expected at least one sample among the replicas, found shares {tuple(shares)}")
    return tuple(Fraction(share, total) for share in shares)


def samples_between(senders: Sequence[int], receivers: Sequence[int]) -> Mapping[tuple[int, int], int]:
    """How many samples go from each sender to each receiver, by (sender, receiver); pairs without any are left out.

    Both groups hold the samples of a microbatch in the same order, each replica a run of them.

    Raises
    ------
    InputError
        The two groups do not hold equally many samples.

    >>> samples_between((4, 4), (2, 6))
    {(0, 0): 2, (0, 1): 2, (1, 1): 4}
    """
    if sum(senders) != sum(receivers):
        raise InputError(f"expected equal sums of samples, found {sum(senders)} sent and {sum(receivers)} received")
    found: dict[tuple[int, int], int] = {}
    wanted = [(j, count) for j, count in enumerate(receivers) if count]
    wanted.reverse()
    for i, held in enumerate(senders):
        left = held
        while left:
            j, count = wanted.pop()
            found[i, j] = common = min(left, count)
            left -= common
            if count > common:
                wanted.append((j, count - common))
    return found


def group_transfer_seconds(
    senders: Sequence[int],
    receivers: Sequence[int],
    bytes_per_sample: float,
    link_seconds: Callable[[int, int, float], Number],
) -> Number:
    """Seconds until all receivers have their samples of one microbatch: those of the busiest link.

    Parameters
    ----------
    link_seconds
        Seconds for one message from a sender to a receiver, by their positions and the bytes.
    """
    loads = samples_between(senders, receivers)
    return max((link_seconds(i, j, count * bytes_per_sample) for (i, j), count in loads.items()), default=0)


def ring_over(num_bytes: float, links: Sequence[Callable[[float], float]]) -> float:
    """Seconds of a ring all-reduce over these links, one from each member to the next: the slowest sets the pace.

    Parameters
    ----------
    num_bytes
        What each member reduces.
    links
        For each member, seconds for a message of some bytes to its neighbour. One member alone has nothing to do.

    Notes
    -----
    2(r−1) rounds, in each of which every link carries 1/r of the bytes. With links of one bandwidth and latency this is
    :func:`ring_seconds`.
    """
    members = len(links)
    if members < 2:
        return 0.0
    slowest = max(link(num_bytes / members) for link in links)
    return ring_seconds(0.0, 1.0, slowest, members)


def parallel_pipelines(
    schedule: Schedule, replicas: Sequence[Durations], reductions: Sequence[Reduction] = ()
) -> tuple[Schedule, Durations]:
    """One timeline of pipelines side by side, each with its own durations, that meet in ``reductions``.

    Parameters
    ----------
    schedule
        What every pipeline does.
    replicas
        Durations of each pipeline, for the stages of ``schedule``.
    reductions
        All-reduces among the stages of all pipelines; they come after those of the pipelines themselves.

    Returns
    -------
    tuple
        Schedule and durations of ``len(replicas) · S`` stages: stage s of replica r is number r·S + s. Wires of
        different pipelines are different.
    """
    if not replicas:
        raise InputError("expected at least one pipeline, found none")
    width = schedule.num_stages
    rows = tuple(
        tuple(action._replace(stage_index=r * width + action.stage_index) for action in row)
        for r in range(len(replicas))
        for row in schedule.rows
    )
    edges = tuple(
        replace(
            edge,
            source=r * width + edge.source,
            target=r * width + edge.target,
            forward_wire=(r, edge.forward_wire),
            backward_wire=(r, edge.backward_wire),
        )
        for r, durations in enumerate(replicas)
        for edge in durations.edges
    )
    own = [
        replace(reduction, stages=tuple(r * width + stage for stage in reduction.stages))
        for r, durations in enumerate(replicas)
        for reduction in durations.reductions
    ]
    weights = [durations.weight_backward for durations in replicas]
    joined = Durations(
        forward=tuple(chain.from_iterable(durations.forward for durations in replicas)),
        backward=tuple(chain.from_iterable(durations.backward for durations in replicas)),
        edges=edges,
        finish=tuple(chain.from_iterable(durations.finish for durations in replicas)),
        reductions=(*own, *reductions),
        weight_backward=None if None in weights else tuple(chain.from_iterable(w for w in weights if w is not None)),
    )
    return replace(schedule, num_stages=width * len(replicas), rows=rows), joined
