"""The files of `deploy/` for several bridges that act as one, each with its real proxy (issue 24)."""

from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.ports import free_port
from support.proxies import Behind, Command, Front, proxy, replaced
from support.real_sign_in import until

BRIDGES = {"10.0.0.5:8808", "10.0.0.6:8808", "10.0.0.7:8808"}


def at(ports: list[int]) -> dict[str, str]:
    """The bridges as they are on this machine."""
    return {address: f"127.0.0.1:{port}" for address, port in zip(sorted(BRIDGES), ports, strict=True)}


def nginx(ports: list[int]) -> Command:
    def command(directory: Path, port: int, _: int) -> list[str]:
        cert = {"/etc/ssl/mcpbridge": str(directory), "listen 443 ": f"listen 127.0.0.1:{port} "}
        site = replaced("nginx-fleet.conf", {**at(ports), "bridge.example.com": "localhost", **cert})
        (directory / "site.conf").write_text(site)
        places = "".join(f"{kind}_temp_path {directory}/{kind};\n" for kind in ("client_body", "proxy"))
        (directory / "nginx.conf").write_text(
            f"daemon off;\nmaster_process off;\npid {directory}/nginx.pid;\nerror_log {directory}/error.log;\n"
            f"events {{}}\nhttp {{\naccess_log off;\n{places}include {directory}/site.conf;\n}}\n"
        )
        return ["nginx", "-p", str(directory), "-e", f"{directory}/error.log", "-c", str(directory / "nginx.conf")]

    return command


def haproxy(ports: list[int]) -> Command:
    def command(directory: Path, port: int, _: int) -> list[str]:
        pair = (directory / "fullchain.pem").read_bytes() + (directory / "privkey.pem").read_bytes()
        (directory / "both.pem").write_bytes(pair)
        paths = {"/etc/ssl/mcpbridge": str(directory), "bind :443 ": f"bind 127.0.0.1:{port} "}
        changes = {**at(ports), "bridge.example.com": "localhost", **paths}
        (directory / "haproxy.cfg").write_text(replaced("haproxy-fleet.cfg", changes))
        return ["haproxy", "-db", "-f", str(directory / "haproxy.cfg")]

    return command


class Three:
    """A balancer, and what records what comes to each bridge behind it."""

    def __init__(self, front: Front, behind: list[Behind]) -> None:
        self.front, self.behind = front, behind

    def counts(self, path: str) -> list[int]:
        """How often each was asked for this path."""
        return [Counter(one for _, one, _ in bridge.heads)[path] for bridge in self.behind]


@pytest.fixture(params=["nginx", "haproxy"])
def three(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Three]:
    ports = [free_port() for _ in BRIDGES]
    command = nginx(ports) if request.param == "nginx" else haproxy(ports)
    with proxy(str(request.param), tmp_path, command) as front, ExitStack() as stack:
        behind = [Behind(port) for port in ports]
        for one in behind:
            stack.callback(one.end)
        found = Three(front, behind)

        def all_are_asked() -> bool:
            front.ask("/warm", "POST", json={})
            return all(found.counts("/warm"))

        until(all_are_asked, "every bridge is asked")
        yield found


def test_each_request_goes_to_the_next_bridge(three: Three) -> None:
    before = three.counts("/mcp")
    for _ in range(9):
        assert three.front.ask("/mcp", "POST", json={}).status_code == 200
    assert [now - then for now, then in zip(three.counts("/mcp"), before, strict=True)] == [3, 3, 3]


def test_a_request_that_was_sent_goes_to_no_other_bridge(three: Three) -> None:
    """It may have been a call, and have had its effect."""
    for number in range(1, 7):
        assert three.front.ask("/drop", "POST", json={}).status_code in (502, 503)
        assert sum(three.counts("/drop")) == number
        three.front.ask("/warm", "POST", json={})


def test_a_bridge_that_is_gone_costs_nobody_a_request(three: Three) -> None:
    """Nothing was sent to a bridge that could not be connected to, so another one is asked."""
    three.behind[0].end()
    for _ in range(12):
        assert three.front.ask("/mcp", "POST", json={}).status_code == 200
    assert sum(three.counts("/mcp")[1:]) == 12


def test_the_health_check_names_a_host_that_the_bridge_serves(three: Three) -> None:
    """Another host is refused (DNS rebinding), and every bridge would count as down."""
    if three.front.name == "nginx":
        pytest.skip("it has no health checks")
    until(lambda: all(three.counts("/healthz/ready")), "every bridge is checked")
    hosts = {headers.get("host") for one in three.behind for _, path, headers in one.heads if path == "/healthz/ready"}
    assert hosts <= {"localhost", f"localhost:{three.front.port}"}
