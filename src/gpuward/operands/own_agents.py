"""Containers that run gpuward's own validator or driver manager: a policy that names gpuward's image for them gets these."""

from __future__ import annotations

import re
from typing import Final

from gpuward.operands import rbac
from gpuward.operands.objects import Json

IMAGE: Final = "gpuward"
"""The last part of the image's name, in whichever registry it is."""
OF_MACHINES: Final = "nvidia-sandbox-validator"
"""The validator of nodes for virtual machines; it takes away its own status files alone."""
_FILE: Final = r"\[ -f \S+/([\w.-]+) \]"
_LOOKS: Final = "; do [^;]*; sleep 5; done;?"
AWAITED: Final = re.compile(f"until {_FILE}(?: \\|\\| {_FILE})?{_LOOKS}")
AWAITED_FOR: Final = re.compile(
    rf"until \[ -f (\S+) \]{_LOOKS} if \[ \"\$\(cat \1\)\" != \"([\w-]+)\" \]; then [^;]*; exit 0; fi; until {_FILE}{_LOOKS}")
STAYS: Final = re.compile("echo [^;]*; while true; do sleep 86400; done")
"""What pods of NVIDIA's do by a shell in their validator's image."""


def is_own(image: str) -> bool:
    """Tell whether an image is gpuward's, by its name without tag and digest."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0] == IMAGE


def rules_of_driver_manager(image: str) -> list[Json]:
    """Return what a driver manager may do if it is ours, wherever it runs: it tells why it waits, and reads claims of GPUs."""
    rules = [rbac.rule("", ["events"], ["create"]), rbac.rule("resource.k8s.io", ["resourceclaims"], ["get"])]
    return rules if is_own(image) else []


def use_own_agent(container: Json) -> None:
    """Start the agent itself where a container has gpuward's image, which holds no shell; as root, which its user is not."""
    if not is_own(container.get("image", "")):
        return
    container["securityContext"] = {**container.get("securityContext", {}), "runAsUser": 0, "runAsNonRoot": False}
    if container.get("command") != ["sh", "-c"]:
        return
    if (arguments := _in_its_place(" ".join(container.get("args") or []))) is None:
        return
    container["command"] = ["nvidia-validator"]
    del container["args"]
    if arguments:
        container["args"] = arguments
    if arguments == ["idle"]:
        container.pop("lifecycle", None)  # it takes its status files away itself when it is told to end
        if container["name"] == OF_MACHINES:
            container["args"] = ["idle", "--component=vgpu-devices"]  # the last one that this pod validates


def _in_its_place(script: str) -> list[str] | None:
    """Return the arguments with which our validator does what a script does; None for a script that is not known."""
    if script == "nvidia-validator":
        return []
    if STAYS.fullmatch(script):
        return ["idle"]
    if (awaited := AWAITED.fullmatch(script)) is not None:
        return ["await", *filter(None, awaited.groups())]
    if (awaited := AWAITED_FOR.fullmatch(script)) is not None:
        return ["await-for", awaited[2], awaited[3]]
    return None
