"""What is in the image, for scanners and for whoever must know: a software bill of materials in CycloneDX 1.6."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from tools.image.application import Distribution
from tools.image.machines import Machine
from tools.image.oci import ImageFacts
from tools.image.packages import PYTHON, SUITE
from tools.image.system import Package

OWN: Final = "gpuward"
"""It is in no registry of Python packages."""
VERSION: Final = SchemaVersion.V1_6
TITLE: Final = "org.opencontainers.image.title"


def write_sbom(out: Path, digest: str, facts: ImageFacts, packages: Iterable[Package], distributions: Sequence[Distribution],
               machine: Machine) -> None:
    """Write the bill of an image; the same image has the same one."""
    bom = Bom(serial_number=uuid5(NAMESPACE_URL, digest))
    bom.metadata.timestamp = datetime.fromtimestamp(facts.seconds, UTC)
    bom.metadata.component = image = _image(digest, facts)
    debian = [_debian(each) for each in packages]
    python = {canonicalize_name(each.name): _python(each) for each in distributions}
    for component in (*debian, *python.values()):
        bom.components.add(component)
    bom.register_dependency(image, [*debian, *python.values()])
    for each in distributions:
        needs = _needs(each, {"python_version": PYTHON, "python_full_version": f"{PYTHON}.0", "platform_machine": machine.linux})
        bom.register_dependency(python[canonicalize_name(each.name)], [python[name] for name in needs])
    text = make_outputter(bom, OutputFormat.JSON, VERSION).output_as_string(indent=1)
    out.write_text(f"{text}\n", encoding="utf-8")


def _image(digest: str, facts: ImageFacts) -> Component:
    name = facts.labels[TITLE]
    return Component(
        type=ComponentType.CONTAINER, name=name, version=facts.labels["org.opencontainers.image.version"],
        bom_ref=f"image-{digest}", purl=PackageURL("oci", None, name, digest, {"arch": facts.arch}),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest.removeprefix("sha256:"))],
        licenses=[LicenseExpression(facts.labels["org.opencontainers.image.licenses"])],
        properties=[Property(name=key, value=value) for key, value in facts.labels.items()],
    )


def _debian(package: Package) -> Component:
    purl = PackageURL("deb", "debian", package.name, package.version,
                      {"arch": package.arch, "distro": SUITE, "upstream": package.source})
    return Component(type=ComponentType.LIBRARY, name=package.name, version=package.version, purl=purl, bom_ref=str(purl),
                     hashes=[HashType(alg=HashAlgorithm.SHA_256, content=package.sha256)], publisher=package.maintainer or None)


def _python(distribution: Distribution) -> Component:
    kind = "generic" if distribution.name == OWN else "pypi"
    purl = PackageURL(kind, None, canonicalize_name(distribution.name), distribution.version)
    licenses = [LicenseFactory().make_from_string(distribution.license)] if distribution.license else []
    return Component(type=ComponentType.LIBRARY, name=distribution.name, version=distribution.version, purl=purl,
                     bom_ref=str(purl), licenses=licenses, description=distribution.summary or None)


def _needs(distribution: Distribution, environment: Mapping[str, str]) -> list[NormalizedName]:
    """Return which distributions one needs in the image."""
    here = {**environment, "extra": ""}
    return [canonicalize_name(one.name) for one in map(Requirement, distribution.needs)
            if one.marker is None or one.marker.evaluate(here)]
