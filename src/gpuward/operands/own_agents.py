"""Containers that run gpuward's own validator or driver manager: a policy that names gpuward's image for them gets these."""

from __future__ import annotations

import re
from typing import Final

from gpuward.operands.objects import Json

IMAGE: Final = "gpuward"
"""The last part of the image's name, in whichever registry it is."""
AWAITED: Final = re.compile(r"until \[ -f \S*/([\w.-]+) \]; do .*")


def is_own(image: str) -> bool:
    """Tell whether an image is gpuward's, by its name without tag and digest."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0] == IMAGE


def use_own_agent(container: Json) -> None:
    """Start the agent itself where a container has gpuward's image, which holds no shell; as root, which its user is not."""
    if not is_own(container.get("image", "")):
        return
    container["securityContext"] = {**container.get("securityContext", {}), "runAsUser": 0, "runAsNonRoot": False}
    if container.get("command") != ["sh", "-c"]:
        return
    (script,) = container.pop("args")
    container["command"] = ["nvidia-validator"]
    if (awaited := AWAITED.fullmatch(script)) is not None:
        container["args"] = ["await", awaited[1]]
    elif script != "nvidia-validator":
        container["args"] = ["idle"]
        container.pop("lifecycle", None)  # it takes its status files away itself when it is told to end
