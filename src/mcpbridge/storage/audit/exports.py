"""Sends lines and checkpoints of the audit log to other machines: syslog, OpenTelemetry, a program.

Each has a thread and a queue of its own. When a queue is full, since the other side is slow or gone, new lines are
counted as lost there; the log itself has them. Nobody waits for any of this.
"""

import os
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from mcpbridge.base.errors import ConfigError
from mcpbridge.storage.audit.settings import AuditSettings

_MOST_WAITING = 10_000
"""Lines that wait for one receiver."""
_AT_ONCE = 200
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
"""Seconds until a receiver that failed is tried again; doubles each time."""
_SECONDS = 10.0
"""Seconds that one attempt may take."""

_PORTS = {"udp": 514, "tcp": 601, "tls": 6514}
_AUDIT = 13
"""The facility "log audit" (RFC 5424, 6.2.1)."""
_WARNING, _NOTICE, _INFORMATIONAL = 4, 5, 6
_SEVERITIES = {"refused": _WARNING, "failed": _NOTICE, "tool_error": _NOTICE, "interrupted": _NOTICE}
_LARGEST_DATAGRAM = 65_000


class Message(Struct, frozen=True):
    """A line, or a checkpoint."""

    at: float
    kind: str
    line: bytes
    outcome: str = ""
    is_checkpoint: bool = False
    attributes: Mapping[str, str] = MappingProxyType({})
    """What collectors search for: who, from where, and what, by the names of OpenTelemetry."""


_ATTRIBUTES = {
    "principal": "user.id",
    "user": "user.name",
    "role": "mcpbridge.role",
    "address": "client.address",
    "session": "mcp.session.id",
    "method": "mcp.method.name",
    "tool": "gen_ai.tool.name",
    "client": "mcpbridge.client",
    "client_version": "mcpbridge.client_version",
    "oauth_client": "mcpbridge.oauth_client",
    "server": "mcpbridge.server",
    "outcome": "mcpbridge.outcome",
    "rule": "mcpbridge.rule",
}
"""Fields of lines, and what they are called there."""


def attributes_of(fields: Mapping[str, Any]) -> Mapping[str, str]:
    """The attributes of a line with these fields; those that it lacks are left out."""
    return {name: value for key, name in _ATTRIBUTES.items() if isinstance(value := fields.get(key), str) and value}


class Sink(Protocol):
    """Where messages go. For one thread."""

    name: str
    """What people see it named."""
    wants_lines: bool
    """Else it gets checkpoints only."""

    def send(self, messages: Sequence[Message]) -> int:
        """Send these; returns how many of them cannot be sent at all, however often it is tried.

        Raises:
            OSError: it does not work now.
        """
        ...

    def close(self) -> None:
        """Nothing more is sent."""
        ...


class Export:
    """A queue before a sink."""

    def __init__(self, sink: Sink) -> None:
        self.sent = self.lost = 0
        """Messages that the other side took, and those that it will never get."""
        self.problem = ""
        """Why the last attempt failed; empty: it did not."""
        self._sink = sink
        self._waiting = deque[Message]()
        self._wake, self._is_ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"audit to {sink.name}"[:60], daemon=True)

    @property
    def name(self) -> str:
        """What people see it named."""
        return self._sink.name

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def offer(self, messages: Sequence[Message]) -> None:
        """Send these some time, if there is room."""
        wanted = [one for one in messages if self._sink.wants_lines or one.is_checkpoint]
        room = max(0, _MOST_WAITING - len(self._waiting))
        self.lost += max(0, len(wanted) - room)
        self._waiting.extend(wanted[:room])
        if wanted:
            self._wake.set()

    def end(self, seconds: float) -> None:
        """Send what is left, for so many seconds at most; the rest is lost."""
        self._is_ending.set()
        self._wake.set()
        self._thread.join(seconds)
        if self._thread.is_alive():
            self.lost += len(self._waiting)

    def status(self) -> dict[str, Any]:
        """How it is, as JSON values."""
        return {
            "to": self.name,
            "sent": self.sent,
            "waiting": len(self._waiting),
            "lost": self.lost,
            "problem": self.problem,
        }

    def _work(self) -> None:
        pause = _FIRST_PAUSE
        with suppress(OSError):
            while True:
                self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    some = [self._waiting[place] for place in range(min(_AT_ONCE, len(self._waiting)))]
                    try:
                        refused = self._sink.send(some)
                    except OSError as error:
                        self.problem = error.strerror or str(error) or type(error).__name__
                        self._sink.close()
                        if self._is_ending.wait(pause):
                            self.lost += len(self._waiting)
                            self._waiting.clear()
                            break
                        pause = min(2 * pause, _LONGEST_PAUSE)
                        continue
                    pause, self.problem = _FIRST_PAUSE, ""
                    self.sent += len(some) - refused
                    self.lost += refused
                    for _ in some:
                        self._waiting.popleft()
                if self._is_ending.is_set():
                    self._sink.close()
                    return


