"""What the process may use of its machine: the time that its control group grants, and the caches that the system names."""

from pathlib import Path

import pytest

from uops.backends.host import read_cgroup_cpu_quota, read_data_cache_sizes


def files(folder: Path, text: dict[str, str]) -> Path:
    for name, line in text.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(line + "\n")
    return folder


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ({}, None),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "200000 100000"}, 2),
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "20000 100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
    ],
)
def test_a_quota_is_rounded_up_to_cores(tmp_path: Path, text: dict[str, str], cores: int | None) -> None:
    assert read_cgroup_cpu_quota(files(tmp_path, text)) == cores


def test_data_caches_stand_in_the_order_of_their_levels(tmp_path: Path) -> None:
    levels = {"index0": ("1", "Data", "32K"), "index1": ("1", "Instruction", "32K"), "index2": ("2", "Unified", "1M")}
    text = {f"{k}/{name}": v for k, row in levels.items() for name, v in zip(("level", "type", "size"), row, strict=True)}
    assert read_data_cache_sizes(files(tmp_path, text)) == (32 << 10, 1 << 20)
    assert read_data_cache_sizes(tmp_path / "nowhere") == ()
