"""What `gpuward drivers` shows on terminals of several widths."""

from __future__ import annotations

import msgspec
import pytest
from rich.console import Console

from gpuward.cli.drivers import pool_table
from gpuward.report.groups import Group
from gpuward.report.nodes import GroupReport
from gpuward.report.pools import PoolReport

POOL = PoolReport(
    "ClusterPolicy cluster-policy", "nvidia-driver-daemonset", target="595.91.08", nodes=("gpu-1", "gpu-2"),
    loaded={"595.91.07": 1, "595.91.08": 1}, kernels={"5.15.0-101-generic": 1, "6.8.0-1021-nvidia": 1}, up_to_date=1,
    groups=(GroupReport(Group.HELD, 1),), held={"NewDriverFails": 1})


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_word_is_broken_in_two(width: int) -> None:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(pool_table([POOL, POOL], width))
    text = capture.get()
    assert max(map(len, text.splitlines())) <= width
    for word in ("ClusterPolicy", "cluster-policy", "595.91.07", "5.15.0-101-generic", "6.8.0-1021-nvidia", "NewDriverFails"):
        assert text.count(word) >= 2, (word, text)


@pytest.mark.parametrize("width", [70, 80, 90, 120])
def test_a_count_stays_with_what_it_counts(width: int) -> None:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(pool_table([POOL], width))
    assert not any(line.strip().startswith("(") for line in capture.get().splitlines()), capture.get()
    assert all(counted in capture.get() for counted in ("5.15.0-101-generic (1)", "6.8.0-1021-nvidia (1)", "595.91.08 (1)"))


@pytest.mark.parametrize("width", range(80, 160))
def test_no_column_is_cut_by_the_edge_of_the_terminal(width: int) -> None:
    held = msgspec.structs.replace(
        POOL, loaded={"595.91.07": 11, "none": 1}, kernels={"5.15.0-101-generic": 6, "6.8.0-45-generic": 6},
        groups=(GroupReport(Group.UNDER_WAY, 1), GroupReport(Group.STOPPED, 11)),
        held={"NewDriverFails": 11, "DevicePluginStopping": 1})
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(pool_table([held], width))
    text = capture.get()
    assert all(counted in text for counted in ("NewDriverFails (11)", "DevicePluginStopping (1)")), text
