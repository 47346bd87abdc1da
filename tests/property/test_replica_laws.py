"""Laws of stages on several devices. Durations are integers or fractions, so equality is exact."""

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_scheduler.cost import ring_seconds
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
from ignite_scheduler.errors import InputError
from ignite_scheduler.pipeline import Reduction, make_schedule, timeline
from pipeline_cases import alike

paces = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), min_size=1, max_size=3)


def affine(pairs):
    return [lambda u, fixed=fixed, slope=slope: fixed + slope * u for fixed, slope in pairs]


@given(st.integers(0, 7), paces, st.data())
def test_no_other_shares_finish_earlier(samples, pairs, data):
    seconds = affine(pairs)
    limits = data.draw(st.none() | st.lists(st.integers(0, 7), min_size=len(pairs), max_size=len(pairs)))
    room = limits or [samples] * len(pairs)
    others = [s for s in product(*(range(min(n, samples) + 1) for n in room)) if sum(s) == samples]
    shares = balanced_shares(samples, seconds, limits)
    if not others:
        assert shares is None
        return
    assert shares in others
    assert group_seconds(shares, seconds) == min(group_seconds(other, seconds) for other in others)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 9))
def test_equal_replicas_share_equally(replicas, each, pace):
    assert balanced_shares(replicas * each, affine([(0, pace)] * replicas)) == (each,) * replicas


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5).filter(any), st.data())
def test_weighted_means_of_replicas_are_the_mean_of_the_whole_batch(shares, data):
    gradients = [data.draw(st.lists(st.integers(-9, 9), min_size=n, max_size=n)) for n in shares]
    means = [Fraction(sum(g), len(g)) if g else Fraction(0) for g in gradients]
    whole = Fraction(sum(map(sum, gradients)), sum(shares))
    assert sum(w * mean for w, mean in zip(gradient_weights(shares), means, strict=True)) == whole
    with pytest.raises(InputError, match="at least one sample"):
        gradient_weights([0] * len(shares))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.data())
def test_a_smaller_microbatch_is_shared_as_the_full_one_to_less_than_a_sample(shares, data):
    samples = data.draw(st.integers(0, sum(shares)))
    found = last_shares(shares, samples)
    exact = [Fraction(share * samples, sum(shares)) for share in shares]
    assert sum(found) == samples
    assert all(abs(own - part) < 1 for own, part in zip(found, exact, strict=True))
    raised = [part - int(part) for own, part in zip(found, exact, strict=True) if own > part]
    lowered = [part - int(part) for own, part in zip(found, exact, strict=True) if own <= part]
    assert min(raised, default=1) >= max(lowered, default=0)
    assert last_shares(shares, sum(shares)) == tuple(shares)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=4), st.lists(st.integers(0, 6), min_size=1, max_size=4))
def test_every_sample_goes_from_its_holder_to_its_receiver(senders, receivers):
    difference = sum(senders) - sum(receivers)
    if difference:
        with pytest.raises(InputError, match="equal sums"):
            samples_between(senders, receivers)
    senders[-1] += max(-difference, 0)
    receivers[-1] += max(difference, 0)
    between = samples_between(senders, receivers)
    holder = [i for i, count in enumerate(senders) for _ in range(count)]
    reader = [j for j, count in enumerate(receivers) for _ in range(count)]
    pairs = list(zip(holder, reader, strict=True))
    assert dict(between) == {pair: pairs.count(pair) for pair in set(pairs)}
    paid = group_transfer_seconds(senders, receivers, 3, lambda i, j, size: size * (1 + i + 2 * j))
    assert paid == max((3 * count * (1 + i + 2 * j) for (i, j), count in between.items()), default=0)


@given(st.integers(2, 8), st.integers(1, 10**9), st.integers(1, 10**6), st.integers(0, 5))
def test_a_ring_of_equal_links_is_the_ring_formula(members, num_bytes, bandwidth, latency):
    links = [lambda size: latency + size / bandwidth] * members
    assert ring_over(num_bytes, links) == pytest.approx(ring_seconds(num_bytes, bandwidth, latency, members))
    slower = [*links[:-1], lambda size: latency + 2 * size / bandwidth]
    assert ring_over(num_bytes, slower) >= ring_over(num_bytes, links)
    assert ring_over(num_bytes, links[:1]) == 0


stage_times = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=4)


@given(stage_times, st.integers(1, 6), st.integers(1, 4), st.integers(1, 4))
def test_equal_replicas_on_free_links_are_one_device_with_their_part_of_each_microbatch(times, count, replicas, each):
    """A group of r replicas with r·u samples a microbatch takes the step of one device with u."""
    schedule = make_schedule("1f1b", len(times), count)

    def group(pace):
        seconds = affine([(0, pace)] * replicas)
        shares = balanced_shares(replicas * each, seconds)
        return group_seconds(shares, seconds)

    free = [0] * (len(times) - 1)
    together = alike([group(f) for f, _ in times], [group(b) for _, b in times], free, free, count)
    alone = alike([each * f for f, _ in times], [each * b for _, b in times], free, free, count)
    assert timeline(schedule, together).step == timeline(schedule, alone).step


@given(st.lists(stage_times, min_size=1, max_size=3), st.integers(1, 5), st.integers(0, 9), st.integers(0, 3))
def test_parallel_pipelines_end_with_the_slowest_and_then_reduce(several, count, reduction, transfer):
    width = min(map(len, several))
    schedule = make_schedule("1f1b", width, count)
    cuts = [transfer] * (width - 1)
    replicas = [
        alike([f for f, _ in times[:width]], [b for _, b in times[:width]], cuts, cuts, count) for times in several
    ]
    everyone = tuple(range(width * len(replicas)))
    joined = parallel_pipelines(schedule, replicas, [Reduction(stages=everyone, seconds=reduction)])
    steps = [timeline(schedule, durations).step for durations in replicas]
    assert timeline(*joined).step == max(steps) + reduction
    assert timeline(*parallel_pipelines(schedule, replicas)).step == max(steps)
    with pytest.raises(InputError, match="at least one pipeline"):
        parallel_pipelines(schedule, [])
