"""Read the ClusterPolicy that a command is given."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gpuward.errors import InputError


def read_policy(file: str) -> Mapping[str, Any]:
    """Return the first ClusterPolicy of a YAML file.

    Raises:
        InputError: the file cannot be read, or has none.
    """
    try:
        documents = list(yaml.safe_load_all(Path(file).read_text(encoding="utf-8")))
        json.dumps(documents, default=str, skipkeys=True)
    except OSError as error:
        raise InputError("--policy", file, f"name a file that can be read: {error.strerror}") from error
    # A date that no calendar has is a ValueError, as is an alias of what it is in.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError("--policy", file, f"write valid YAML: {' '.join(str(error).split())}") from error
    for document in documents:
        if isinstance(document, Mapping) and document.get("kind") == "ClusterPolicy":
            if not (document.get("metadata") or {}).get("name"):
                raise InputError("metadata.name", None, f"give the ClusterPolicy in {file} a name")
            return document
    raise InputError("--policy", file, "name a file with a ClusterPolicy in it")
