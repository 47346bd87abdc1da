"""Which of several dead ranks is the cause."""

import subprocess
import sys

import pytest

from ignite_scheduler.engine.blame import Trouble, find_cause

LOST_1 = Trouble(kind="peer", reason="lost contact with rank 1", peer=1)
LOST = Trouble(kind="peer", reason="lost contact while adding up the loss")
RAISED = Trouble(kind="job", reason="layer 'fc' raised", layer="fc")
FULL = Trouble(kind="device", reason="out of memory")


@pytest.mark.parametrize(
    ("codes", "troubles", "rank", "fault", "words"),
    [
        ([4, -9, 4], {0: LOST_1, 2: LOST_1}, 1, "device", "died: signal 9 (SIGKILL)"),
        ([4, 3, -9], {0: LOST_1, 1: RAISED}, 1, "job", "layer 'fc' raised"),
        ([4, 3, None], {0: LOST_1, 1: FULL}, 1, "device", "out of memory"),
        ([None, 1, 4], {2: LOST_1}, 1, "device", "exited with status 1 without a word"),
        ([4, None], {0: LOST_1}, 1, "device", "fell silent, says rank 0: lost contact with rank 1"),
        ([4, 4], {0: LOST_1, 1: LOST}, 0, "device", "lost contact with rank 1"),
        ([4, None], {0: LOST}, 1, "device", "fell silent, says rank 0: lost contact while adding up the loss"),
        ([4, None, None], {0: LOST}, 0, "device", "lost contact while adding up the loss"),
        ([None, -250], {}, 1, "device", "died: signal 250"),
    ],
)
def test_the_cause_is_told_from_those_who_suffered(
    codes: list[int | None], troubles: dict[int, Trouble], rank: int, fault: str, words: str
) -> None:
    cause = find_cause(codes, troubles)
    assert (cause.rank, cause.fault, cause.reason) == (rank, fault, words)


def test_a_layer_that_raised_is_passed_on() -> None:
    assert find_cause([3, 4], {0: RAISED, 1: LOST_1}).layer == "fc"


def test_the_supervisors_side_does_not_load_torch() -> None:
    modules = "gang, reports, saved, specification"
    code = f"import sys; from ignite_scheduler.engine import {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
