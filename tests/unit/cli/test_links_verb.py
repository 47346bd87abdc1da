"""``ignite links``: usage, and how a measurement reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from ignite_scheduler.cli import ignite
from ignite_scheduler.cli.link_tables import parts
from ignite_scheduler.formats import parse_cluster
from ignite_scheduler.model import Link
from ignite_scheduler.profiler.links import Endpoint, LinksMeasured, NodePair, Options, PairLink, Spread, fit_line
from ignite_scheduler.profiler.links.crew import measure_here

CLUSTER = """
version: 1
name: pair
nodes:
  - name: a
    devices: [{kind: box, memory: 8GB}]
  - name: b
    devices: [{kind: box, memory: 4GB}]
links:
  pairs: [{from: a, to: b, bandwidth: 1Gbit/s, latency: 1ms}]
"""


def call(*arguments: str) -> Result:
    return CliRunner().invoke(ignite, ["links", *arguments], prog_name="ignite")


def test_declared_links_are_shown(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CLUSTER)

    shown = call("-c", str(tmp_path / "c.yaml")).stdout

    assert "125MB/s" in shown
    assert "none" in shown  # the way back


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--cluster FILE"),
        (["measure", "--join", "h:1"], "--rank and --world"),
        (["measure", "--rank", "1"], "--join"),
        (["measure", "--join", "h", "--rank", "0", "--world", "2"], "HOST:PORT"),
        (["measure", "--join", "h:1", "--rank", "3", "--world", "2"], "3 of 2"),
        (["measure", "--sizes", "4,8"], "4KiB"),
        (["measure", "--sizes", "1MiB"], "at least 2 sizes"),
        (["measure", "--write", "/no/such/folder/links.yaml"], "no folder"),
        (["measure", "--join", "h:1", "--rank", "0", "--world", "2", "--device", "box"], "NODE/ID"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_measured(arguments: list[str], said: str) -> None:
    result = call(*arguments)

    assert result.exit_code == 2
    assert said in result.stderr


def test_too_few_or_unlinked_devices_are_refused() -> None:
    one = {"version": 1, "name": "c", "nodes": [{"name": "a", "devices": [{"kind": "box", "memory": "1GB"}]}]}
    with pytest.raises(ValueError, match="at least 2 devices"):
        measure_here(parse_cluster(one), Options())

    devices = [{"kind": "box", "count": 2, "memory": "1GB"}]
    nodes = [{"name": "a", "devices": devices}, {"name": "b", "devices": [{"kind": "box", "memory": "1GB"}]}]
    elsewhere = {"pairs": [{"within": "b", "bandwidth": "1GB/s"}]}
    with pytest.raises(ValueError, match="no two devices"):
        measure_here(parse_cluster({"version": 1, "name": "c", "nodes": nodes, "links": elsewhere}), Options())


def measured() -> LinksMeasured:
    a, b = Endpoint(device="a/x", node="a"), Endpoint(device="b/x", node="b")
    pairs = []
    for source, target, bandwidth in ((a, b, 1e8), (b, a, 1e7)):
        times = {size: 1e-3 + size / bandwidth for size in (4096, 1048576)}
        pairs.append(
            PairLink(
                source=source,
                target=target,
                by_size={s: Spread(typical=t, median=t, low=t, high=2 * t, count=9) for s, t in times.items()},
                fit=fit_line(times),
                stream=bandwidth,
                congestion=1.25,
                played=Link(bandwidth=bandwidth, latency=1e-3, wire=0),
            )
        )
    nodes = (NodePair(source="a", target="b", sharing=0.9), NodePair(source="b", target="a", sharing=None))
    return LinksMeasured(
        endpoints=(a, b), pairs=tuple(pairs), node_pairs=nodes, options=Options(), one_clock=True, provenance={}
    )


def read(*, wide: bool) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        for part in parts(measured(), wide=wide):
            console.print(part)
    return capture.get()


def test_a_measurement_says_what_is_emulated_asymmetric_and_congested() -> None:
    text = read(wide=False)

    assert "emulated" in text
    assert "asymmetric: a/x → b/x" in text
    assert "congested: pairs from a to b" in text
    assert "{from: a, to: b, bandwidth: 100MB/s, latency: 1ms, shared: true}" in text
    assert "1.048576MB" not in text


def test_the_wide_form_has_every_size_with_spread_and_residual() -> None:
    text = read(wide=True)

    assert "1MiB" in text
    assert "11.49ms … 22.97ms" in text
    assert "+0.0 %" in text or "-0.0 %" in text