class Syslog:
    """A syslog server (RFC 5424): over UDP, over TCP or TLS with octet counting (RFC 6587), or a Unix socket."""

    wants_lines = True

    def __init__(self, url: str) -> None:
        """`url`: as `audit.syslog` has it."""
        self.name = url
        found = urlsplit(url)
        self._kind, self._path = found.scheme, found.path
        self._host = found.hostname or ""
        self._port = found.port or _PORTS.get(self._kind, 0)
        self._socket: socket.socket | None = None
        self._is_stream = self._kind in ("tcp", "tls")
        self._own_host = socket.gethostname() or "-"

    def send(self, messages: Sequence[Message]) -> int:
        """See `Sink`."""
        connection = self._socket
        if connection is None:
            connection = self._socket = self._connect()
        refused = 0
        if self._is_stream:
            texts = [self._text(one) for one in messages]
            if self._kind == "unix":
                connection.sendall(b"".join(text + b"\n" for text in texts))
            else:
                connection.sendall(b"".join(b"%d %b" % (len(text), text) for text in texts))
            return 0
        for one in messages:
            text = self._text(one)
            if len(text) > _LARGEST_DATAGRAM:
                refused += 1
            else:
                connection.send(text)
        return refused

    def close(self) -> None:
        """See `Sink`."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
            self._socket = None

    def _connect(self) -> socket.socket:
        if self._kind == "unix":
            return self._connect_locally()
        if self._kind == "udp":
            family, kind, protocol, _, address = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_DGRAM)[0]
            found = socket.socket(family, kind, protocol)
            found.connect(address)
            return found
        found = socket.create_connection((self._host, self._port), _SECONDS)
        if self._kind == "tls":
            import ssl

            found = ssl.create_default_context().wrap_socket(found, server_hostname=self._host)
        return found

    def _connect_locally(self) -> socket.socket:
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            found = socket.socket(socket.AF_UNIX, kind)
            found.settimeout(_SECONDS)
            try:
                found.connect(self._path)
            except OSError:
                found.close()
                if kind == socket.SOCK_STREAM:
                    raise
            else:
                self._is_stream = kind == socket.SOCK_STREAM
                return found
        raise AssertionError("one of the two was tried last")

    def _text(self, one: Message) -> bytes:
        priority = 8 * _AUDIT + _SEVERITIES.get(one.outcome, _INFORMATIONAL)
        at = datetime.fromtimestamp(one.at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        message_id = "".join(mark for mark in one.kind if "!" <= mark <= "~")[:32] or "-"
        head = f"<{priority}>1 {at} {self._own_host} mcpbridge {os.getpid()} {message_id} - "
        return head.encode("ascii", "replace") + one.line.removesuffix(b"\n")


class Otlp:
    """An OpenTelemetry collector: a log record for each line, by OTLP over HTTP."""

    wants_lines = True

    def __init__(self) -> None:
        """Where to is in the environment (`OTEL_EXPORTER_OTLP_ENDPOINT` and the like).

        Raises:
            ConfigError: the extra `otel` is not installed.
        """
        try:
            from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
            from opentelemetry.sdk.resources import Resource
        except ImportError as error:
            hint = "pip install 'mcpbridge[otel]'"
            raise ConfigError("sending the audit log needs OpenTelemetry", key="audit.otlp", hint=hint) from error
        self.name = "OpenTelemetry"
        self._exporter = OTLPLogExporter(timeout=_SECONDS)
        is_named = "OTEL_SERVICE_NAME" in os.environ or "service.name" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        self._resource = Resource.create({} if is_named else {"service.name": "mcpbridge"})

    def send(self, messages: Sequence[Message]) -> int:
        """See `Sink`."""
        from opentelemetry._logs import LogRecord, SeverityNumber
        from opentelemetry.sdk._logs import ReadableLogRecord
        from opentelemetry.sdk._logs.export import LogRecordExportResult

        levels = {_WARNING: SeverityNumber.WARN, _NOTICE: SeverityNumber.INFO2}
        records = [
            ReadableLogRecord(
                LogRecord(
                    timestamp=round(one.at * 1e6) * 1000,
                    severity_number=levels.get(_SEVERITIES.get(one.outcome, 0), SeverityNumber.INFO),
                    body=one.line.decode().removesuffix("\n"),
                    attributes={"mcpbridge.audit.kind": one.kind, **one.attributes},
                    event_name=f"mcpbridge.{one.kind}",
                ),
                self._resource,
            )
            for one in messages
        ]
        if self._exporter.export(records) is not LogRecordExportResult.SUCCESS:
            raise OSError("the collector did not take it")
        return 0

    def close(self) -> None:
        """See `Sink`."""


class Program:
    """A program that gets each checkpoint on standard input."""

    wants_lines = False

    def __init__(self, command: Sequence[str]) -> None:
        self.name = f"`{command[0]}`"
        self._command = list(command)

    def send(self, messages: Sequence[Message]) -> int:
        """See `Sink`."""
        for one in messages:
            try:
                subprocess.run(
                    self._command,
                    input=one.line,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=_SECONDS,
                    check=True,
                )
            except subprocess.CalledProcessError as error:
                raise OSError(f"it ended with {error.returncode}") from error
            except subprocess.TimeoutExpired as error:
                raise OSError(f"it took longer than {_SECONDS:g} s") from error
        return 0

    def close(self) -> None:
        """See `Sink`."""


def exports_of(settings: AuditSettings) -> list[Export]:
    """Those that the settings ask for; none is started yet.

    Raises:
        ConfigError: what one needs is not installed.
    """
    sinks: list[Sink] = []
    if settings.syslog is not None:
        sinks.append(Syslog(settings.syslog))
    if settings.otlp:
        sinks.append(Otlp())
    if settings.anchor_command:
        sinks.append(Program(settings.anchor_command))
    return [Export(sink) for sink in sinks]
