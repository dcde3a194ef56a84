"""Every exception that this package raises on purpose. Those of another module are drawn with its name.

    Exception
    ├── SandboxError
    │   ├── InputError                         something a person wrote: names the field, the value and the fix
    │   ├── ApiError                           the API server answered, and the answer was no
    │   │   ├── BadRequest                     400
    │   │   │   ├── kubetypes.Mismatch         a value of another type than its field's
    │   │   │   └── writing.Undecodable        a body that does not fit its type
    │   │   ├── Forbidden                      403
    │   │   ├── NotFound                       404
    │   │   ├── MethodNotAllowed               405
    │   │   ├── Conflict                       409  a precondition did not hold
    │   │   │   └── AlreadyExists              409  reason AlreadyExists
    │   │   ├── Gone                           410  the version asked for is no longer kept
    │   │   │   └── messages.PageExpired       a list's next page is of a version that is gone
    │   │   ├── UnsupportedMediaType           415
    │   │   ├── Invalid                        422  the object breaks its schema
    │   │   │   └── patch.DoesNotApply         an operation of a JSON patch does not fit
    │   │   ├── TooManyRequests                429  a budget says not now
    │   │   └── ServerError                    500
    │   └── VirtualDeadlock                    virtual time stands still: every task waits for something that cannot happen
    ├── admission._Refused                     why admission refuses a pod; becomes a Forbidden
    ├── cel.EvaluationError                    a rule's value that is an error, as in CEL
    └── cel._Unknown                           a rule that uses more than the sandbox knows of CEL
"""

from __future__ import annotations

from typing import Any


class SandboxError(Exception):
    """Be the root of everything that this package raises on purpose."""


class InputError(SandboxError):
    """Refuse something that a person wrote, naming the field, its value and what to write instead."""

    def __init__(self, field: str, value: object, fix: str) -> None:
        self.field = field
        self.value = value
        self.fix = fix
        super().__init__(f"{field}: {value!r} cannot be used: {fix}")


class ApiError(SandboxError):
    """Carry the API server's refusal: its HTTP status, the Status object's reason, message and details."""

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


class BadRequest(ApiError):
    """Answer 400."""

    status, reason = 400, "BadRequest"


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
    """Answer 429: a disruption budget says not now."""

    status, reason = 429, "TooManyRequests"


class ServerError(ApiError):
    """Answer 500."""

    status, reason = 500, "InternalError"


class VirtualDeadlock(SandboxError):
    """End a run in virtual time in which nothing can happen any more; the message names the waiting tasks."""
