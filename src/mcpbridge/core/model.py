"""The values that travel through the bridge with a call: the tool, the caller, the call itself."""

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Literal, Protocol

from msgspec import Raw, Struct

from mcpbridge.core.call_options import Hints
from mcpbridge.core.context import NOWHERE, BridgeContext, CallContext, Session, context_of
from mcpbridge.core.elicitation import NOBODY, Elicitor
from mcpbridge.core.identity import Identity
from mcpbridge.core.recording import Recording
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.deadlines import Timeouts
from mcpbridge.protocol.peer import Update

BRIDGE = "mcpbridge"
"""The server that the bridge's own tools are of: their ids are `mcpbridge/recall` and so on. No other is named so."""

TOOLS = "tools"
"""The server that single tools of `[tools]` are of: `[tools.weather]` is `tools/weather`. No other is named so."""

BUILTIN = "builtin"
"""The server that the tools of `[builtin]` are of: `builtin/web-search`. No other is named so."""

OWN = frozenset({BRIDGE, TOOLS, BUILTIN})
"""The servers that there are without an upstream or a backend of this name."""

WORTH_TELLING = 0.001
"""Seconds of waiting for a turn below which nobody is notified."""


def ignore_update(method: str, params: Raw) -> None:
    """For calls whose sender wants to hear nothing meanwhile."""


class Tool(Protocol):
    """What is known of a tool that is called; its plan is compiled from this. See `ToolRef` for the fields."""

    @property
    def server(self) -> str: ...  # noqa: D102 - as in `ToolRef`
    @property
    def name(self) -> str: ...  # noqa: D102 - as in `ToolRef`
    @property
    def wire(self) -> str: ...  # noqa: D102 - as in `ToolRef`
    @property
    def id(self) -> str: ...  # noqa: D102 - as in `ToolRef`
    @property
    def definition(self) -> bytes: ...  # noqa: D102 - as in `ToolRef`
    @property
    def hints(self) -> Hints: ...  # noqa: D102 - as in `ToolRef`
    @property
    def headers(self) -> Mapping[tuple[str, ...], str]: ...  # noqa: D102 - as in `ToolRef`


class Caller(Protocol):
    """The client that calls, for those who decide about calls; see `Elicitor` for what it can be asked."""

    @property
    def principal(self) -> str:
        """Who was authenticated; empty for the local user."""
        ...

    @property
    def identity(self) -> Identity | None:
        """What the token of whoever was authenticated says; None: there is none, or it says nothing."""
        ...

    @property
    def name(self) -> str:
        """`clientInfo.name`, as the client declared it: anybody may declare anything."""
        ...

    @property
    def version(self) -> str:
        """The protocol revision that it speaks."""
        ...

    @property
    def info(self) -> Mapping[str, Any]:
        """`clientInfo` as the client declared it."""
        ...

    @property
    def address(self) -> str:
        """Its IP address; empty: it came over no network, or its address is not known."""
        ...

    @property
    def view(self) -> str:
        """Name of the one server that it sees; empty: all."""
        ...

    @property
    def profile_name(self) -> str:
        """The profile whose endpoint it came to; empty: it came to none's."""
        ...

    @property
    def session(self) -> Session:
        """What lasts over its calls; the same object each time."""
        ...


class _Local:
    """The program that the bridge runs in."""

    principal = name = version = view = profile_name = address = ""
    identity: Identity | None = None
    info: Mapping[str, Any] = MappingProxyType({})

    def __init__(self) -> None:
        self.session = Session()


LOCAL: Caller = _Local()


class Instance(Protocol):
    """One connection to a server, of which there may be several."""

    def request(self, call: "Call") -> Awaitable[Body]:
        """Pass a call on and wait for its result."""
        ...


class ApproveBy(Struct, frozen=True):
    """Who may approve a call of somebody else's."""

    roles: tuple[str, ...] = ()
    """Globs on roles, of which one of whoever approves must match, or one of `principals`."""
    principals: tuple[str, ...] = ()
    """Globs on principals."""
    four_eyes: bool = True
    """Never whoever makes the call."""
    operator: bool = False
    """Also whoever operates the bridge: the commands, the console of this machine, the program that it runs in."""
    seconds: float | None = None
    """How long they have to answer; None: as long as anybody else."""


