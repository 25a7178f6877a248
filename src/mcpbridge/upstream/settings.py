"""The `servers.<name>` sections of the configuration: how to reach one upstream, and what of it to offer."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import SchemaValidator, Url
from pydantic_core.core_schema import url_schema

from mcpbridge.base.units import Bytes, Rate, RateText, Seconds
from mcpbridge.core.call_settings import CallSettings
from mcpbridge.core.source_settings import NameFilter, OfferSettings
from mcpbridge.upstream.auth.settings import PER_USER, AuthSettings
from mcpbridge.upstream.isolation.settings import ServerSandbox
from mcpbridge.upstream.projects import PROJECT_FIELDS, ProjectText, directory_of, with_project
from mcpbridge.upstream.transports.settings import ContainerSettings

TRANSPORT_SPELLINGS = {
    **dict.fromkeys(("http", "streamable_http", "streamableHttp"), "streamable-http"),
    **dict.fromkeys(("http+sse", "http-sse"), "sse"),
    **dict.fromkeys(("ws", "wss", "web-socket"), "websocket"),
}
"""Other names of transports that people and programs write."""

# As of `AnyUrl` with constraints, without the module that has it: no other part of a start needs that.
_url = SchemaValidator(url_schema(allowed_schemes=["http", "https", "ws", "wss"], host_required=True))
_proxy = SchemaValidator(url_schema(allowed_schemes=["http", "https", "socks5", "socks5h"], host_required=True))
_HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
_HeaderValue = Annotated[str, Field(pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*$")]
_Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]


WARM_UP = 2
"""Servers that are started in the background at a time; `daemon.warm_up` says otherwise."""

_SESSIONS_OF_USERS = 200
"""Sessions of single users at one remote server: each costs a connection, and no process."""

REVALIDATE = 86400
"""Seconds for which it is believed what a `command` offered last; `daemon.revalidate` says otherwise."""


class TlsSettings(BaseModel):
    """The `tls` table of a server: which certificates to trust, and which one to present.

    The files are PEM. A relative path starts at the directory of the configuration file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    ca: _Text | None = Field(default=None, min_length=1)
    """Certificates to trust instead of those of the system: a file, or a directory."""

    cert: _Text | None = Field(default=None, min_length=1)
    """The client certificate, with its chain."""

    key: _Text | None = Field(default=None, min_length=1)
    """Its private key. Default: it is in the file of the certificate."""

    key_password: str | None = None
    """The password of the private key."""

    verify: bool = True
    """`false`: accept any certificate of the server. Anybody on the way can then read and change everything."""

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if self.cert is None and (self.key or self.key_password):
            raise ValueError("`key` goes with `cert`, the certificate it belongs to")
        if not self.verify and self.ca:
            raise ValueError("`ca` says whom to trust and `verify = false` to trust anybody: choose one")
        return self


