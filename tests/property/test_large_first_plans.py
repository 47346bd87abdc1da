"""First plans over wide clusters are chains that the request permits, and a limit takes away no value below it."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from ignite_scheduler.model import Infeasible
from ignite_scheduler.planner import Problem
from ignite_scheduler.planner.large.alike import alike_chains
from ignite_scheduler.planner.large.ground import ground_of
from ignite_scheduler.planner.large.judge import Chain, Judge
from ignite_scheduler.planner.large.start import first_chains, lines
from ignite_scheduler.planner.request import requested
from planner_cases import problems

ABILITIES = frozenset({"replicas", "recompute", "shard", "offload"})


def grouped(problem: Problem) -> Problem:
    """The problem with groups permitted."""
    job = problem.job
    job = replace(job, pipeline=replace(job.pipeline, replicas="auto"))
    return replace(problem, job=job, abilities=ABILITIES)


@settings(max_examples=40)
@given(problem=problems(most_layers=5, most_devices=4), share=st.floats(0.5, 1.5))
def test_first_plans_are_chains_and_limits_keep_what_is_below(problem: Problem, share: float) -> None:
    """Every layer is in one stage, no device in two, and the value under a limit is the value or exceeds the limit."""
    problem = grouped(problem)
    request = requested(problem)
    if isinstance(request, Infeasible):
        return
    ground = ground_of(problem, request)
    for family in request.families:
        judge = Judge(ground.costs, ground.net, family)
        line, units = next(lines(ground, judge, 1))
        alike = alike_chains(ground, line)
        for chain in alike:
            assert all(len({int(ground.world.kind[d]) for d in group}) == 1 for group in chain.groups)
        for chain in alike + first_chains(ground, line, units, (1.0,)):
            check(chain, judge, share, ground.rows.num_layers)


def check(chain: Chain, judge: Judge, share: float, num_layers: int) -> None:
    """The laws for one chain."""
    held = [device for group in chain.groups for device in group]
    assert len(held) == len(set(held))
    assert all(chain.groups)
    ends = [*chain.first[1:], num_layers]
    assert chain.first[0] == 0
    assert all(i < j for i, j in zip(chain.first, ends, strict=True))
    value = judge.value(chain)
    if math.isinf(value):
        return
    assert judge.value(chain, value) == value
    limited = judge.value(chain, share * value)
    assert limited == value or (math.isinf(limited) and share < 1)
