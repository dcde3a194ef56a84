"""DRIVER_CONFIG_DIGEST: a fingerprint of what makes a driver pod install another driver.

Two pod templates with the same digest differ only in things that do not concern the driver, and a node between them needs a
restart but no eviction. The digest is part of the pod template, so another algorithm than NVIDIA's would replace every driver
when a cluster moves to gpuward: the fields, their spelling (Go's) and their order are NVIDIA's contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpuward import names
from gpuward.operands.objects import Json

Record = Mapping[str, str | bool]
Value = str | bool | Sequence[str] | tuple[str, Sequence[Record]]
"""A field of the configuration: text, a flag, a list of texts, or Go's name of a record type with its records."""

_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193


def digest(fields: Mapping[str, Value]) -> str:
    """Return the decimal FNV-1a hash of the fields by name, those with empty values left out."""
    return fnv1a("".join(f"{name}:{_dump(fields[name])}" for name in sorted(fields) if not _is_empty(fields[name])))


def fnv1a(text: str) -> str:
    """Return the 32-bit FNV-1a hash of a text, in decimal."""
    value = _FNV_OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return str(value)


def name_part(text: str) -> str:
    """Return a text as it may stand in an object's name, told apart from others that would be spelled the same."""
    return text if "_" not in text else f"{text.replace('_', '.')}-{fnv1a(text)}"


def _is_empty(value: Value) -> bool:
    return not value[1] if isinstance(value, tuple) else not value


def _dump(value: Value) -> str:
    if isinstance(value, bool):
        return f"(bool){str(value).lower()}"
    if isinstance(value, str):
        return f"(string){value}"
    if isinstance(value, tuple):
        kind, records = value
        return f"([]config.{kind})[{' '.join(_dump_record(record) for record in records)}]"
    return f"([]string)[{' '.join(value)}]"


def _dump_record(record: Record) -> str:
    return "{" + " ".join(f"{name}:{_dump(value)}" for name, value in record.items()) + "}"


def driver_config_digest(pod: Json) -> str:
    """Return the digest of a driver pod's spec, as complete as it will be applied but for the digest itself."""
    fields: dict[str, Value] = {
        "AdditionalVolumes": volumes_value(pod["volumes"]),
        "HostRoot": next((v["hostPath"]["path"] for v in pod["volumes"] if v["name"] == "host-root"), ""),
    }
    for container in (*pod["initContainers"], *pod["containers"]):
        fields |= _container_fields(container)
    return digest(fields)


def _container_fields(container: Json) -> dict[str, Value]:
    image = container["image"]
    match container["name"]:
        case "k8s-driver-manager":
            return {"DriverManagerImage": image, "ManagerEnv": _env(container)}
        case "nvidia-driver-ctr":
            secrets = [source["secretRef"]["name"] for source in container.get("envFrom", []) if "secretRef" in source]
            return {
                "DriverImage": image, "DriverCommand": container["command"], "DriverArgs": container.get("args", []),
                "DriverEnv": _env(container), "SecretEnvSource": secrets[-1] if secrets else "",
                "AdditionalVolumeMounts": mounts_value(container["volumeMounts"]),
            }
        case "nvidia-peermem-ctr":
            return {"PeermemImage": image, "GPUDirectRDMAEnabled": True}
        case "nvidia-fs-ctr":
            return {"GDSImage": image, "GDSEnabled": True, "GDSEnv": _env(container)}
        case "nvidia-gdrcopy-ctr":
            return {"GDRCopyImage": image, "GDRCopyEnabled": True, "GDRCopyEnv": _env(container)}
        case _:
            return {}


def _env(container: Json) -> tuple[str, Sequence[Record]]:
    literal = [
        {"Name": variable["name"], "Value": variable.get("value", "")}
        for variable in container.get("env", [])
        if "valueFrom" not in variable and variable["name"] != names.DRIVER_CONFIG_DIGEST
    ]
    return "EnvVar", sorted(literal, key=lambda variable: variable["Name"])


def mounts_value(mounts: Iterable[Json]) -> Value:
    """Return volume mounts as the digest has them."""
    return "VolumeMountConfig", sorted(map(_mount, mounts), key=lambda mount: (mount["Name"], mount["MountPath"]))


def volumes_value(volumes: Iterable[Json]) -> Value:
    """Return volumes as the digest has them."""
    return "VolumeConfig", sorted(map(_volume, volumes), key=lambda volume: str(volume["Name"]))


def _mount(mount: Json) -> Record:
    return {
        "Name": mount["name"], "MountPath": mount["mountPath"],
        "SubPath": mount.get("subPath", ""), "ReadOnly": mount.get("readOnly", False),
    }


def _volume(volume: Json) -> Record:
    return {
        "Name": volume["name"],
        "ConfigMapName": volume.get("configMap", {}).get("name", ""),
        "SecretName": volume.get("secret", {}).get("secretName", ""),
        "HostPath": volume.get("hostPath", {}).get("path", ""),
    }
