"""The clock of a live run: counts from the run's origin, through restarts, and never falls while a process lives."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ignite_scheduler.daemon import clock as our


def test_it_counts_from_the_origin_and_takes_no_notice_of_a_wall_clock_that_is_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wall, monotonic = [1000.0], [7.0]
    monkeypatch.setattr(our, "time", SimpleNamespace(time=lambda: wall[0], monotonic=lambda: monotonic[0]))
    clock = our.WallClock(origin=990.0)
    assert clock.now() == 10.0
    wall[0], monotonic[0] = 500.0, 9.0
    assert clock.now() == 12.0
    wall[0], monotonic[0] = 1100.0, 0.5  # another process, after a restart of the machine
    assert our.WallClock(origin=990.0).now() == 110.0
