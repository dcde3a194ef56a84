"""What cannot be noted on policies about the waves of their rollouts."""

from __future__ import annotations

from typing import Final

from gpuward.model.snapshot import Snapshot, Untaken

UNNOTED: Final = "how its waves stand cannot be noted on"

def unnoted(snapshot: Snapshot) -> str:
    """Say which policy may not be written to, and why: what is known of its waves goes with their nodes, or in a restart."""
    policies = [("ClusterPolicy", view) for view in snapshot.policies] + [("NVIDIADriver", view) for view in snapshot.drivers]
    for kind, view in policies:
        found = snapshot.untaken.get(Untaken.key(kind, view.ref))
        if found is not None and found.hash == view.uid and found.count >= found.SURE:
            return (f"{UNNOTED} {kind} {view.name}, so that a wave that loses all its nodes, or an "
                    f"analysis, is not remembered: {found.message}")
    return ""
