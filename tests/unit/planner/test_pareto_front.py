"""Dominance, exact hypervolume and the archive of near-equal points."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ignite_scheduler.planner.pareto.front import Archive, covers, hypervolume, nondominated

points = st.integers(1, 4).flatmap(
    lambda size: st.lists(st.tuples(*[st.integers(0, 6).map(float)] * size), min_size=1, max_size=8)
)


@settings(max_examples=200)
@given(points)
def test_hypervolume_counts_the_unit_cubes_that_are_covered(found: list[tuple[float, ...]]) -> None:
    reference = (7.0,) * len(found[0])
    cubes = product(range(7), repeat=len(reference))
    covered = sum(any(all(a <= c for a, c in zip(point, cube, strict=True)) for point in found) for cube in cubes)
    assert Fraction(hypervolume(found, reference)) == covered


@pytest.mark.parametrize("size", [2, 3])
def test_hypervolume_agrees_with_random_darts(size: int) -> None:
    source = np.random.default_rng(3)
    found = [tuple(row) for row in source.random((20, size))]
    darts = source.random((40_000, size))
    hit = np.zeros(len(darts), dtype=bool)
    for point in found:
        hit |= (darts >= np.array(point)).all(axis=1)
    assert abs(hypervolume(found, (1.0,) * size) - hit.mean()) < 0.01


def test_points_beyond_the_reference_count_nothing() -> None:
    assert hypervolume([(1.0, 9.0), (3.0, 3.0)], (3.0, 3.0)) == 0.0


@settings(max_examples=200)
@given(points)
def test_what_is_left_covers_everything_and_nothing_in_it_covers_another(found: list[tuple[float, ...]]) -> None:
    kept = nondominated(found)
    for point in found:
        assert any(covers(found[place], point) for place in kept)
    for one, other in product(kept, repeat=2):
        assert one == other or not covers(found[one], found[other])


@settings(max_examples=100)
@given(st.lists(st.tuples(st.floats(0.5, 2.0), st.integers(1, 3), st.floats(-1.0, 0.0)), min_size=1, max_size=30))
def test_the_archive_keeps_a_point_near_every_one_that_it_was_offered(found: list[tuple[float, int, float]]) -> None:
    archive: Archive[int] = Archive(0.1, (False, True, False))
    for place, (seconds, count, left) in enumerate(found):
        archive.offer((seconds, float(count), left), place)
    assert sorted(archive.held) == sorted(set(archive.held))
    for seconds, count, left in found:
        assert any(
            kept[0] <= seconds * 1.1 * (1 + 1e-9) and kept[1] <= count and kept[2] <= left + 0.1 + 1e-9
            for kept in archive.values
        )
