"""Which image a container runs: from the policy, else from the operator's environment."""

from __future__ import annotations

from collections.abc import Mapping

from gpuward.crd.rules import whole_image
from gpuward.crd.shapes import Image
from gpuward.errors import PolicyError

PULL_POLICIES = ("Always", "Never", "IfNotPresent")


def resolve(field: str, image: Image, variable: str, images: Mapping[str, str]) -> str:
    """Return the full reference of an image.

    `field` is where the policy says it, such as `spec.toolkit`; `variable` is the operator's environment variable that
    stands in when the policy says nothing, empty for none. With neither repository nor version, `image` is the complete
    reference.

    Raises:
        PolicyError: some but not all of repository, image and version are set, no image is given anywhere, or the variable
            holds none that could be pulled: a DaemonSet with it would take its pods away, and bring none.
    """
    if not image.repository and not image.version:
        if image.image:
            return image.image
        found = images.get(variable, "")
        if not found:
            otherwise = f", or {variable} on the operator" if variable else ""
            raise PolicyError(f"{field}.image", "", f"set repository, image and version{otherwise}")
        for problem in whole_image(found, f"{variable} on the operator"):
            raise problem
        return found
    parts = {"repository": image.repository, "image": image.image, "version": image.version}
    missing = [name for name, value in parts.items() if not value]
    if missing:
        given = {name: value for name, value in parts.items() if value}
        raise PolicyError(field, given, f"set {' and '.join(missing)} too: an image is all of repository, image and version")
    separator = "@" if image.version.startswith("sha256:") else ":"
    return f"{image.repository}/{image.image}{separator}{image.version}"


def with_os_tag(reference: str, os_tag: str) -> str:
    """Return the reference of the image that was built for an operating system; a digest already names one image."""
    return reference if "sha256:" in reference else f"{reference}-{os_tag}"


def pull_policy(image: Image) -> str:
    """Return the pull policy of the policy, IfNotPresent when it has none that Kubernetes knows."""
    return image.image_pull_policy if image.image_pull_policy in PULL_POLICIES else "IfNotPresent"
