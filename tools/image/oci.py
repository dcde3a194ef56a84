"""The image as one file: an OCI image layout in a tar, which also has the index that `docker load` reads."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tools.image.errors import BuildError
from tools.image.packages import without_surprises
from tools.image.system import USER

MEDIA: Final = "application/vnd.oci.image"
ENTRY: Final = "/usr/bin/gpuward"


@dataclass(frozen=True, slots=True)
class Layer:
    """Hold a packed layer."""

    file: Path
    digest: str
    """Of the file, in hexadecimal."""
    content: str
    """Of the tar that is compressed in it."""
    origin: str
    """What it is made of, for people."""


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """Hold what an image says of itself."""

    arch: str
    seconds: int
    """When it was made: the time of the commit."""
    labels: Mapping[str, str]

    @property
    def created(self) -> str:
        """Return the time as OCI has it."""
        return datetime.fromtimestamp(self.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_image(out: Path, name: str, facts: ImageFacts, layers: Sequence[Layer]) -> str:
    """Write an image archive; return the digest of the image's manifest."""
    config = _json({
        "architecture": facts.arch, "os": "linux", "created": facts.created,
        "config": {
            "User": f"{USER}:{USER}", "WorkingDir": "/", "Entrypoint": [ENTRY], "Cmd": ["run", "--leader-elect"],
            "Env": ["PATH=/usr/bin", "LC_ALL=C.UTF-8"], "Labels": dict(facts.labels),
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.content}" for layer in layers]},
        "history": [{"created": facts.created, "created_by": layer.origin} for layer in layers],
    })
    kind = f"{MEDIA}.layer.v1.tar+gzip"
    manifest = _json({
        "schemaVersion": 2, "mediaType": f"{MEDIA}.manifest.v1+json", "config": _described(config, "config.v1+json"),
        "layers": [{"mediaType": kind, "digest": f"sha256:{each.digest}", "size": each.file.stat().st_size} for each in layers],
        "annotations": dict(facts.labels),
    })
    listed = _described(manifest, "manifest.v1+json")
    listed["platform"] = {"os": "linux", "architecture": facts.arch}
    listed["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    blobs = {_digest(blob): blob for blob in (config, manifest)}
    files = {f"blobs/sha256/{digest}": blob for digest, blob in blobs.items()}
    files["oci-layout"] = _json({"imageLayoutVersion": "1.0.0"})
    files["index.json"] = _json({"schemaVersion": 2, "mediaType": f"{MEDIA}.index.v1+json", "manifests": [listed]})
    files["manifest.json"] = _json([{"Config": f"blobs/sha256/{_digest(config)}", "RepoTags": [name],
                                     "Layers": [f"blobs/sha256/{layer.digest}" for layer in layers]}])
    _archive(out, files, {f"blobs/sha256/{layer.digest}": layer.file for layer in layers}, facts.seconds)
    return f"sha256:{_digest(manifest)}"


def _archive(out: Path, texts: Mapping[str, bytes], files: Mapping[str, Path], seconds: int) -> None:
    part = out.with_suffix(".part")
    with tarfile.open(part, "w") as tar:
        for name in sorted({*texts, *files}):
            info = tarfile.TarInfo(name)
            info.mtime, info.mode = seconds, 0o644
            if name in texts:
                info.size = len(texts[name])
                tar.addfile(info, io.BytesIO(texts[name]))
            else:
                info.size = files[name].stat().st_size
                with files[name].open("rb") as content:
                    tar.addfile(info, content)
    part.rename(out)


def read_image(image: Path) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the digest, the manifest and the configuration of an archive with one image."""
    with tarfile.open(image) as tar:
        (listed,) = json.loads(_member(tar, "index.json"))["manifests"]
        manifest = json.loads(_blob(tar, listed["digest"]))
        return listed["digest"], manifest, json.loads(_blob(tar, manifest["config"]["digest"]))


def unpack_image(image: Path, folder: Path) -> None:
    """Unpack the layers of an image."""
    folder.mkdir(parents=True, exist_ok=True)
    _, manifest, _ = read_image(image)
    with tarfile.open(image) as tar:
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(_blob(tar, layer["digest"]))) as tree:
                without_surprises(tree).extractall(folder)
    (folder / "tmp").chmod(0o1777)


def _blob(tar: tarfile.TarFile, digest: str) -> bytes:
    blob = _member(tar, f"blobs/{digest.replace(':', '/')}")
    if f"sha256:{_digest(blob)}" != digest:
        raise BuildError(f"the blob {digest} has other bytes")
    return blob


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None, name
    return file.read()


def _described(blob: bytes, kind: str) -> dict[str, Any]:
    return {"mediaType": f"{MEDIA}.{kind}", "digest": f"sha256:{_digest(blob)}", "size": len(blob)}


def _digest(blob: bytes) -> str:
    return hashlib.sha256(blob).hexdigest()


def _json(data: object) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
