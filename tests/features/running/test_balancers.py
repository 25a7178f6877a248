"""The files of `deploy/` for several bridges that act as one, each with its real proxy (issue 24)."""

from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.ports import free_port
from support.proxies import BALANCERS, BRIDGES, Behind, Front, proxy
from support.real_sign_in import until


class Three:
    """A balancer, and what records what comes to each bridge behind it."""

    def __init__(self, front: Front, behind: list[Behind]) -> None:
        self.front, self.behind = front, behind

    def counts(self, path: str) -> list[int]:
        """How often each was asked for this path."""
        return [Counter(one for _, one, _ in bridge.heads)[path] for bridge in self.behind]


@pytest.fixture(params=list(BALANCERS))
def three(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Three]:
    ports = [free_port() for _ in BRIDGES]
    with proxy(str(request.param), tmp_path, BALANCERS[request.param](ports)) as front, ExitStack() as stack:
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
