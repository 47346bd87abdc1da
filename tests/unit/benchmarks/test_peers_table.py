"""The comparison with other planners: what it counts, and that ours is never worse on public profiles."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import peers
from ignite_scheduler.model import MODEL_INPUT, Infeasible, Layer, LayerInput, LayerTimes, Plan, Profile
from ignite_scheduler.planner import plan
from ignite_scheduler.planner.peers import PEERS, peer_plan
from planner_quality import make_cluster, make_problem
from tables import PROFILES

STUDIES = Path(__file__).parents[3] / "studies"
SHARED = pytest.mark.skipif(not PROFILES.is_dir(), reason="no public profiles in ../shared")


def chain(seconds: list[float], num_bytes: float = 0.0) -> Profile:
    """Layers of so many seconds for the one measured size, with so many bytes of output and twice that kept."""
    return Profile(
        name="chain",
        precision="fp32",
        reference="ref",
        layers=tuple(
            Layer(
                name=f"l{i}",
                parameter_bytes=1.0,
                output_bytes=num_bytes,
                activation_bytes=2 * num_bytes,
                times={"ref": {1: LayerTimes(forward=each / 3, backward=2 * each / 3)}},
                inputs=(LayerInput(source=f"l{i - 1}" if i else MODEL_INPUT),),
            )
            for i, each in enumerate(seconds)
        ),
    )


def plan_of(step: float) -> Plan:
    found = plan(make_problem(chain([step]), make_cluster("A"), 1))
    assert isinstance(found, Plan)
    return found


def outcome(ours: float, theirs: float | None, *, tight: bool = False) -> peers.Outcome:
    found = Infeasible(code="memory", text="does not fit") if theirs is None else plan_of(theirs)
    return peers.Outcome(
        profile="p",
        layers=1,
        cluster="A",
        tight=tight,
        ours=plan_of(ours),
        straight=plan_of(ours),
        peers=dict.fromkeys(PEERS, found),
        seconds=0.0,
        peer_seconds=0.0,
    )


def test_ratios_are_summed_up_over_the_cases_that_fit() -> None:
    lines = peers.summary([outcome(1.0, 2.0), outcome(1.0, 8.0), outcome(1.0, None, tight=True)]).splitlines()
    row = next(line for line in lines if line.startswith("| gpipe |"))
    assert row == "| gpipe | 2 of 3 | 0 of 1 | 4.000 | 8.00 | 2.000 |"


def test_a_case_in_which_ours_is_worse_is_named() -> None:
    assert peers.verdict([outcome(1.0, 1.0), outcome(2.0, 3.0)]) == ["Ours is never worse than any of them in 2 cases."]
    worse = peers.verdict([outcome(2.0, 1.0)])
    assert worse[0] == f"Ours is worse than another planner {len(PEERS)} times:"
    assert "none of them has a plan" in peers.best_of_all([outcome(1.0, 2.0), outcome(1.0, None)])


def test_one_measured_size_is_taken_as_eight_samples() -> None:
    profile = chain([3.0, 6.0], num_bytes=8.0)
    found = peers.in_samples(profile)
    before = make_problem(profile, make_cluster("A"), 4)
    after = make_problem(found, make_cluster("A"), 4, samples=peers.SAMPLES)
    one, other = plan(before), plan(after)
    assert isinstance(one, Plan)
    assert isinstance(other, Plan)
    assert other.predicted.step == pytest.approx(one.predicted.step)
    assert [stage.fullest.memory for stage in other.stages] == pytest.approx([s.fullest.memory for s in one.stages])


@SHARED
@pytest.mark.parametrize("abilities", [frozenset(), peers.ABILITIES], ids=["one device a stage", "groups and workers"])
@pytest.mark.parametrize("cluster", ["A", "D"])
def test_ours_is_never_worse(cluster: str, abilities: frozenset[str]) -> None:
    for name, profile in peers.profiles(PROFILES, "dapple/amoeba-6", 50):
        for tight in (False, True):
            scale = peers.tight_scale(profile, cluster, peers.MICROBATCHES, peers.SAMPLES) if tight else float("inf")
            problem = make_problem(profile, make_cluster(cluster, scale), peers.MICROBATCHES, samples=peers.SAMPLES)
            problem = replace(problem, abilities=abilities)
            ours = plan(problem)
            assert isinstance(ours, Plan), name
            for peer in PEERS:
                found = peer_plan(problem, peer)
                if isinstance(found, Plan):
                    assert ours.predicted.step <= found.predicted.step * (1 + peers.TOLERANCE), (name, peer)


def test_the_study_prints_a_line_for_every_planner(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(STUDIES))
    import planners

    assert planners.main(["--microbatch", "4"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n{name} " in shown for name in PEERS)
    monkeypatch.delitem(sys.modules, "planners")
    one = replace(plan_of(1.0), stages=())
    assert planners.stages_text(one) == ""
