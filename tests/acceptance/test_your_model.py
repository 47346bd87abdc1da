"""docs/your_model.md is what happens: its files and commands, with fewer steps and repeats."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "your_model.md"
IGNITE = Path(sys.executable).parent / "ignite"
QUICKER = {"profile": ["--samples", "4", "--repeats", "2"]}

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        find_spec("transformers") is None, reason="needs transformers: pip install 'ignite-scheduler[hf]'"
    ),
]


def test_the_page_is_what_happens(tmp_path: Path) -> None:
    text = PAGE.read_text()
    files = dict(re.findall(r"`(\w+\.yaml)` says.*?```yaml\n(.*?)```", text, re.DOTALL))
    assert set(files) == {"job.yaml", "cluster.yaml"}
    for name, content in files.items():
        (tmp_path / name).write_text(content.replace("steps: 30", "steps: 3"))
    commands = [line.split()[2:] for line in text.splitlines() if line.startswith("$ ignite") and "doctor" not in line]
    assert [command[0] for command in commands] == ["profile", "plan", "run"]
    for command in commands:
        arguments = [*command, *QUICKER.get(command[0], [])]
        done = subprocess.run(
            [IGNITE, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path, env=os.environ
        )
        assert done.returncode == 0, done.stderr
    measured = json.loads((tmp_path / "little-gpt2.profile.json").read_text())
    names = [layer["name"] for layer in measured["layers"]]
    assert names == re.findall(r"^((?:transformer\.|lm_)\S+) +\S+B ", text, re.MULTILINE)
    assert measured["tied"] == [["transformer.wte", "lm_head"]]
    (metrics,) = tmp_path.glob("runs/*/jobs/*/metrics.jsonl")
    losses = [json.loads(line)["loss"] for line in metrics.read_text().splitlines()]
    assert len(losses) == 3
    assert losses[2] < losses[0]
