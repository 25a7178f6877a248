"""What several documents have."""

from typing import NotRequired, TypedDict


class BridgeAnswer(TypedDict):
    """A bridge, and why it has no answer."""

    pid: int
    """Its process."""
    error: NotRequired[str]
    """Why it has no answer."""
    code: NotRequired[str]
    """Which kind of error; `silent`: no answer came that can be read."""


class MissingBridge(TypedDict):
    """A bridge of the fleet that does not say what it has recorded or counted."""

    bridge: str
    """Its name."""
    reason: str
    """Why: it does not answer, or has left."""


class ErrorDetails(TypedDict):
    """Why a command failed."""

    code: int
    """The exit code."""
    message: str
    """What went wrong."""
    advice: str
    """What to do about it; may be empty."""
    page: str
    """The page of these docs that explains it; may be empty."""


class Error(TypedDict):
    """What every command prints to standard error with `--json` if it fails. Standard output is empty then."""

    error: ErrorDetails
    """Why it failed."""


class ConfigProblem(TypedDict):
    """Why the configuration file is not in effect as it is now."""

    message: str
    """What is wrong."""
    file: str
    """The file that it is in."""
    line: NotRequired[str]
    """Its line."""
    at: str
    """Since when, as an ISO time."""
