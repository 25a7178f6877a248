"""Documents of the call log: calls, and what happened beside them."""

from typing import Any, NotRequired, TypedDict


class Digest(TypedDict):
    """Arguments or a result."""

    size: NotRequired[int]
    """Bytes."""
    sha256: str
    """By which equal ones are recognised."""
    tokens: NotRequired[int]
    """Tokens of a result as the client got it."""
    content: NotRequired[str]
    """With `--content`, if it was kept."""


class Asked(TypedDict):
    """The arguments of a call as the client sent them."""

    size: int
    """Bytes."""
    content: NotRequired[str]
    """With `--content`, if they were kept."""


class Original(TypedDict):
    """A result as the server sent it."""

    size: NotRequired[int]
    """Bytes."""
    tokens: NotRequired[int]
    """Tokens."""
    handle: NotRequired[str]
    """The handle under which it is kept."""


class LoggedCall(TypedDict):
    """A call, or another request. There is one such object on each line."""

    id: NotRequired[int]
    """Its number; a call that is running has none."""
    uid: NotRequired[str]
    """Its name in every log."""
    parent: NotRequired[str]
    """The `uid` of the call that made this one."""
    at: str
    """When it began, as an ISO time."""
    seconds: NotRequired[float]
    """How long it took."""
    method: str
    """The method of MCP."""
    server: str
    """The server."""
    tool: str
    """`server/tool`, or what else was asked for."""
    client: str
    """The client; empty if it has no name."""
    client_version: NotRequired[str]
    """Its version, as it declares it."""
    oauth_client: NotRequired[str]
    """The OAuth client that the user's token was issued to."""
    address: NotRequired[str]
    """The IP address of the client, if it came over a network."""
    principal: NotRequired[str]
    """The user, if it is not the local one."""
    user: NotRequired[str]
    """The name of the user, as the identity provider has it."""
    role: NotRequired[str]
    """The first role of the user that opens the tool."""
    rule: NotRequired[str]
    """Which setting decided about the call."""
    session: NotRequired[str]
    """The session of the client."""
    run: NotRequired[str]
    """The program (`run_code`) that made the call."""
    revision: NotRequired[str]
    """The revision of MCP that the client speaks."""
    bridge: NotRequired[str]
    """In a fleet: the bridge that recorded it."""
    outcome: str
    """`ok`, `tool_error`, `refused`, `failed`, `cancelled`, `asked`, `needed_sign_in`, `running` or `interrupted`."""
    error: NotRequired[str]
    """The error's name, or its text."""
    arguments: Digest
    """Its arguments."""
    asked: NotRequired[Asked]
    """Its arguments as the client sent them, if the bridge has changed them."""
    result: NotRequired[Digest]
    """Its result, if it has ended."""
    original: NotRequired[Original]
    """Its result as the server sent it, if the bridge has shortened it."""
    stages: NotRequired[list[Any]]
    """With a CALL: each stage with its name, and when the call came and left, in milliseconds since it began."""
    facts: NotRequired[dict[str, Any]]
    """What happened on the way."""
    parent_call: NotRequired[dict[str, Any]]
    """With a CALL: the one that made it, in the same form."""
    children: NotRequired[list[dict[str, Any]]]
    """With a CALL: the calls that it made, in the same form, with theirs."""


class LoggedEvent(TypedDict):
    """What `log --events` prints: what happened beside calls, one such object on each line."""

    id: int
    """Its number."""
    at: str
    """When, as an ISO time."""
    event: str
    """What happened."""
    bridge: NotRequired[str]
    """In a fleet: the bridge that recorded it."""
    server: NotRequired[str]
    """The server."""
    tool: NotRequired[str]
    """The tool."""
    client: NotRequired[str]
    """The client that it is about, such as the one that wanted to call the tool."""
    principal: NotRequired[str]
    """The user, if it is not the local one."""
    session: NotRequired[str]
    """The session of the client."""
    who: NotRequired[str]
    """Who did it."""
    detail: NotRequired[str]
    """More about it."""
    arguments: NotRequired[Digest]
    """The arguments that it is about."""
    facts: NotRequired[dict[str, Any]]
    """What else is known."""