class Call(Struct, eq=False):
    """One request of a client on its way to the upstream that owns its target.

    A `Struct` as it is made for every call, and most of its many fields stay what they are.
    """

    method: str
    upstream: str
    """Name of the server that gets it."""
    target: str
    """Tool or prompt name, or resource URI, in the upstream's own spelling."""
    params: Body
    """The params to send; its `_meta` is made anew on the way."""
    meta: Body | None = None
    """The `_meta` that the client sent."""
    wants_progress: bool = False
    log_level: str = ""
    """The least severe log message the client wants during this call; empty: none."""
    update: Update = ignore_update
    """Gets progress and log messages that belong to this call."""
    headers: tuple[tuple[str, str], ...] = ()
    """HTTP headers of this call alone (`Mcp-Param-*`)."""
    client: Elicitor = NOBODY
    """Who can be asked what the upstream wants to know meanwhile."""
    roots: bytes = b""
    """The result of `roots/list` that the configuration gives in place of the client; empty: it gives none."""
    extensions: bytes = b""
    """The `extensions` that a modern upstream gets with this call, encoded; empty: the bridge's own."""
    needs_task: bool = False
    """The tool runs as a task only (2025-11-25, `taskSupport: "required"`): the bridge makes and follows it."""
    takes_task: bool = False
    """A task may be the result: the client follows it itself. Else the bridge does, and the result is the final one."""
    instance: "Instance | None" = None
    """Where a task lives: the instance that made this one, or that must get this request about one."""
    tool: Tool | None = None
    """What is called, for `tools/call`: the stages of its plan apply."""
    caller: Caller = LOCAL
    """Whose call it is."""
    timeouts: Timeouts | None = None
    """The call's own deadlines, from when it is sent; None: those of its server."""
    was_text: bool = False
    """Its arguments came as a string with an object in it; they are the object now."""
    continues: bool = False
    """A later round of a call that was let through before, proved by a sealed state: nobody is asked again."""
    approval: str = ""
    """Why a person must agree to it; empty: nobody has to."""
    approve_by: "ApproveBy | None" = None
    """Which other people that must be; None: the rule does not say."""
    ask: tuple[str, ...] = ()
    """Where people are asked, as the rule says (`PermissionRule.ask`); empty: it does not."""
    agreed: str = ""
    """Digest of what a person has agreed to for this call, in this round or an earlier one; empty: nothing."""
    deadline: float = 0.0
    """Loop time by which it must be done, waiting included; 0: nothing set one."""
    begun: Literal["", "questions", "task"] = ""
    """What came of it that cannot be taken back: it is not tried again."""
    within: "Call | None" = None
    """The call that makes this one, if the bridge makes it on behalf of another: places that it holds serve both."""
    resumes: "Call | None" = None
    """The call under way that an earlier request of its client began, and that this one continues."""
    runs_as: "Call | None" = None
    """The call that goes to the server in its place while several wait for one run; follow it to the last."""
    facts: dict[str, object] | None = None
    """What stages found out on the way, for observers; see `note`."""
    around: BridgeContext = NOWHERE
    """What is the same for all calls of the bridge that it is in."""
    upstream_seconds: float = 0.0
    """Seconds that the server took for it so far, over all tries."""
    running: int = 0
    """Its number among the calls under way in the call log; 0: it has none there."""
    recorded: Recording | None = None
    """What is noted of it for the call log; None: it is only counted."""
    asked: bytes | Raw = b""
    """Its arguments as the client sent them, where they were read to be something else; empty: they came so."""
    sent: "Instance | None" = None
    """What its request was sent by already, in the way of `downstream/express_lane.py`; None: it was not."""
    began: float = 0.0
    """Of `time.perf_counter`, when it began, if that was before its plan; 0: it begins with its plan."""
    asked_as: bytes | Raw = b""
    """The id of the client's request, as it came; empty: a call that no request asks for."""
    sent_as: bytes = b""
    """The id of the last request for it to the server; empty: there was none."""
    trace: object = None
    """The span of the client's request, if calls are traced."""
    existing_context: CallContext | None = None
    """See `context`; made when somebody asks for it."""
    original: "bytes | Raw" = b""
    """The result as the server sent it, where the one that goes up says more or less; empty: it is that one."""
    progress_token: bytes = b""
    """What the upstream names in progress of this call, once it was sent; if the answer is a task, it outlives that."""

    def waited(self, seconds: float) -> None:
        """Report to observers that it waited for its turn somewhere, for so long; `waited` is the sum."""
        if seconds > WORTH_TELLING:
            before = (self.facts or {}).get("waited")
            self.note("waited", round(seconds + (before if isinstance(before, float) else 0.0), 3))

    @property
    def context(self) -> CallContext:
        """What surrounds it: run, session, user, tenant, what the program gave, whether it is still wanted."""
        if self.existing_context is None:
            tool = self.tool.id if self.tool is not None else ""
            self.existing_context = context_of(self.meta, self.caller.session, tool, self.around)
            self.existing_context.client = self.client
        return self.existing_context

    def cancelled(self) -> None:
        """Notify those who work on it that nobody wants its outcome any more."""
        if self.existing_context is not None:
            self.existing_context.cancellation.cancel()

    def note(self, name: str, value: object) -> None:
        """Report what happened to this call: `retries`, `cache`, `coerced`, `approval`, and so on."""
        if self.facts is None:
            self.facts = {}
        self.facts[name] = value


Asks = Callable[[Call], "str | Awaitable[str]"]
"""Why a person must agree to a call with these arguments; empty: nobody must. Raises CallRefused: it is not to be."""

Precheck = Callable[[Call], Awaitable[Body | None]]
"""The result of a call that cannot be done, without doing any of it; None: it can be done. Raises as the call would."""

CallHandler = Callable[[Call], Awaitable[Body]]
"""What happens to a call, compiled when the snapshot is built; the result is the upstream's."""


CURRENT_CALL: ContextVar[Call | None] = ContextVar("mcpbridge call", default=None)
"""The call whose tool, one of our own, runs in this task or thread: calls that its code makes are within it.

Code of users gets no `Call` that it could hand on, so this is the one thing of a call that is looked up in its context.
It is set where tools of our own run (`tools/serving.py`) and where hooks do; calls to servers pay for one look.
"""
