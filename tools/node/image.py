"""Images without docker: one static program, packed as the tar file that `ctr images import` reads."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
from pathlib import Path

from tools.controlplane.processes import ProcessFailed

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""From the kernel's names to those of images."""
_MEDIA = "application/vnd.oci.image"


def build_program(source: Path, output: Path, module: Path | None = None) -> None:
    """Compile a Go file to a static program, unless that was done already. Libraries are those of a module, if any is given."""
    if output.exists() and output.stat().st_mtime >= source.stat().st_mtime:
        return
    if not (go := shutil.which("go")):
        raise ProcessFailed("Go is not installed, and the images are built with it: https://go.dev/doc/install")
    output.parent.mkdir(parents=True, exist_ok=True)
    command = [go, "build", "-trimpath", "-ldflags", "-s -w", "-o", str(output.absolute()), str(source.absolute())]
    environment = {**os.environ, "CGO_ENABLED": "0"}
    done = subprocess.run(command, cwd=module or source.parent, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ProcessFailed(f"{source.name} cannot be built: {done.stderr.strip()}")


def pack(name: str, program: Path, output: Path) -> None:
    """Write an image of a program, which is its entry point and its only file."""
    layer = _tar({program.name: program.read_bytes()}, mode=0o755)
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    # With its name in it no two images are one: a kubelet that has pulled one by a name takes it by no other without a pull.
    process = {"Entrypoint": [f"/{program.name}"], "WorkingDir": "/", "Labels": {"org.opencontainers.image.ref.name": name}}
    config = json.dumps({
        "architecture": architecture, "os": "linux", "config": process,
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]}}).encode()
    manifest = json.dumps({
        "schemaVersion": 2, "mediaType": f"{_MEDIA}.manifest.v1+json",
        "config": _reference("config.v1+json", config), "layers": [_reference("layer.v1.tar", layer)]}).encode()
    index = {"schemaVersion": 2, "manifests": [
        {**_reference("manifest.v1+json", manifest), "annotations": {"io.containerd.image.name": name}}]}
    blobs = {f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}": blob for blob in (layer, config, manifest)}
    layout = json.dumps({"imageLayoutVersion": "1.0.0"}).encode()
    output.write_bytes(_tar({"oci-layout": layout, "index.json": json.dumps(index).encode(), **blobs}))


def _reference(kind: str, blob: bytes) -> dict[str, str | int]:
    return {"mediaType": f"{_MEDIA}.{kind}", "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def _tar(files: dict[str, bytes], mode: int = 0o644) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), mode
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()
