"""Every exception that gpuward raises on purpose. Those of another module are drawn with its name.

    Exception
    ├── GpuwardError
    │   ├── InputError                         something a person wrote: names the field, the value and the fix
    │   │   ├── PolicyError                    a ClusterPolicy, NVIDIADriver or setting that cannot be followed
    │   │   │   └── NotDiscovered              labels of nodes are missing without which a policy cannot be followed
    │   │   └── agents.drivermanager.settings.UnknownCommandError  a subcommand that there is not
    │   ├── KubeconfigError                    no usable way to reach an API server was configured
    │   ├── ApiError                           the API server answered, and the answer was no
    │   │   ├── BadRequest                     400
    │   │   ├── Unauthorized                   401
    │   │   ├── Forbidden                      403
    │   │   ├── NotFound                       404
    │   │   ├── MethodNotAllowed               405
    │   │   ├── Conflict                       409  a precondition did not hold
    │   │   │   └── AlreadyExists              409  reason AlreadyExists
    │   │   ├── Gone                           410  the version asked for is no longer kept
    │   │   ├── UnsupportedMediaType           415
    │   │   ├── Invalid                        422  the object breaks its schema
    │   │   ├── TooManyRequests                429  a budget or a rate limit says not now
    │   │   └── ServerError                    5xx
    │   ├── Unreachable                        no answer: refused, reset, timed out; a write may or may not have happened
    │   │   └── Unanswered                     a request was taken and not answered in time
    │   ├── EndedByItself                      something ended that runs for as long as the operator does
    │   ├── IllegalTransition                  the upgrade decision took a step that the transition table does not have
    │   ├── NotInstalled                       a command needs what only an extra of gpuward's brings
    │   ├── RolloutNotDone                     the time to wait for the end of a rollout was up
    │   ├── RolloutStopped                     a rollout that was waited for does not go on by itself
    │   ├── DemoFailed                         the demo did not reach its goal; the message is the reason
    │   ├── cli.cleanup._Used                  somebody uses what was to be cleaned up
    │   ├── agents.host.HostError              what the machine did not let an agent do
    │   ├── agents.host.ModuleInUseError       a kernel module that something uses
    │   ├── agents.host.KernelBusyError        what the kernel has begun and not done yet
    │   ├── agents.waiting.ToldToEndError      a signal told an agent to end
    │   ├── agents.waiting.TimeIsUpError       what an agent waited for did not come in time
    │   ├── agents.drivermanager.run.DriverManagerError  no room could be made for a driver
    │   ├── agents.validator.workload.ValidationError    what a component of the stack lacks
    │   └── execute.world.CalledOff            an action that its last look at the cluster made unwanted
    └── ValueError
        └── recording.codec.NotARecording      bytes that are no recording
            └── recording.codec.OtherFormat    a recording of a format that is newer, or too old
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

LONGEST_WAIT: Final = 30.0
"""Most seconds that any refusal makes us wait: a load balancer's Retry-After is for people with a page open."""

LONGEST_VALUE: Final = 500
"""Characters of a value that an error quotes: what anybody may write ends up in conditions and events, which have limits."""


class GpuwardError(Exception):
    """Be the root of everything that gpuward raises on purpose."""

    exit_code: ClassVar[int] = 1
    """What a command ends with that it ended."""


class InputError(GpuwardError):
    """Refuse something that a person wrote, naming the field, its value and what to write instead."""

    def __init__(self, field: str, value: object, fix: str) -> None:
        self.field = field
        self.value = value
        self.fix = fix
        shown = repr(value)
        shown = shown if len(shown) <= LONGEST_VALUE else f"{shown[:LONGEST_VALUE]}..."
        super().__init__(f"{field}: {shown} cannot be used: {fix}")


class PolicyError(InputError):
    """Refuse a value of a ClusterPolicy, an NVIDIADriver or one of our own settings."""


class NotDiscovered(PolicyError):
    """Say which labels of nodes a policy needs: nothing is wrong with the policy, and no value of it is to be changed."""

    def __str__(self) -> str:
        return self.fix


class KubeconfigError(GpuwardError):
    """Say in one line why no API server can be reached with the configuration given."""


class ApiError(GpuwardError):
    """Carry an API server's refusal: its HTTP status, the Status object's reason, message and details."""

    status: int = 0
    reason: str = "Unknown"

    def __init__(self, message: str, *, status: int | None = None, reason: str | None = None,
                 details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        if status is not None:
            self.status = status
        if reason is not None:
            self.reason = reason
        self.details: dict[str, Any] = details or {}

    @property
    def is_of_a_missing_namespace(self) -> bool:
        """Tell whether what was to be made has no namespace to be in."""
        return self.status == 404 and self.details.get("kind") == "namespaces"

    @property
    def retry_after(self) -> float | None:
        """Return the seconds that the server asked to wait, if it did and a number says so: LONGEST_WAIT at most."""
        seconds = self.details.get("retryAfterSeconds")
        if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds > 0:
            return None
        return float(min(seconds, LONGEST_WAIT))


class BadRequest(ApiError):
    """Answer 400."""

    status, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    """Answer 401."""

    status, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    """Answer 403."""

    status, reason = 403, "Forbidden"


class NotFound(ApiError):
    """Answer 404."""

    status, reason = 404, "NotFound"


class MethodNotAllowed(ApiError):
    """Answer 405."""

    status, reason = 405, "MethodNotAllowed"


class Conflict(ApiError):
    """Answer 409: a precondition did not hold."""

    status, reason = 409, "Conflict"


class AlreadyExists(Conflict):
    """Answer 409 to a create: the name is taken."""

    status, reason = 409, "AlreadyExists"


class Gone(ApiError):
    """Answer 410: the resource version asked for is no longer kept."""

    status, reason = 410, "Expired"


class UnsupportedMediaType(ApiError):
    """Answer 415."""

    status, reason = 415, "UnsupportedMediaType"


class Invalid(ApiError):
    """Answer 422: the object breaks its schema or a validation rule."""

    status, reason = 422, "Invalid"


class TooManyRequests(ApiError):
    """Answer 429: a disruption budget or a rate limit says not now."""

    status, reason = 429, "TooManyRequests"


class ServerError(ApiError):
    """Answer 5xx."""

    status, reason = 500, "InternalError"


class Unreachable(GpuwardError):
    """Say that no answer came: refused, reset or timed out. A write may or may not have happened."""


class Unanswered(Unreachable):
    """Say that a request was taken and not answered in time."""


class EndedByItself(GpuwardError):
    """End the process because one of its tasks, or its election, ended: what is left would not do its work."""


class IllegalTransition(GpuwardError):
    """Stop a decision that took a step which the transition table does not have."""


class NotInstalled(GpuwardError):
    """Say which extra of gpuward's a command needs."""


class RolloutNotDone(GpuwardError):
    """Say that the time to wait for the end of a rollout was up, and how far it is."""

    exit_code = 3


class RolloutStopped(GpuwardError):
    """Say why a rollout that was waited for does not go on by itself."""

    exit_code = 4


class DemoFailed(GpuwardError):
    """End a demo that did not reach its goal; the message is the reason."""
