"""An operator whose token lives in a file: the token is rotated in time, and once too late."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from gpuward import names
from tests.controlplane.plane import OPERATOR, NodeWatch, Plane, eventually
from tests.controlplane.steps import protect, upgrade

pytestmark = pytest.mark.controlplane

NAMESPACE = ("-n", names.DEFAULT_NAMESPACE)


class Token:
    """Stand for a token of the operator's account which is good for as long as a Secret of its own exists."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._secret = f"token-{uuid4()}"
        plane.kubectl("create", "secret", "generic", self._secret, *NAMESPACE)
        bound = ("--bound-object-kind", "Secret", "--bound-object-name", self._secret)
        self.text = plane.kubectl("create", "token", names.OPERATOR_NAME, *NAMESPACE, *bound).strip()
        claims = self.text.split(".")[1]
        self.identity = "JTI=" + json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["jti"]
        """How the audit log calls it."""

    def revoke(self) -> None:
        """Let it expire, and wait until the API server refuses it: it keeps what it knows of a token for ten seconds."""
        self._plane.kubectl("delete", "secret", self._secret, *NAMESPACE)
        eventually("the token is refused", lambda: not self._is_good())

    def _is_good(self) -> bool:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": self.text}}
        answer = json.loads(self._plane.kubectl("create", "-f", "-", "-o", "json", given=json.dumps(review)))
        return bool(answer["status"].get("authenticated"))


class TokenFile:
    """Stand for the file from which the operator takes its token."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._path = plane.state / "token"
        self.rotate()

    def rotate(self) -> None:
        """Put a new token in the place of the present one, as the kubelet does."""
        self.holds = Token(self._plane)
        new = self._path.with_suffix(".new")
        new.write_text(self.holds.text)
        new.replace(self._path)

    def kubeconfig(self) -> Path:
        """Return a kubeconfig whose operator reads this file."""
        config = json.loads(self._plane.kubectl("config", "view", "--raw", "-o", "json"))
        for user in config["users"]:
            if user["name"] == "gpuward":
                user["user"] = {"tokenFile": str(self._path)}
        path = self._plane.state / "token.kubeconfig"
        path.write_text(json.dumps(config))
        return path


@pytest.fixture(scope="module")
def token_file(plane: Plane) -> TokenFile:
    return TokenFile(plane)


@pytest.fixture(scope="module")
def installed(plane: Plane, token_file: TokenFile) -> Iterator[Plane]:
    """Keep an operator running that takes its token from the file."""
    with plane.operator(KUBECONFIG=str(token_file.kubeconfig())):
        plane.policy_ready()
        protect(plane, "100%")
        yield plane


def test_a_token_that_is_rotated_in_time(installed: Plane, watch: NodeWatch, token_file: TokenFile) -> None:
    log = installed.log()
    old = token_file.holds
    token_file.rotate()
    old.revoke()
    with installed.audited() as requests:
        upgrade(installed, watch, "580.82.07", maxParallelUpgrades=0, maxUnavailable="100%")
    asked = [entry for entry in requests if entry["user"]["username"] == OPERATOR and entry["verb"] != "watch"]
    used = {entry["user"]["extra"]["authentication.kubernetes.io/credential-id"][0] for entry in asked}
    assert used == {token_file.holds.identity}
    assert log.failures("Unauthorized") == []


def test_a_token_that_is_rotated_too_late(installed: Plane, watch: NodeWatch, token_file: TokenFile) -> None:
    """Meanwhile the operator fails at what it wants to write, says so once, and goes on by itself with the new token."""
    log = installed.log()
    token_file.holds.revoke()
    installed.change_policy(version="580.95.05")
    eventually("the operator says what is wrong", lambda: bool(log.failures("Unauthorized")))
    token_file.rotate()
    watch.wait_for_rollout()
    assert len(log.failures("Unauthorized")) == 1
