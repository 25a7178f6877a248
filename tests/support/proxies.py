"""The files of `deploy/` before their real proxies: only names, ports and certificates differ."""

import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trustme

from support.ports import free_port
from support.real_sign_in import until

DEPLOY = Path(__file__).parents[2] / "deploy"
Command = Callable[[Path, int, int], list[str]]
"""What to run for a proxy: the directory of its files, its port, and the port behind it."""


def replaced(name: str, changes: dict[str, str]) -> str:
    """A file of `deploy/` with other names and ports; each that is to be replaced must be there."""
    text = (DEPLOY / name).read_text("utf-8")
    for old, new in changes.items():
        assert old in text, f"{old!r} is not in deploy/{name}"
        text = text.replace(old, new)
    return text


class Behind:
    """What is behind the proxy for a while, and records what comes to it."""

    def __init__(self, port: int) -> None:
        self.heads: list[tuple[str, str, dict[str, str]]] = []
        """Method, path and headers of each request, by lower-case names."""
        mine = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                mine.heads.append((self.command, self.path, headers))
                self.rfile.read(int(headers.get("content-length", 0)))
                if self.path == "/drop":
                    self.close_connection = True
                    return
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            do_GET = do_POST = _answer  # noqa: N815 - as it is called there

            def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002 - as it is called there

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Front:
    """A proxy that runs."""

    def __init__(self, name: str, directory: Path, command_of: Command) -> None:
        self.name, self.port, self.behind = name, free_port(), free_port()
        self.origin = f"https://localhost:{self.port}"
        self.directory = directory
        authority = trustme.CA()
        leaf = authority.issue_cert("localhost")
        (directory / "fullchain.pem").write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        leaf.private_key_pem.write_to_path(str(directory / "privkey.pem"))
        self.tls = ssl.create_default_context()
        authority.configure_trust(self.tls)
        command = command_of(directory, self.port, self.behind)
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(directory), "XDG_DATA_HOME": str(directory)}
        self.log = directory / "log.txt"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=env)

    def ask(self, path: str, method: str = "GET", **more: Any) -> httpx2.Response:
        with httpx2.Client(verify=self.tls, timeout=60, trust_env=False) as client:
            return client.request(method, f"{self.origin}{path}", **more)

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(30)


@contextmanager
def recording(front: Front) -> Generator[Behind]:
    behind = Behind(front.behind)
    try:
        yield behind
    finally:
        behind.end()


@contextmanager
def proxy(name: str, directory: Path, command_of: Command, *, serves: bool = False) -> Generator[Front]:
    """This proxy runs meanwhile, with nothing behind it yet; `serves`: what is behind it is there."""
    if shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
        pytest.skip(f"{name} is not installed: `make proxies` installs Debian's")
    front = Front(name, directory, command_of)
    try:
        try:
            expected = (200,) if serves else (502, 503)
            until(lambda: front.ask("/healthz").status_code in expected, "the proxy answers")
        except AssertionError:
            raise AssertionError(front.log.read_text("utf-8")) from None
        yield front
    finally:
        front.end()


BRIDGES = ("10.0.0.5:8808", "10.0.0.6:8808", "10.0.0.7:8808")
"""Of a fleet, as the files for balancers name them."""


def _at(ports: Sequence[int]) -> dict[str, str]:
    """The bridges as they are on this machine."""
    return {address: f"127.0.0.1:{port}" for address, port in zip(BRIDGES, ports, strict=True)}


def _nginx(ports: Sequence[int]) -> Command:
    def command(directory: Path, port: int, _: int) -> list[str]:
        cert = {"/etc/ssl/mcpbridge": str(directory), "listen 443 ": f"listen 127.0.0.1:{port} "}
        site = replaced("nginx-fleet.conf", {**_at(ports), "bridge.example.com": "localhost", **cert})
        (directory / "site.conf").write_text(site)
        places = "".join(f"{kind}_temp_path {directory}/{kind};\n" for kind in ("client_body", "proxy"))
        (directory / "nginx.conf").write_text(
            f"daemon off;\nmaster_process off;\npid {directory}/nginx.pid;\nerror_log {directory}/error.log;\n"
            f"events {{}}\nhttp {{\naccess_log off;\n{places}include {directory}/site.conf;\n}}\n"
        )
        return ["nginx", "-p", str(directory), "-e", f"{directory}/error.log", "-c", str(directory / "nginx.conf")]

    return command


def _haproxy(ports: Sequence[int]) -> Command:
    def command(directory: Path, port: int, _: int) -> list[str]:
        pair = (directory / "fullchain.pem").read_bytes() + (directory / "privkey.pem").read_bytes()
        (directory / "both.pem").write_bytes(pair)
        paths = {"/etc/ssl/mcpbridge": str(directory), "bind :443 ": f"bind 127.0.0.1:{port} "}
        changes = {**_at(ports), "bridge.example.com": "localhost", **paths}
        (directory / "haproxy.cfg").write_text(replaced("haproxy-fleet.cfg", changes))
        return ["haproxy", "-db", "-f", str(directory / "haproxy.cfg")]

    return command


BALANCERS: dict[str, Callable[[Sequence[int]], Command]] = {"nginx": _nginx, "haproxy": _haproxy}
"""Before three bridges at these ports, by the program's name."""
