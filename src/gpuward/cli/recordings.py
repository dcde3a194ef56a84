"""Where the flight recorder writes unless it is told."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from gpuward.kube.config.access import Access

DIGITS = 8
"""Of the digest in a cluster's name: enough to tell the clusters of one person apart."""


def own_folder(environ: Mapping[str, str], access: Access) -> Path:
    """Return the recorder's folder for a cluster: in the user's home, and only without one where others write too."""
    cluster = cluster_name(access)
    if state := environ.get("XDG_STATE_HOME"):
        return Path(state, "gpuward", "recorder", cluster)
    home = Path(environ.get("HOME") or "/")
    if home != Path("/") and os.access(home, os.W_OK):
        return home / ".local" / "state" / "gpuward" / "recorder" / cluster
    # Not a folder in one of ours: who has made that before us could replace what is in it.
    return Path(environ.get("TMPDIR") or "/tmp", f"gpuward-recorder-{os.geteuid()}-{cluster}")


def cluster_name(access: Access) -> str:
    """Name a cluster by its server and by whom that is trusted: several clusters may have 127.0.0.1:6443, one after the other."""
    place = re.sub(r"[^A-Za-z0-9.-]", "_", urlsplit(access.server).netloc.rpartition("@")[2])
    digest = hashlib.sha256(access.server.encode() + b"\0" + access.trust.read_authority())
    return f"{place}-{digest.hexdigest()[:DIGITS]}"
