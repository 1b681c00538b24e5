"""A network of many layers in the debugger."""

from __future__ import annotations

from pathlib import Path

from deep_network import DEVICE, IMAGE, deep_network

from nmpsim.debugger.execution import PauseReason, ReversibleExecution


def test_snapshot_memory_is_counted_incrementally(tmp_path: Path) -> None:
    execution = ReversibleExecution(deep_network(tmp_path, 60), {"x": IMAGE}, DEVICE, budget_mib=1)
    snapshots = execution.snapshots

    def counted() -> int:
        pages = {id(page): page.nbytes for one in snapshots._kept for page in one.pages}
        records = sum(record.nbytes for one in snapshots._kept for record in one.records)
        return sum(pages.values()) + int(records)

    taken = 0
    while execution.advance().reason is not PauseReason.END:
        execution.take_snapshot()
        taken += 1
        assert snapshots.nbytes == counted() <= 1 << 20
    assert execution.trap is None
    assert len(snapshots) < taken, "some were dropped to keep to the budget"
    snapshots.remove_after(execution.position // 2)
    assert snapshots.nbytes == counted()
