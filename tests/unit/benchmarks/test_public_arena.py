"""Arena's plans: small tables of the same format, worked by hand."""

from fractions import Fraction

import pytest

from ignite_scheduler.errors import InputError
from published.arena import MICROBATCHES, Work, pipeline_seconds, read_measured, read_rows, stretch
from published.arena_report import read, report

HEAD = "model,params,global_batch,gpu_type,nodes,gpus_per_node,pp,dp,tp,compute_s,intra_stage_comm_s,inter_stage_comm_s"
LINES = [
    "bert,1B,256,a100,1,1,1,1,1,16,0,0,16",
    "bert,1B,256,a100,1,2,2,1,1,8.5,0,0.25,8.75",
    "bert,1B,256,a40,1,1,1,1,1,32,0,0,32",
    "bert,1B,256,a40,1,2,1,2,1,inf,nan,nan,inf",
    "bert,1B,256,h900,1,1,1,1,1,4,0,0,4",
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "plan_profiles").mkdir()
    (tmp_path / "plan_profiles" / "bert_1B.csv").write_text("\n".join([f"{HEAD},iteration_s", *LINES]) + "\n")
    return tmp_path


@pytest.mark.parametrize("stages", [1, 2, 4, 8])
def test_equal_stages_on_free_links_take_their_textbook_time(stages):
    expected = 12 * Fraction(MICROBATCHES + stages - 1, stages * MICROBATCHES)
    assert pipeline_seconds(12.0, (0.0, 0.0), stages) == pytest.approx(float(expected))
    assert pipeline_seconds(12.0, (3.0, 0.0), stages) == pytest.approx(float(expected) + 3)


def test_transfers_of_a_pipeline_lengthen_it_by_their_own_time_at_most():
    free = pipeline_seconds(12.0, (0.0, 0.0), 4)
    assert free < pipeline_seconds(12.0, (0.0, 1.0), 4) <= free + 1


def test_another_kind_of_gpu_takes_the_mean_of_both_ratios_of_the_roofline():
    assert stretch("bert", "a100", "a100") == 1
    assert stretch("bert", "a100", "a40") == pytest.approx((312 / 149.7 * 1555 / 696) ** 0.5)
    assert stretch("wide_resnet", "a100", "a40") == pytest.approx((19.5 / 37.4 * 1555 / 696) ** 0.5)
    with pytest.raises(InputError, match="no data sheet of GPU 'h900'; there are: a100, v100, a40, a10"):
        stretch("bert", "a100", "h900")


def test_plans_that_do_not_fit_are_left_out_and_the_others_predicted_from_each_other(folder):
    book, measured = read(folder)
    assert len(book.rows) == 4
    assert measured == []
    (pair,) = [row for row in book.rows if row.degrees[0] == 2]
    assert book.from_one_stage(pair) == pytest.approx(pipeline_seconds(16.0, (0.0, 0.25), 2))
    (a40,) = [row for row in book.rows if row.work.gpu == "a40"]
    assert book.compute_from("a100", a40) == pytest.approx(16 * stretch("bert", "a100", "a40"))


def test_measured_iterations_are_predicted_from_what_is_nearest(folder):
    lines = [
        "bert,1B,256,a40,1,1,1,1,1,40",  # its own row
        "bert,1B,256,a40,1,2,2,1,1,20",  # the row of a100
        "bert,1B,256,a40,1,4,4,1,1,10",  # the plan with one stage
        "bert,9B,256,a40,1,1,1,1,1,40",  # nothing
        "bert,1B,256,h100,1,1,1,1,1,40",  # no data sheet
    ]
    head = HEAD.partition(",compute_s")[0]
    (folder / "ground_truth_iterations.csv").write_text("\n".join([f"{head},measured_s", *lines]) + "\n")
    book, measured = read(folder)
    found = [book.guess(row) for row in measured[:4]]
    assert found[0] == (32.0, "its own row")
    assert found[1] == (pytest.approx(8.5 * stretch("bert", "a100", "a40") + 0.25), "the row of a100")
    assert found[2][0] == pytest.approx(32 * 19 / (4 * 16))
    assert found[3] is None
    text = report(book, measured)
    assert "Measured iterations: 3 predicted, 2 that no row says anything about" in text
    assert "no data sheet of GPU 'h100'" in text
    assert "No data sheet of h900: nothing is predicted" in text


def test_measured_rows_may_leave_out_what_the_readme_gives(tmp_path):
    file = tmp_path / "ground_truth.csv"
    head, line = "model,params,global_batch,pp,dp,tp", "bert,1B,256,1,2,1"
    file.write_text(f"{head},iteration_s\n{line},3.5\n")
    (row,) = read_measured(file)
    assert (row.work, row.layout, row.iteration) == (Work(model="bert", params="1B", batch=256, gpu="a40"), None, 3.5)
    file.write_text(f"{head},estimated_s,measured_s\n{line},9,3.5\n")
    assert [again.iteration for again in read_measured(file)] == [3.5]


@pytest.mark.parametrize("reader", [read_rows, read_measured])
def test_a_malformed_table_is_refused_with_its_line(tmp_path, reader):
    file = tmp_path / "rows.csv"
    file.write_text("model,params,global_batch,gpu_type,pp\nbert,1B,many,a40,1\n")
    with pytest.raises(InputError, match=r"rows\.csv:2: expected"):
        reader(file)
    with pytest.raises(InputError, match=r"plan_profiles/\*\.csv, found none"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("pp", "iteration", "message"),
    [("0", "1", "batch and degrees"), ("1", "-1", "an iteration that takes some"), ("1", "nan", "takes some")],
)
def test_figures_that_cannot_be_are_refused_with_their_line(tmp_path, pp, iteration, message):
    file = tmp_path / "rows.csv"
    head = "model,params,global_batch,gpu_type,nodes,gpus_per_node,pp,dp,tp"
    parts = "compute_s,intra_stage_comm_s,inter_stage_comm_s,iteration_s"
    file.write_text(f"{head},{parts}\nbert,1B,8,a40,1,1,{pp},1,1,1,0,0,{iteration}\n")
    with pytest.raises(InputError, match=rf"rows\.csv:2: .*{message}"):
        read_rows(file)
