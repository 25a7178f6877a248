"""Bridges that do not reach one another, or the Redis server: real links between network namespaces (issue 24)."""

import secrets
import sys
from collections.abc import Generator
from hashlib import sha256
from pathlib import Path

import httpx2
import pytest

from support.fleet_clients import INITIALIZE, Client, message, read
from support.partitions import Network, needs_namespaces, network, redis_on
from support.replicas import TOKEN, Replica, needs_fleet, until

pytestmark = [*needs_fleet, needs_namespaces]
ONCE = Path(__file__).parents[1] / "servers" / "once.py"


class Parted:
    """Two bridges and a Redis server, each on a host of its own."""

    def __init__(self, directory: Path, net: Network, replicas: list[Replica]) -> None:
        self.net, self.replicas, self._made = net, replicas, directory / "made.txt"
        self.first, self.second, self.redis = net.hosts

    def made(self) -> list[str]:
        """The calls that the servers had."""
        return self._made.read_text("utf-8").split()


@pytest.fixture
def parted(tmp_path: Path) -> Generator[Parted]:
    with network(3) as net:
        *bridges, where = net.hosts
        redis = redis_on(where, tmp_path / "redis").start()
        replicas = list[Replica]()
        try:
            for number, host in enumerate(bridges):
                config = (
                    f'[http]\nallowed_hosts = ["{host.outside}"]\n'
                    f'[[http.tokens]]\nname = "tester"\nsha256 = "{sha256(TOKEN.encode()).hexdigest()}"\n'
                    f'[store]\nkind = "redis"\nurl = "{redis.url}"\nprefix = "{PREFIX}"\n'
                    '[fleet]\nlisten = "LINK"\nname = "NAME"\nkey = "KEY"\n'
                    f'[servers.s]\ncommand = "{sys.executable}"\nargs = ["{ONCE}", "{tmp_path / "made.txt"}"]\n'
                )
                places = {"host": host.outside, "link_host": host.inside}
                replicas.append(Replica(tmp_path, f"r{number}", config, before=host.run_there, **places))
                replicas[-1].start()
            log = replicas[0].log
            until(lambda: "a bridge has joined the fleet" in log.read_text("utf-8"), "the first knows the second")
            yield Parted(tmp_path, net, replicas)
        finally:
            for replica in replicas:
                replica.kill()
            redis.kill()


PREFIX = f"parted-{secrets.token_hex(4)}"


@pytest.fixture
def http() -> Generator[httpx2.Client]:
    with httpx2.Client(trust_env=False, timeout=60) as found:
        yield found


def call(client: Client, replica: Replica, id_: str) -> httpx2.Response:
    return client.post(replica, message("tools/call", 7, name="s__once", arguments={"id": id_, "seconds": 0}))


def owner_of(answer: httpx2.Response) -> str:
    """The process that answered."""
    return read(answer)["result"]["content"][0]["text"].rpartition(",")[2]


def test_a_bridge_that_only_the_store_reaches_keeps_its_sessions(parted: Parted, http: httpx2.Client) -> None:
    """Its lease lives, so nobody takes them over: requests by way of the other bridge are not sent, and fail soon."""
    first, second = parted.replicas
    client = Client(http).begin(first)
    until(lambda: call(client, second, "ready").is_success, "the bridges reach one another")
    owner = owner_of(call(client, first, "here"))
    parted.net.cut(parted.first, parted.second)
    lost = call(client, second, "lost")  # on the connection that there is: it may have arrived
    assert "outcome unknown" in lost.text, lost.text
    for number in range(3):
        refused = call(client, second, f"refused-{number}")
        assert refused.status_code == 503, refused.text
        assert "not sent" in refused.text
        assert refused.elapsed.total_seconds() < 30, "not at the end of anybody's patience"
        assert owner_of(call(client, first, f"at-home-{number}")) == owner
    parted.net.mend(parted.first, parted.second)
    answers = list[httpx2.Response]()

    def is_back() -> bool:
        answers.append(call(client, second, f"again-{len(answers)}"))
        return answers[-1].status_code == 200

    until(is_back, "the bridges reach one another again")
    assert owner_of(answers[-1]) == owner
    made = parted.made()
    assert len(made) == len(set(made))
    assert not {one for one in made if one.startswith("refused")}


def test_a_bridge_that_the_store_does_not_reach_gives_its_sessions_up(parted: Parted, http: httpx2.Client) -> None:
    """The other one takes them over when the lease has ended, and the first learns of that when it is back."""
    first, second = parted.replicas
    client = Client(http).begin(first)
    until(lambda: call(client, second, "ready").is_success, "the bridges reach one another")
    owner = owner_of(call(client, first, "here"))
    parted.net.cut(parted.first, parted.redis)
    answers = list[httpx2.Response]()

    def is_taken_over() -> bool:
        answers.append(call(client, second, f"there-{len(answers)}"))
        return answers[-1].status_code == 200 and owner_of(answers[-1]) != owner

    until(is_taken_over, "the other bridge has the session")
    another = owner_of(answers[-1])
    ready = f"{first.root}/healthz/ready"
    until(lambda: http.get(ready).json()["status"] == "draining", "the first has stepped back")
    by_way = call(client, first, "by-way")  # sent to the other one
    assert by_way.status_code == 200, by_way.text
    assert owner_of(by_way) == another
    failed = [one.text for one in answers if one.status_code != 200]
    assert all("not sent" in text or "outcome unknown" in text for text in failed), failed
    parted.net.mend(parted.first, parted.redis)

    def has_learnt() -> bool:
        answers.append(call(client, first, f"back-{len(answers)}"))
        return answers[-1].status_code == 200 and owner_of(answers[-1]) == another

    until(has_learnt, "the first bridge sends them to the other one")
    made = parted.made()
    assert len(made) == len(set(made))


def test_a_bridge_that_reaches_nobody_refuses_its_sessions(parted: Parted, http: httpx2.Client) -> None:
    """Others may have them by then. What needs no session is answered, and all of it is back afterwards."""
    first, second = parted.replicas
    client = Client(http).begin(first)
    until(lambda: call(client, second, "ready").is_success, "the bridges reach one another")
    owner = owner_of(call(client, first, "here"))
    parted.net.cut(parted.first, parted.redis)
    parted.net.cut(parted.first, parted.second)
    answers = list[httpx2.Response]()

    def is_refused() -> bool:
        answers.append(call(client, first, f"alone-{len(answers)}"))
        return answers[-1].status_code == 503

    until(is_refused, "the bridge has stepped back")
    assert "not sent" in answers[-1].text
    assert all(owner_of(one) == owner for one in answers[:-1]), "its lease lived"
    until(lambda: call(client, second, "there").status_code == 200, "the other bridge has the session")
    refused = len(answers) + 3
    for number in range(len(answers), refused):
        answers.append(call(client, first, f"alone-{number}"))
        assert answers[-1].status_code == 503, answers[-1].text
    opening = Client(http).post(first, INITIALIZE)
    assert opening.status_code == 503, "others would not know of it"
    parted.net.mend(parted.first, parted.redis)
    parted.net.mend(parted.first, parted.second)
    until(lambda: call(client, first, f"back-{secrets.token_hex(4)}").status_code == 200, "it is a member again")
    until(lambda: Client(http).post(first, INITIALIZE).status_code == 200, "it takes new sessions")
    made = parted.made()
    assert len(made) == len(set(made))
