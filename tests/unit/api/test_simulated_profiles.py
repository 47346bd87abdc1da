"""A workload whose profiles are missing is refused by file and line before anything is played."""

import json
from pathlib import Path

import pytest

from ignite_scheduler import api
from ignite_scheduler.errors import DocumentError
from queue_jobs import cluster

TABLE = {"submit_s": 0, "name": "first", "rates": {"V:1": 1.0}, "total": 1}
TRAINING = {"submit_s": 1, "name": "second", "model": {"profile": "gone.json"}, "batch": {"global": 8}, "steps": 3}


def test_a_missing_profile_is_named_with_the_line_that_asks_for_it(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in (TABLE, TRAINING)))
    with pytest.raises(DocumentError, match=r"gone\.json") as caught:
        api.simulate(path, cluster({"a": {"V": 1}}), policies=["fifo"])
    assert (caught.value.file, caught.value.line, caught.value.field) == (str(path), 2, "model.profile")
