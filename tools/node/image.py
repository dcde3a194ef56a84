"""Images without docker: static programs, packed as the tar file that `ctr images import` reads."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.controlplane.processes import ProcessFailed

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""From the kernel's names to those of images."""
_MEDIA = "application/vnd.oci.image"
Config = dict[str, Any]
"""How a container of an image starts: OCI's `config`."""


def build_program(source: Path, output: Path, module: Path | None = None) -> None:
    """Compile a Go file, or a folder with a Go module, to a static program. A file's libraries are those of `module`.

    Nothing is done where that was done already.
    """
    parts = [source, *source.iterdir()] if source.is_dir() else [source]
    if output.exists() and output.stat().st_mtime >= max(part.stat().st_mtime for part in parts):
        return
    if not (go := shutil.which("go")):
        raise ProcessFailed("Go is not installed, and the images are built with it: https://go.dev/doc/install")
    output.parent.mkdir(parents=True, exist_ok=True)
    folder, what = (source, ".") if source.is_dir() else (module or source.parent, str(source.absolute()))
    command = [go, "build", "-trimpath", "-ldflags", "-s -w", "-o", str(output.absolute()), what]
    environment = {**os.environ, "CGO_ENABLED": "0"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ProcessFailed(f"{source.name} cannot be built: {done.stderr.strip()}")


def pack(name: str, program: Path, output: Path) -> None:
    """Write an image of a program, which is its entry point and its only file."""
    write({name: {"Entrypoint": [f"/{program.name}"], "WorkingDir": "/"}}, {program.name: program.read_bytes()}, output)


def write(images: Mapping[str, Config], content: Mapping[str, bytes | str], output: Path) -> None:
    """Write images that share one content, from their names to how a container of them starts.

    The content is from paths to programs, or to what is linked to.
    """
    layer = _tar(content, mode=0o755)
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    blobs, manifests = [layer], []
    for name, config in images.items():
        # With its name in it no two images are one: a kubelet that has pulled one by a name takes it by no other without a pull.
        named = {**config, "Labels": {"org.opencontainers.image.ref.name": name}}
        about = json.dumps({"architecture": architecture, "os": "linux", "config": named,
                            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]}}).encode()
        manifest = json.dumps({
            "schemaVersion": 2, "mediaType": f"{_MEDIA}.manifest.v1+json",
            "config": _reference("config.v1+json", about), "layers": [_reference("layer.v1.tar", layer)]}).encode()
        manifests.append({**_reference("manifest.v1+json", manifest), "annotations": {"io.containerd.image.name": name}})
        blobs += [about, manifest]
    files = {f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}": blob for blob in blobs}
    layout, index = {"imageLayoutVersion": "1.0.0"}, {"schemaVersion": 2, "manifests": manifests}
    output.write_bytes(_tar({"oci-layout": json.dumps(layout).encode(), "index.json": json.dumps(index).encode(), **files}))


def _reference(kind: str, blob: bytes) -> dict[str, str | int]:
    return {"mediaType": f"{_MEDIA}.{kind}", "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def _tar(files: Mapping[str, bytes | str], mode: int = 0o644) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.mode = mode
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()