class BreakerSettings(BaseModel):
    """The `breaker` table of a server: when it receives no calls for a while because all of them fail."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    failures: int = Field(default=5, ge=0)
    """Calls in a row without an answer, or with an answer that shows a fault of the server, after which the breaker
    opens. 0: never."""

    open: Seconds = Field(default=10, gt=0)
    """Seconds without calls the first time. Each trial call that fails adds as many again."""

    max_open: Seconds = Field(default=300, gt=0)
    """The most seconds without calls."""


PinPolicy = Literal["off", "warn", "hold"]
"""What becomes of what a server shows and nobody agreed to."""


class ServerSettings(OfferSettings, BaseModel):
    """One upstream: a `command` or an `image` that speaks MCP on its standard input and output, or a `url`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    command: _Text | None = Field(default=None, min_length=1)
    """The program to start."""

    image: _Text | None = Field(default=None, min_length=1, pattern=r"^[A-Za-z0-9][^\s]*$")
    """The container image to run with Docker or Podman, such as `ghcr.io/github/github-mcp-server`."""

    container: ContainerSettings = ContainerSettings.model_construct()
    """Which engine runs the `image`, and what it may reach and use."""

    args: list[_Text] = []
    """Its arguments. Process lists show them, so put secrets into `env`."""

    env: dict[Annotated[str, Field(pattern=r"^[^=\x00]+$")], _Text] = {}
    """Environment variables of the program, in addition to a small safe set (PATH, HOME, LANG, proxies, certificates,
    …)."""

    inherit_env: bool | list[str] = False
    """`true`: the program gets the bridge's whole environment. A list: it also gets these variables."""

    cwd: _Text | None = None
    """The working directory of the program. A relative path starts at the directory of the configuration file."""

    url: str | None = None
    """The address of a server that is already running: `http://`, `https://`, `ws://` or `wss://`."""

    headers: dict[_HeaderName, _HeaderValue] = {}
    """HTTP headers of every request to `url`, and of the opening request of a WebSocket."""

    auth: AuthSettings = AuthSettings.model_construct()
    """How to sign in, if `url` requires it. An `Authorization` header in `headers` switches it off."""

    tls: TlsSettings = TlsSettings.model_construct()
    """Which certificates to trust and to present, for `https://` and `wss://`."""

    proxy: str | None = None
    """The proxy between the bridge and `url`: `http://user:password@host:port`, `https://…` or `socks5://…`. Default:
    what `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` say, but never a proxy for addresses of this
    machine."""

    transport: Literal["stdio", "streamable-http", "sse", "websocket"] | None = None
    """The transport. Default: `stdio` with a command, `websocket` with a `ws://` or `wss://` URL. With any other URL
    the bridge tries streamable HTTP, then the older `sse` if the server refuses."""

    era: Literal["auto", "legacy", "modern"] = "auto"
    """Which protocol revisions to try. `legacy`: up to 2025-11-25. `modern`: from 2026-07-28 on. `auto`: find out."""

    questions: Literal["auto", "never"] = "auto"
    """Whether the server may ask clients something (sampling, elicitation, roots), within what each client declared. A
    legacy server that asks gets a session, and with `command` a process, for each kind of client. A server that did not
    ask in ten calls gets one session for all. `never`: the server learns that nobody can be asked, in either era, and
    has one session."""

    may_ask: list[Literal["elicitation", "sampling", "roots"]] = ["elicitation", "sampling", "roots"]
    """What the server may ask clients for. It learns of nothing else, and if it asks all the same, nobody is asked.
    `[]` is the same as `questions = "never"`."""

    question_rate: RateText = Rate(60, 60)
    """How often the server may ask people or their models (elicitation and sampling, over all its sessions). Beyond
    that nobody is asked: a legacy server gets an error, a call to a modern server fails."""

    roots: list[str] = []
    """Directories, or `file://` URIs, with which the bridge answers `roots/list` instead of asking the client. A
    relative path starts at the directory of the configuration file."""

    share: Literal["shared", "session", "project", "user", "fleet"] = "shared"
    """Which clients share a process, or with `url` a session. `shared`: all. `session`: each client has its own.
    `project`: the clients of one project. `user`: those of one user (the holder of a token). `fleet`: all clients of
    all bridges of a `[fleet]`, for a `command` that keeps something in its memory; it can ask nobody. Default with a
    `${PROJECT_ROOT}`: `project`; with `auth.as` `"user"`, `"exchange"` or `"id-jag"`: `user`."""

    max_instances: int = Field(default=8, ge=1)
    """Further sessions that may be open, for clients that cannot share the first one. With `share = "user"` the one
    that is idle longest ends when another user comes; while none is idle, calls of further users wait. Default with
    `auth.as` `"user"`, `"exchange"` or `"id-jag"` and a `url`: 200."""

    instance_idle: Seconds = Field(default=300, gt=0)
    """Seconds without a call after which a further session ends."""

    start: Literal["lazy", "eager"] = "lazy"
    """When the server starts. `lazy`: at its first use if its lists are known from earlier, otherwise at once. `eager`:
    with the bridge, and it is never stopped."""

    secrets_to: list[str] = []
    """Other servers that may have the secrets of its results: placeholders that `redact` puts there are turned back in
    arguments for their tools too. Default: none."""

    idle_stop: Seconds | None = Field(default=None, ge=0)
    """Seconds without use after which the server is stopped. It stays listed and starts again at its next use. 0:
    never. Default: 15 minutes for a `command` with `start = "lazy"`, never for others."""

    memory_limit: Bytes | None = Field(default=None, ge=16 * 1024**2)
    """Bytes of memory for all processes of a `command` together. If they use more, the server is restarted."""

    sandbox: ServerSandbox | None = None
    """Start a `command` in the sandbox: `true`, `"profile"` for what is known of a well-known server, or a table of
    differences from the section `sandbox`. The program then
    has a home directory of its own, no network unless `network` is set, and of your files only its own program files,
    its `cwd`, and those of `allow_fs`. Time, memory and file sizes are not limited unless the table limits them."""

    init_timeout: Seconds = Field(default=30, gt=0)
    """Seconds for the server to start and to agree on a protocol revision."""

    ping_interval: Seconds = Field(default=30, ge=0)
    """Seconds of silence, with no call in flight, after which the bridge pings the server. 0: never."""

    max_concurrent: int | None = Field(default=None, ge=1)
    """Calls that may be in flight to the server. Default: learned; 16 at first, up to 512 for a server that answers at
    once or concurrently."""

    max_queued: int = Field(default=1024, ge=0)
    """Calls that may wait for their turn. Further ones are refused."""

    queue_timeout: Seconds = 10
    """Seconds that a call may wait for its turn."""

    breaker: BreakerSettings = BreakerSettings.model_construct()
    """When the server receives no calls for a while because all of them fail."""

    resources: NameFilter = NameFilter.model_construct()
    """Which of its resources and resource templates are offered, by URI."""

    prompts: NameFilter = NameFilter.model_construct()
    """Which of its prompts are offered."""

    pin: PinPolicy | None = None
    """What becomes of changes of what the server shows, as `pin` at the top of the file says it of all servers. `off`:
    nothing. `warn`: they are listed, and shown in the log, `mcpbridge status`, `mcpbridge doctor` and the console.
    `hold`: what was agreed to stays listed. Default: as for all servers."""

    pin_ignore: list[str] = []
    """Names of its tools, prompts, resources and templates whose wording may change (globs), or `instructions`; in
    addition to those of all servers. Parameters, annotations, and new addresses and commands in the texts still count.
    """

    unavailable: str | None = None
    """Why this server cannot be used as configured; set while loading, never by people."""

    project_texts: tuple[ProjectText, ...] = ()
    """What of the above stands for another text in each project (`${PROJECT_ROOT}`); set while loading."""

    written: tuple[str, ...] = ()
    """The command line as the file has it, where it stands for another one; set while loading."""

    def within(self, calls: CallSettings) -> "ServerSettings":
        """The same, where `calls` says how long calls may take and the server's own table does not."""
        keys = ("call_timeout", "max_call_timeout")
        given = {key: getattr(calls, key) for key in keys if getattr(self, key) is None}
        given = {key: value for key, value in given.items() if value is not None}
        return self.model_copy(update=given) if given else self

    @property
    def needs_project(self) -> bool:
        """It cannot be started before there is a project."""
        return any(text.needs_project for text in self.project_texts)

    def in_project(self, project: str) -> "ServerSettings":
        """As it is started for the project with this URI; empty: for none. Not to be asked where it needs one.

        A program that the clients of one project share works in its directory, unless another one is configured.
        """
        directory = directory_of(project)
        changed: dict[str, Any] = {}
        if self.project_texts:
            given = {field: getattr(self, field) for field in PROJECT_FIELDS}
            changed = {**with_project(self.project_texts, given, directory), "project_texts": ()}
        is_program = self.share == "project" and self.command is not None and self.cwd is None
        if directory and is_program and Path(directory).is_dir():  # a client elsewhere has other directories
            changed["cwd"] = directory
        return self.model_copy(update=changed) if changed else self

    @property
    def is_shared(self) -> bool:
        """All clients of this bridge share one process."""
        return self.share in ("shared", "fleet")

    @property
    def is_started(self) -> bool:
        """The bridge starts it: a program, or a container."""
        return self.url is None

    @property
    def is_over_http(self) -> bool:
        """Arguments may have to be repeated in HTTP headers."""
        return self.url is not None

    @property
    def roots_result(self) -> bytes:
        """The result of `roots/list` by the configuration, encoded; empty when clients are to be asked."""
        if not self.roots:
            return b""
        uris = (root if "://" in root else Path(root).absolute().as_uri() for root in self.roots)
        return json.dumps({"roots": [{"uri": uri} for uri in uris]}).encode()

    @model_validator(mode="before")
    @classmethod
    def _share_by_any_name(cls, value: object) -> object:
        """Take `isolation`, as `share` was called, and decide about `share` where nothing is said of it.

        A server that may ask for nothing is one that never asks.
        """
        if not isinstance(value, dict):
            return value
        given = dict(cast("dict[str, object]", value))
        if "isolation" in given:
            if "share" in given:
                raise ValueError("`isolation` is an older name of `share`: take one of them out")
            isolation = given.pop("isolation")
            given["share"] = "session" if isolation == "client" else isolation
        if given.get("project_texts"):
            given.setdefault("share", "project")
        auth = given.get("auth")
        if isinstance(auth, dict) and cast("dict[str, object]", auth).get("as") in PER_USER:
            given.setdefault("share", "user")
            if given.get("url"):
                given.setdefault("max_instances", _SESSIONS_OF_USERS)
        if given.get("may_ask") == [] or given.get("share") == "fleet":  # no bridge would be the one to ask
            given["questions"] = "never"
        return given

    @field_validator("env", mode="before")
    @classmethod
    def _numbers_are_text(cls, value: object) -> object:
        """Take `PORT = 3000` and `DEBUG = true` as the text they become anyway."""
        if not isinstance(value, dict):
            return value
        given = cast("dict[object, object]", value)
        return {key: json.dumps(item) if isinstance(item, bool | int | float) else item for key, item in given.items()}

    @field_validator("sandbox", mode="before")
    @classmethod
    def _from_boolean(cls, value: object) -> object:
        """Take `true` for the section `sandbox` as it is, `false` for none, and `"profile"` for that of its package."""
        return {} if value is True else None if value is False else {"profile": "auto"} if value == "profile" else value

    @field_validator("command")
    @classmethod
    def _program_alone(cls, value: str | None) -> str | None:
        """Refuse `npx -y foo`: the whole would be looked for as one program. A path may have blanks in it."""
        words = (value or "").split()
        if len(words) > 1 and not set(words[0]) & set("/\\"):
            raise ValueError("arguments belong into `args`")
        return value

    @field_validator("transport", mode="before")
    @classmethod
    def _known_transport(cls, value: object) -> object:
        """Take other spellings."""
        return TRANSPORT_SPELLINGS.get(value, value) if isinstance(value, str) else value

    @field_validator("url")
    @classmethod
    def _checked_url(cls, value: str | None) -> str | None:
        """Check the URL and keep it as it was written; pydantic would add a slash."""
        if value is None:
            return None
        try:
            url: Url = _url.validate_python(value)
        except ValidationError as error:
            raise ValueError(f"expected a URL such as https://example.com/mcp ({error.errors()[0]['msg']})") from error
        if url.username is not None or url.password is not None:
            raise ValueError("a URL shows in logs: put credentials into `headers`, not into the URL")
        return value

    @field_validator("proxy")
    @classmethod
    def _checked_proxy(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                _proxy.validate_python(value)
            except ValidationError as error:
                what = "expected a proxy such as http://proxy.example.com:3128 or socks5://127.0.0.1:1080"
                raise ValueError(what) from error
        return value

    @property
    def kind(self) -> Literal["stdio", "streamable-http", "sse", "websocket"]:
        """How to speak to it, by all that is said; streamable HTTP where the server has the last word."""
        if self.transport is not None:
            return self.transport
        if self.url is None:
            return "stdio"
        return "websocket" if self._scheme in ("ws", "wss") else "streamable-http"

    @property
    def _scheme(self) -> str:
        return (self.url or "").partition(":")[0].lower()

    @model_validator(mode="after")
    def _has_one_project(self) -> Self:
        if (self.is_shared or self.share == "user") and self.needs_project:
            where = ", ".join(sorted({f"`{text.key[0]}`" for text in self.project_texts if text.needs_project}))
            of_user = " of a user" if self.share == "user" else ""
            raise ValueError(
                f'`share = "{self.share}"` means one process for all clients{of_user}, but ${{PROJECT_ROOT}} in '
                f"{where} is another directory in each project: take out `share`, or write "
                "${PROJECT_ROOT:-DIR} for what it is to be"
            )
        return self

    @model_validator(mode="after")
    def _has_a_known_profile(self) -> Self:
        if self.sandbox is not None and self.sandbox.profile is not None and self.command is not None:
            from mcpbridge.upstream.isolation.packages import package_of  # few servers have one
            from mcpbridge.upstream.isolation.profiles import chosen_profile

            chosen_profile(self.sandbox.profile, package_of(self.command, self.args))
        return self

    @model_validator(mode="after")
    def _one_way_to_reach_it(self) -> Self:
        if self.image is not None:
            self._check_image()
        if [self.command, self.url, self.image].count(None) != 2:
            raise ValueError(
                "a server has one of `command` (a program to start), `image` (a container to run) and `url` (one that "
                "is running)"
                if self.image is not None
                else "a server has either `command` (a program to start) or `url` (one that is running)"
            )
        if self.image is None and self.container != ContainerSettings.model_construct():
            raise ValueError("`container` goes with `image`")
        if self.url is not None and self.transport == "stdio":
            raise ValueError("the transport 'stdio' needs `command`, not `url`")
        if self.url is None and self.transport not in (None, "stdio"):
            raise ValueError(f"the transport '{self.transport}' needs `url`, not `command`")
        if self.url is None and self.headers:
            raise ValueError("`headers` go with `url`; a `command` gets its secrets through `env`")
        self.auth.check_server(has_url=self.url is not None, share=self.share, headers=self.headers)
        if self.url is not None and self.share == "fleet":
            raise ValueError('`share = "fleet"` goes with `command`: each bridge has a session of its own with a `url`')
        if self.url is not None and self.sandbox is not None:
            raise ValueError("`sandbox` goes with `command`: what runs behind a `url` runs elsewhere")
        if self.url is None and (self.proxy is not None or self.tls != TlsSettings.model_construct()):
            raise ValueError(f"`{'proxy' if self.proxy is not None else 'tls'}` goes with `url`, not with `command`")
        if self.transport in ("streamable-http", "sse") and self._scheme in ("ws", "wss"):
            raise ValueError(f"a {self._scheme}:// URL is one of the transport 'websocket', not '{self.transport}'")
        if self.transport == "sse" and self.era == "modern":
            raise ValueError("the transport 'sse' is older than the modern era: take out `era`, or `transport`")
        if self.kind == "websocket" and (self.proxy or "").lower().startswith("https:"):
            raise ValueError("a WebSocket goes through a proxy of the kind http:// or socks5:// only")
        stray = [key for key in ("args", "env", "cwd", "inherit_env") if self.url and getattr(self, key)]
        if stray:
            raise ValueError(f"`{stray[0]}` goes with `command`, not with `url`")
        return self

    def _check_image(self) -> None:
        if self.cwd is not None:
            raise ValueError("`cwd` goes with `command`; an `image` has `container.workdir`")
        if self.memory_limit is not None:
            raise ValueError("`memory_limit` goes with `command`; an `image` has `container.memory`")
        if self.sandbox is not None:
            raise ValueError(
                "`sandbox` goes with `command`: an `image` runs apart from this machine already, and `container` has "
                "`network`, `memory`, `cpus` and `pids`. A list of hosts is for a `command` alone: the engine, "
                "not the bridge, makes the network of a container"
            )
        if self.inherit_env is True:
            raise ValueError(
                "an `image` gets the variables that `inherit_env` lists, not all: most are of this machine"
            )
