"""Rules on single settings that NVIDIA's schema does not check and a cluster would trip over later."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from gpuward.crd.check import field_path
from gpuward.crd.shapes import EnvVar
from gpuward.errors import PolicyError
from gpuward.model.selectors import is_label_key, is_label_value

if TYPE_CHECKING:
    from gpuward.crd.facts import KubeObject
    from gpuward.crd.shapes import Image

_POD_LIMIT: Final = re.compile(r"0*([0-9]{1,9})(%?)")
_TOLERATION_OPERATORS: Final = ("Equal", "Exists", "Lt", "Gt")
_TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_DIGEST: Final = "sha256:"
_NAME: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH: Final = rf"{_NAME}(?:/{_NAME})*"
_REGISTRY: Final = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_TAG: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_SUM: Final = r"sha256:[0-9a-f]{64}"
_PARTS: Final = {
    "repository": (re.compile(rf"(?:{_REGISTRY}/)?{_PATH}|{_REGISTRY}"),
                   "a registry and a path in lower case, such as nvcr.io/nvidia"),
    "image": (re.compile(_PATH), "a name in lower case, such as driver"),
    "version": (re.compile(rf"{_TAG}(?:@{_SUM})?|{_SUM}"),
                "a tag of letters, digits, '.', '_' and '-', or sha256: and 64 hexadecimal digits"),
}
"""What each part of an image's reference consists of, by the grammar of the container runtimes."""
_REFERENCE: Final = (re.compile(rf"(?:{_REGISTRY}/)?{_PATH}(?::{_TAG})?(?:@{_SUM})?"),
                     "a full reference, such as nvcr.io/nvidia/driver:580.126.09")


def image_in_parts(image: Image, path: str) -> Iterator[PolicyError]:
    """Refuse an image with only some of its parts: `image` may stand alone, repository and version may not."""
    yield from named_in_parts(image.repository, image.image, image.version, path)


def named_in_parts(repository: str, image: str, version: str, path: str) -> Iterator[PolicyError]:
    """Refuse an image with only some of its parts, for parts that do not come as an `Image`."""
    parts = {"repository": repository, "image": image, "version": version}
    named = [part for part, text in parts.items() if text]
    given = f"{' and '.join(named)} {'is' if len(named) == 1 else 'are'} given"
    for part, text in parts.items():
        if (repository or version) and not text:
            fix = f"write it too, as {given}; or give only image, with the full reference"
            yield PolicyError(f"{path}.{part}", text, fix)
        elif text:
            yield from _well_formed(text, f"{path}.{part}", *(_PARTS[part] if repository or version else _REFERENCE))


def whole_image(text: str, path: str) -> Iterator[PolicyError]:
    """Refuse the full reference of an image that no container runtime could pull."""
    name, wrong, digest = text.rpartition(f":{_DIGEST}")
    if wrong and _REFERENCE[0].fullmatch(right := f"{name}@{_DIGEST}{digest}"):
        yield PolicyError(path, text, f"write {right}: a digest comes after '@'")
    else:
        yield from _well_formed(text, path, *_REFERENCE)


def _well_formed(text: str, path: str, form: re.Pattern[str], words: str) -> Iterator[PolicyError]:
    """Refuse what no container runtime could pull: the first node would be emptied for it."""
    if not form.fullmatch(text):
        bare = text.strip()
        yield PolicyError(path, text, f"write {bare}, without spaces" if form.fullmatch(bare) else f"write {words}")


def image_without_fallback(repository: str, image: str, version: str, path: str) -> Iterator[PolicyError]:
    """Refuse an image that is absent or incomplete where no default of the operator steps in."""
    if not (repository or image or version):
        yield PolicyError(f"{path}.image", image, "name the image: there is no default for it")
    yield from named_in_parts(repository, image, version, path)


NO_DIGEST: Final = "write a tag: with usePrecompiled each kernel has an image of its own, so there is no one digest"


def without_contradiction(problems: Iterable[PolicyError]) -> list[PolicyError]:
    """Leave out what asks for a digest in a field where none may be."""
    found = list(problems)
    tags = {problem.field for problem in found if problem.fix == NO_DIGEST}
    return [problem for problem in found if problem.field not in tags or problem.fix == NO_DIGEST]


def tag_to_extend(version: str, image: str, path: str) -> Iterator[PolicyError]:
    """Refuse a digest where the kernel version must be appended to the tag."""
    for field, text in (("version", version), ("image", image)):
        if _DIGEST in text:
            yield PolicyError(f"{path}.{field}", text, NO_DIGEST)


def daemonset_limit(text: str, path: str) -> Iterator[PolicyError]:
    """Refuse a rolling update limit that the API server refuses on a DaemonSet: it wants 1 or more, or 1% to 100%."""
    found = _POD_LIMIT.fullmatch(text)
    if text and not (found and 0 < int(found[1]) <= (100 if found[2] else 2**31 - 1)):
        yield PolicyError(path, text, 'write a number of pods of at least 1, such as "1", or a percentage up to "100%"')


def labels(given: Mapping[str, str], path: str) -> Iterator[PolicyError]:
    """Refuse what cannot be a label."""
    yield from annotation_keys(given, path)
    for key, value in given.items():
        if not is_label_value(value):
            fix = "write at most 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends"
            yield PolicyError(field_path(path, key), value, fix)


def annotation_keys(given: Mapping[str, str], path: str) -> Iterator[PolicyError]:
    """Refuse what cannot be the key of an annotation."""
    for key in given:
        if not is_label_key(key):
            yield PolicyError(path, key, "write the key as name or domain/name")


def tolerations(given: Sequence[KubeObject], path: str) -> Iterator[PolicyError]:
    """Refuse tolerations that the API server refuses in a pod (core/v1 validation)."""
    for index, toleration in enumerate(given):
        below, operator = f"{path}[{index}]", toleration.get("operator") or "Equal"
        yield from one_of(operator, _TOLERATION_OPERATORS, f"{below}.operator")
        yield from one_of(toleration.get("effect"), _TAINT_EFFECTS, f"{below}.effect")
        if toleration.get("key") and not is_label_key(toleration["key"]):
            yield PolicyError(f"{below}.key", toleration["key"], "write the key as name or domain/name")
        if not toleration.get("key") and operator != "Exists":
            yield PolicyError(f"{below}.operator", operator, "write Exists, or name a key: without one all taints match")
        if toleration.get("value") and operator == "Exists":
            yield PolicyError(f"{below}.value", toleration["value"], "leave it out, or write the operator Equal")
        if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
            fix = "leave it out, or write the effect NoExecute: only that one has a time limit"
            yield PolicyError(f"{below}.tolerationSeconds", toleration["tolerationSeconds"], fix)


def one_of(value: str | None, choices: tuple[str, ...], path: str) -> Iterator[PolicyError]:
    """Refuse a value outside a list; empty or absent leaves the choice to Kubernetes."""
    if value and value not in choices:
        yield PolicyError(path, value, "write one of " + ", ".join(choices))


def environment(part: msgspec.Struct, path: str) -> Iterator[PolicyError]:
    """Refuse environment variables without a name, here and in the parts below."""
    for name, written in zip(part.__struct_fields__, part.__struct_encode_fields__, strict=True):
        value, below = getattr(part, name), field_path(path, written)
        if isinstance(value, msgspec.Struct):
            yield from environment(value, below)
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                if isinstance(item, EnvVar) and not item.name:
                    yield PolicyError(f"{below}[{index}].name", "", "name the variable")
