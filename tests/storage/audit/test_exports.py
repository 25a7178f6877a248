"""Lines of the audit log on their way to other machines: their form, and who waits for whom (issue 22, Audit)."""

import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

from mcpbridge.storage.audit import exports
from mcpbridge.storage.audit.exports import Export, Message, Otlp, Program, Syslog
from mcpbridge.storage.audit.settings import AuditSettings

LINE = '{"seq":1,"kind":"call","client":"Zoë"}\n'.encode()
CALL = Message(1_800_000_000.25, "call", LINE, "refused")
POINT = Message(1_800_000_000.5, "audit.checkpoint", b'{"seq":1,"sig":"x"}\n', is_checkpoint=True)
_FORM = re.compile(rb"<(\d+)>1 (\S+) (\S+) mcpbridge (\d+) (\S+) - (.*)", re.DOTALL)


def parsed(text: bytes) -> tuple[int, str, str, bytes]:
    """Priority, time, message id and message (RFC 5424, 6)."""
    found = _FORM.fullmatch(text)
    assert found, text
    return int(found[1]), found[2].decode(), found[5].decode(), found[6]


def is_ours(texts: list[bytes]) -> None:
    assert parsed(texts[0]) == (13 * 8 + 4, "2027-01-15T08:00:00.250000Z", "call", LINE.rstrip())
    assert parsed(texts[1]) == (13 * 8 + 6, "2027-01-15T08:00:00.500000Z", "audit.checkpoint", POINT.line.rstrip())


def sent(export: Export, messages: list[Message]) -> None:
    export.start()
    export.offer(messages)
    export.end(30)
    assert (export.sent, export.lost, export.problem) == (len(messages), 0, "")


def test_syslog_over_udp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(30)
        sent(Export(Syslog(f"udp://127.0.0.1:{server.getsockname()[1]}")), [CALL, POINT])
        is_ours([server.recv(65536), server.recv(65536)])


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM], ids=["datagrams", "a stream"])
def test_syslog_over_a_unix_socket(tmp_path: Path, kind: socket.SocketKind) -> None:
    path = tmp_path / "log"
    with socket.socket(socket.AF_UNIX, kind) as server:
        server.bind(str(path))
        server.settimeout(30)
        if kind == socket.SOCK_STREAM:
            server.listen()
        sent(Export(Syslog(f"unix://{path}")), [CALL, POINT])
        if kind == socket.SOCK_STREAM:
            connection, _ = server.accept()
            with connection:
                is_ours(_all_of(connection).splitlines())
        else:
            is_ours([server.recv(65536), server.recv(65536)])


def _all_of(connection: socket.socket) -> bytes:
    data = b""
    while chunk := connection.recv(65536):
        data += chunk
    return data


def _counted(data: bytes) -> list[bytes]:
    """The messages of a stream with octet counting (RFC 6587, 3.4.1)."""
    found: list[bytes] = []
    while data:
        size, _, rest = data.partition(b" ")
        found.append(rest[: int(size)])
        data = rest[int(size) :]
    return found


@contextmanager
def listening(wrap: Callable[[socket.socket], socket.socket] = lambda one: one) -> Iterator[tuple[int, list[bytes]]]:
    """A server for one connection: its port, and what came until that was closed."""
    came: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)

        def accept() -> None:
            connection, _ = server.accept()
            with wrap(connection) as one:
                came.extend(_counted(_all_of(one)))

        thread = threading.Thread(target=accept)
        thread.start()
        yield server.getsockname()[1], came
        thread.join(30)


def test_syslog_over_tcp_counts_octets() -> None:
    with listening() as (port, came):
        sent(Export(Syslog(f"tcp://127.0.0.1:{port}")), [CALL, POINT])
    is_ours(came)


def test_syslog_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with listening(lambda one: context.wrap_socket(one, server_side=True)) as (port, came):
        sent(Export(Syslog(f"tls://localhost:{port}")), [CALL, POINT])
    is_ours(came)


def test_lines_wait_for_a_collector_that_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "_FIRST_PAUSE", 0.02)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    export = Export(Syslog(f"tcp://127.0.0.1:{port}"))
    export.start()
    export.offer([CALL])
    until = time.monotonic() + 30
    while not export.problem and time.monotonic() < until:
        time.sleep(0.01)
    assert "refused" in export.problem.lower()
    with socket.create_server(("127.0.0.1", port)) as server:
        server.settimeout(30)
        connection, _ = server.accept()
        export.offer([POINT])
        export.end(30)
        with connection:
            is_ours(_counted(_all_of(connection)))
    assert export.status() == {
        "to": f"tcp://127.0.0.1:{port}", "sent": 2, "waiting": 0, "lost": 0, "problem": ""
    }  # fmt: skip


def test_a_collector_that_hangs_holds_up_nobody_and_losses_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "_MOST_WAITING", 10)
    hangs, goes_on = threading.Event(), threading.Event()

    class Hanging:
        name, wants_lines = "a collector", True

        def send(self, messages: list[Message]) -> int:
            hangs.set()
            goes_on.wait(30)
            return 0

        def close(self) -> None: ...

    export = Export(Hanging())
    export.start()
    export.offer([CALL])
    assert hangs.wait(30)
    export.offer([CALL] * 25)  # returns at once, or the test would hang here
    assert export.lost == 16
    goes_on.set()
    export.end(30)
    assert (export.sent, export.lost) == (10, 16)


def test_what_is_not_sent_at_the_end_is_counted_as_lost() -> None:
    export = Export(Program(["/nonexistent/program"]))
    export.start()
    export.offer([CALL, POINT])  # lines are not for programs
    export.end(30)
    assert (export.sent, export.lost) == (0, 1)


def test_a_line_that_no_datagram_takes_is_counted_as_lost() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        export = Export(Syslog(f"udp://127.0.0.1:{server.getsockname()[1]}"))
        export.start()
        export.offer([Message(0.0, "call", b"x" * 70_000), CALL])
        export.end(30)
    assert (export.sent, export.lost) == (1, 1)


def test_opentelemetry_gets_a_log_record_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    came: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
        sent(Export(Otlp()), [CALL, POINT])
        server.shutdown()
    request = ExportLogsServiceRequest()
    request.ParseFromString(came[0])
    one, two = request.resource_logs[0].scope_logs[0].log_records
    assert one.body.string_value == LINE.decode().rstrip()
    assert (one.event_name, two.event_name) == ("mcpbridge.call", "mcpbridge.audit.checkpoint")
    assert one.time_unix_nano == 1_800_000_000_250_000_000
    assert one.severity_number > two.severity_number


@pytest.mark.parametrize("address", ["localhost:514", "http://host", "udp://", "udp"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="expected udp://HOST:PORT"):
        AuditSettings(syslog=address)
