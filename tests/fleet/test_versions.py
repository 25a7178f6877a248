"""Bridges of neighbouring versions in one fleet, as during a rolling upgrade (issue 24)."""

import json
import shutil
from collections.abc import Generator, Sequence
from pathlib import Path

import httpx2
import pytest

import mcpbridge
from support.fleet_clients import Client, message, read
from support.redis_server import Server
from support.replicas import Fleet, Replica, fleet, needs_fleet, until

pytestmark = needs_fleet


def neighbour(directory: Path, *changes: tuple[str, str, str]) -> Sequence[str]:
    """The program of a bridge of another version. `changes`: file, what stands there, and what shall."""
    copy = directory / "next"
    shutil.copytree(Path(mcpbridge.__file__).parent, copy / "mcpbridge", ignore=shutil.ignore_patterns("__pycache__"))
    for name, before, after in (("fleet/fleet.py", "version=__version__", 'version="9999.0"'), *changes):
        file = copy / "mcpbridge" / name
        text = file.read_text("utf-8")
        assert before in text, f"{name} has changed: this test has to change with it"
        file.write_text(text.replace(before, after), "utf-8")
    program = directory / "next.py"
    begin = f"import sys\nsys.path.insert(0, {str(copy)!r})\nfrom mcpbridge.__main__ import main\n"
    program.write_text(f"{begin}if __name__ == '__main__':\n    sys.exit(main())\n", "utf-8")
    return [str(program)]


@pytest.fixture
def one(tmp_path: Path) -> Generator[Fleet]:
    """A fleet of one bridge of this version."""
    redis = Server(tmp_path / "redis").start()
    try:
        with fleet(tmp_path, redis, size=1) as found:
            yield found
    finally:
        redis.kill()


@pytest.fixture
def http() -> Generator[httpx2.Client]:
    with httpx2.Client(trust_env=False, timeout=60) as found:
        yield found


def echoes(client: Client, replica: Replica) -> bool:
    """A call is answered."""
    answer = client.post(replica, message("tools/call", 7, name="rich__echo", arguments={"text": "hello"}))
    return answer.status_code == 200 and "hello" in str(read(answer).get("result"))


def test_sessions_survive_an_upgrade_and_the_way_back(one: Fleet, http: httpx2.Client, tmp_path: Path) -> None:
    """Requests are forwarded between the versions both ways, and a bridge that stops hands its sessions to the other.

    The later version has one more member in the heads of requests, and one more in what is known of a bridge.
    """
    old = one.replicas[0]
    more = (
        "fleet/link/frames.py",
        "    guest: list[bytes] = []\n",
        "    guest: list[bytes] = []\n    later: int = 7\n",
    )
    known = (
        "fleet/records.py",
        "    stopped: tuple[str, ...] = ()\n",
        "    stopped: tuple[str, ...] = ()\n    later: int = 7\n",
    )
    new = one.add(neighbour(tmp_path, more, known)).start()
    client, other = Client(http).begin(old), Client(http).begin(new)
    for mine, replica in ((client, old), (other, new)):
        until(lambda mine=mine, replica=replica: echoes(mine, replica), "the server is ready")
    for _ in range(3):
        assert echoes(client, new), "by way of the later version"
        assert echoes(other, old), "by way of the earlier one"
    members = old.command("fleet", "members").stdout
    assert "9999.0" in members, members
    old.stop()
    for _ in range(3):
        assert echoes(client, new), "it was handed on"
    old.start()
    until(lambda: echoes(client, old), "forwarded, as before")
    new.stop()
    for mine in (client, other):
        assert echoes(mine, old), "and back"


def test_a_session_of_a_format_that_is_not_known_waits_for_its_version(
    one: Fleet, http: httpx2.Client, tmp_path: Path
) -> None:
    """It is refused with `not sent`, never misread, and continues as soon as there is a bridge that can read it."""
    old = one.replicas[0]
    changed = ("fleet/records.py", "_SESSION_FORMAT = 1\n", "_SESSION_FORMAT = 2\n")
    program = neighbour(tmp_path, changed)
    new, another = one.add(program).start(), one.add(program).start()
    client = Client(http).begin(new)
    until(lambda: echoes(client, new), "the server is ready")
    assert echoes(client, old), "while its bridge lives, others forward to it"
    new.kill()
    seen = list[httpx2.Response]()

    def is_refused() -> bool:
        seen.append(client.post(old, message("tools/list", 8)))
        return "another version" in seen[-1].text

    until(is_refused, "the earlier version does not take it over")
    assert seen[-1].status_code == 503
    assert all("not sent" in answer.text or "outcome unknown" in answer.text for answer in seen), seen
    until(lambda: echoes(client, another), "the later version does")
    assert echoes(client, old), "and the earlier one forwards to that"


def test_a_bridge_that_keeps_records_in_another_form_is_no_member_and_is_named(
    one: Fleet, http: httpx2.Client, tmp_path: Path
) -> None:
    """In the log once, and by the commands; each bridge serves its own clients."""
    old = one.replicas[0]
    new = one.add(neighbour(tmp_path, ("fleet/records.py", "\nFORMAT = 1\n", "\nFORMAT = 2\n"))).start()
    words = "a bridge of another version keeps records in another form"
    until(lambda: words in old.log.read_text("utf-8"), "the earlier version warns")
    until(lambda: words in new.log.read_text("utf-8"), "so does the later one")
    for command in (("fleet", "members"), ("fleet", "status")):
        shown = old.command(*command)
        assert shown.returncode == 0, shown.stderr
        assert new.name not in shown.stdout
        assert f"no member: {new.name} (" in shown.stderr, shown.stderr
        assert "version 9999.0) keeps records in form 2" in shown.stderr
        (known,) = json.loads(old.command(*command, "--json").stdout)["incompatible"]
        assert (known["name"], known["version"], known["format"]) == (new.name, "9999.0", 2)
    assert old.log.read_text("utf-8").count(words) == 1, "though it was seen again and again"
    for replica in (old, new):
        client = Client(http).begin(replica)
        until(lambda client=client, replica=replica: echoes(client, replica), "its clients are served")
    new.stop()
    until(lambda: "no member" not in old.command("fleet", "members").stderr, "it is gone")


def test_a_request_in_a_form_that_a_neighbour_does_not_know_is_not_sent(
    one: Fleet, http: httpx2.Client, tmp_path: Path
) -> None:
    """Each says so at once to the other: nobody waits for an answer, and nothing is done."""
    old = one.replicas[0]
    new = one.add(neighbour(tmp_path, ("fleet/link/frames.py", "    ASK = 1\n", "    ASK = 21\n"))).start()
    client, other = Client(http).begin(old), Client(http).begin(new)
    for mine, at, by in ((client, old, new), (other, new, old)):
        until(lambda mine=mine, at=at: echoes(mine, at), "the server is ready")
        answer = mine.post(by, message("tools/call", 7, name="rich__echo", arguments={"text": "hello"}))
        assert (answer.status_code, "not sent" in answer.text) == (503, True), answer.text
        assert "retry-after" in answer.headers
        assert "version" in answer.text
