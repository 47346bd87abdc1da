"""Control groups of both versions, on a made-up file system."""

from pathlib import Path

import pytest

from ignite_scheduler.engine.groups import ControlGroup, open_group

FILES_1 = {"cpu": ("cpu.cfs_period_us", "cpu.cfs_quota_us"), "memory": ("memory.limit_in_bytes",)}
FILES_2 = ("cpu.max", "memory.max")


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder made below a control group has its files at once, as the kernel sees to."""
    make, remove = Path.mkdir, Path.rmdir

    def mkdir(self: Path, *args: object, **more: object) -> None:
        make(self, *args, **more)  # type: ignore[arg-type]
        controller = next((name for name in FILES_1 if name in self.parts), None)
        files = FILES_1[controller] if controller is not None else FILES_2
        for file in (*files, "cgroup.procs") if self.name.startswith("ignite") else ():
            (self / file).write_text("")

    def rmdir(self: Path) -> None:
        for file in list(self.iterdir()):
            file.unlink()
        remove(self)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(Path, "rmdir", rmdir)


def tree(tmp_path: Path, version: int) -> tuple[Path, Path]:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    if version == 1:
        for controller in ("cpu", "memory"):
            (root / controller / "user" / "me").mkdir(parents=True)
        own.write_text("4:memory:/user/me\n1:cpu,cpuacct:/user/me\n0::/\n")
    else:
        (root / "user.slice").mkdir(parents=True)
        (root / "cgroup.controllers").write_text("cpu memory\n")
        own.write_text("0::/user.slice\n")
    return root, own


@pytest.mark.usefixtures("kernel")
def test_version_1_has_a_folder_for_each_controller(tmp_path: Path) -> None:
    root, own = tree(tmp_path, 1)
    group = open_group("ignite-a", speed=0.25, memory=5e8, root=root, own=own)
    assert group is not None
    cpu, memory = (root / c / "user" / "me" / "ignite-a" for c in ("cpu", "memory"))
    assert group.folders == (cpu, memory)
    assert (cpu / "cpu.cfs_period_us").read_text() == "10000"
    assert (cpu / "cpu.cfs_quota_us").read_text() == "2500"
    assert (memory / "memory.limit_in_bytes").read_text() == "500000000"
    group.add(77)
    assert [(folder / "cgroup.procs").read_text() for folder in group.folders] == ["77", "77"]
    assert not group.killed_for_memory()
    (memory / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert group.killed_for_memory()
    group.remove()
    assert not cpu.exists()
    assert not memory.exists()


@pytest.mark.usefixtures("kernel")
def test_version_2_has_one_folder(tmp_path: Path) -> None:
    root, own = tree(tmp_path, 2)
    group = open_group("ignite-a", speed=0.5, memory=None, root=root, own=own)
    assert group == ControlGroup(folders=(root / "user.slice" / "ignite-a",))
    assert (group.folders[0] / "cpu.max").read_text() == "5000 10000"
    assert (group.folders[0] / "memory.max").read_text() == "", "not limited"
    (group.folders[0] / "memory.events").write_text("low 0\noom 1\noom_kill 2\n")
    assert group.killed_for_memory()


@pytest.mark.usefixtures("kernel")
def test_the_kernel_gives_no_less_than_a_tenth_of_a_period(tmp_path: Path) -> None:
    root, own = tree(tmp_path, 2)
    group = open_group("ignite-a", speed=0.01, memory=None, root=root, own=own)
    assert group is not None
    assert (group.folders[0] / "cpu.max").read_text() == "1000 10000"


@pytest.mark.parametrize("version", [1, 2])
def test_without_the_controller_nothing_is_left_behind(version: int, tmp_path: Path) -> None:
    """A plain file system stands for a kernel that gives us a folder but no controller in it."""
    root, own = tree(tmp_path, version)
    before = sorted(root.rglob("*"))
    assert open_group("ignite-a", speed=0.5, memory=1e9, root=root, own=own) is None
    assert sorted(root.rglob("*")) == before


def test_without_control_groups_there_is_none(tmp_path: Path) -> None:
    assert open_group("ignite-a", speed=0.5, memory=None, root=tmp_path / "no", own=tmp_path / "nothing") is None
