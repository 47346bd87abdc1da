"""The program, and what it says of the public files where they lie beside the repository."""

import pytest

import public_plans
from published import arena_report, sailor_report, vtrain_report
from published.sailor_files import Sailor
from published.vtrain import Node, fit, read_points
from tables import by_group, summary

beside = pytest.mark.skipif(
    not public_plans.SHARED.is_dir(), reason="the public profiles and traces are not beside the repository"
)


def test_quantiles_are_of_absolute_errors():
    assert summary([-0.3, 0.1, 0.2]).median == pytest.approx(0.2)
    assert str(summary([-0.5])) == "1 points: median 50.0%, 90th percentile 50.0%, worst 50.0%"
    assert by_group([("a", 0.1), ("b", -0.2), ("a", 0.3)], "kind").splitlines()[2].startswith("| a | 2 | 20.0%")
    with pytest.raises(ValueError, match="at least one"):
        summary([])


def test_a_wrong_input_is_one_line_and_exit_2(tmp_path, capsys):
    assert public_plans.main(["--arena", str(tmp_path)]) == 2
    assert public_plans.main(["--sailor", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split(": ")[1] for line in err.splitlines()] == [
        "expected plan_profiles/*.csv, found none",
        "expected plans in measured/CLUSTER/*.json, found none",
    ]


@beside
@pytest.mark.slow
def test_sailors_plans_are_within_the_bar_with_nothing_fitted():
    data = Sailor(public_plans.SHARED / "profiles" / "sailor")
    found = sailor_report.rows(data, data.plans())
    assert len(found) == 18
    assert all(isinstance(row, sailor_report.Row) and row.explained for row in found)
    for cluster in ("clariden-OPT-350", "mit"):  # each without the other: nothing is fitted on either
        errors = [row.error for row in found if row.counted and row.plan.cluster == cluster]
        assert summary(errors).median <= 0.12
    errors = [row.error for row in found if row.counted]
    assert len(errors) == 17
    assert summary(errors).median <= 0.06
    assert sum(abs(error) > sailor_report.OUTLIER for error in errors) <= 1


@beside
@pytest.mark.slow
def test_vtrains_pipelines_are_predicted_from_points_without_one():
    points = read_points(public_plans.SHARED / "traces" / "vtrain" / "ground_truth_single.csv")
    found = vtrain_report.guesses(points, fit(points), Node())
    assert len(found) == 1440
    assert vtrain_report.pipelined(found).median <= 0.05
    assert summary(guess.error for guess in vtrain_report.without_own_size(points, Node())).median <= 0.12


@beside
def test_arenas_plans_are_predicted_from_each_other():
    book, _ = arena_report.read(public_plans.SHARED / "traces" / "arena")
    assert summary(error for _, error in arena_report.one_stage_errors(book)).median <= 0.08
    assert summary(error for _, error in arena_report.kind_errors(book, "a100")).median <= 0.12


@beside
def test_one_file_of_plans_is_enough(capsys, tmp_path):
    plan = public_plans.SHARED / "profiles" / "sailor" / "measured" / "mit" / "plan_config_N2_D1.json"
    assert public_plans.main(["--plans", str(plan), "--model", "OPT-350", "--write", str(tmp_path / "r.md")]) == 0
    assert "| mit N2_D1 | 119.84 |" in capsys.readouterr().out
    assert "not depend on the machine" in (tmp_path / "r.md").read_text(encoding="utf-8")
