"""The generated pages are those that the code writes today."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def pages():
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PAGES


@pytest.mark.parametrize("name", ["cli.md", "states.md", "zoo.md"])
def test_page_is_current(name):
    if name == "zoo.md":
        pytest.importorskip("torch")
    assert (DOCS / name).read_text(encoding="utf-8") == pages()[name](), "run `make docs`"
