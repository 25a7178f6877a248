"""One process of a server for a whole fleet (`share = "fleet"`, issue 24): never do two of them answer."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.fleet_clients import modern
from support.real_sign_in import home_at
from support.redis_server import Server
from support.replicas import OTHER_TOKEN, TOKEN, Fleet, Replica, fleet, needs_fleet, until

pytestmark = needs_fleet

HEADERS = {
    "authorization": f"Bearer {TOKEN}",
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
}
PROGRAM = Path(__file__).parents[1] / "servers" / "remembering.py"


class Team:
    """Three bridges that share a server with a memory, with its calls in a file."""

    def __init__(self, bridges: Fleet, file: Path) -> None:
        self.fleet, self.bridges, self.redis = bridges, bridges.replicas, bridges.redis
        self._file = file
        self.users = [User(one) for one in bridges.replicas]

    @property
    def lines(self) -> list[list[str]]:
        """What the processes wrote: process id, and what happened."""
        return [line.split(" ", 1) for line in self._file.read_text("utf-8").splitlines()]

    def starts(self) -> list[str]:
        """The process ids of all that were started."""
        return [pid for pid, what in self.lines if what == "started"]

    def owner(self) -> Replica:
        """The bridge that has the process which runs."""
        [pid] = [pid for pid in self.starts() if is_running(int(pid))]
        parents = {replica.process.pid: replica for replica in self.bridges if replica.process is not None}
        found = int(pid)
        while found not in parents:
            found = int(Path(f"/proc/{found}/stat").read_text("utf-8").rpartition(")")[2].split()[1])
        return parents[found]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class User:
    """A client of one bridge."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.http = httpx2.Client(trust_env=False, timeout=60)
        self.session = ""
        self.notes: list[list[str]] = []
        """Of each result that says that memory was lost: of which servers."""

    def ask(self, method: str, id_: int | None = 1, **params: Any) -> httpx2.Response:
        body: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        if id_ is not None:
            body["id"] = id_
        session = {"mcp-session-id": self.session} if self.session else {}
        return self.http.post(self.replica.url, json=body, headers={**HEADERS, **session})

    def begin(self) -> "User":
        client = {"name": "raw", "version": "1"}
        answer = self.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
        assert answer.status_code == 200, answer.text
        self.session = answer.headers["mcp-session-id"]
        assert self.ask("notifications/initialized", None).status_code == 202
        return self

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        answer = self.ask("tools/call", 7, name=f"memory__{tool}", arguments=arguments)
        if answer.status_code != 200:
            return {"status": answer.status_code}
        found = messages(answer)[-1]
        if servers := lost_in(found):
            self.notes.append(servers)
        return found

    def text(self, tool: str, **arguments: Any) -> str:
        """The text of a result that is no error; else nothing."""
        found = self.call(tool, **arguments).get("result", {"isError": True})
        return "" if found.get("isError") else found["content"][0]["text"]


def lost_in(answer: dict[str, Any]) -> list[str]:
    """The servers whose memory was lost, as a result says to programs and to models."""
    result = answer.get("result", {})
    servers: list[str] = result.get("_meta", {}).get("mcpbridge/lostMemory", [])
    texts = [one["text"] for one in result.get("content", []) if "was started anew since you used it" in one["text"]]
    assert len(texts) == len(servers)
    assert all(f"'{server}'" in one for server, one in zip(servers, texts, strict=True))
    return servers


def messages(answer: httpx2.Response) -> list[dict[str, Any]]:
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        lines = [line[5:] for line in answer.text.splitlines() if line.startswith("data:") and line[5:].strip()]
        return [json.loads(line) for line in lines]
    return [answer.json()]


@pytest.fixture
def team(tmp_path: Path, request: pytest.FixtureRequest) -> Generator[Team]:
    """With a legacy server, or one of the era that a test names."""
    with team_at(tmp_path, getattr(request, "param", "legacy")) as found:
        yield found


@contextmanager
def team_at(directory: Path, era: str) -> Generator[Team]:
    directory.mkdir(exist_ok=True)
    redis, file = Server(directory / "redis", "--appendonly", "yes").start(), directory / "calls.txt"
    file.touch()
    arguments = json.dumps(["-ES", str(PROGRAM), str(file), era])
    servers = f'[servers.memory]\ncommand = "{sys.executable}"\nargs = {arguments}\nshare = "fleet"\ntrusted = true\n'
    found: Team | None = None
    try:
        with fleet(directory, redis, servers=servers) as bridges:
            found = Team(bridges, file)
            for user in found.users:
                user.begin()
                until(lambda user=user: bool(user.text("recall")), "the server is up")
            yield found
    finally:
        for user in found.users if found is not None else []:
            user.http.close()
        redis.kill()


def test_all_bridges_use_one_process_and_its_memory(team: Team) -> None:
    first, second, third = team.users
    pid = first.text("remember", value="blue")
    assert [user.text("recall") for user in team.users] == [f"{pid} blue"] * 3
    assert team.starts() == [pid]
    assert [what for _, what in team.lines].count("initialize") == 1, "the handshake is made once"
    # Calls of several bridges at once find their own answers.
    answers: dict[str, str] = {}

    def many(user: User, name: str) -> None:
        with httpx2.Client(trust_env=False, timeout=60) as http:
            own = User(user.replica)
            own.http.close()
            own.http, own.session = http, user.session
            for number in range(20):
                answers[f"{name}{number}"] = own.text("echo", text=f"{name}{number}")

    threads = [threading.Thread(target=many, args=(user, name)) for user in team.users for name in (f"{id(user)}-",)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(answers) == 60
    assert all(key == value for key, value in answers.items())
    for user in (second, third):
        reported = user.ask("tools/call", 9, name="memory__report", arguments={}, _meta={"progressToken": "mine"})
        assert [one["params"]["progressToken"] for one in messages(reported) if "method" in one] == ["mine"]


def test_the_process_moves_when_its_bridge_dies_and_when_it_stops(team: Team) -> None:
    """Each time there is one, its memory is new, and each client that has used it hears so once."""
    assert team.users[0].text("remember", value="blue")
    for end in (Replica.kill, Replica.stop):
        owner = team.owner()
        rest = [user for user in team.users if user.replica is not owner and user.replica.process is not None]
        before = team.starts()
        end(owner)
        for user in rest:
            until(lambda user=user: bool(user.text("recall")), "it runs elsewhere")
        assert len(team.starts()) == len(before) + 1
        assert {user.text("recall") for user in rest} == {f"{team.starts()[-1]} "}, "its memory is new"
        assert team.owner() is not owner
        assert all([len(one) for one in user.notes] == [1] for user in rest), "its clients know"
        for user in rest:
            user.notes.clear()
        if end is Replica.kill:
            owner.start()
            index = team.bridges.index(owner)
            team.users[index].session = ""
            team.users[index].begin()
            until(lambda index=index: bool(team.users[index].text("recall")), "the new one uses it as well")
            assert len(team.starts()) == len(before) + 1


def test_who_has_used_the_process_hears_once_that_its_memory_is_lost_wherever_it_calls_next(tmp_path: Path) -> None:
    """Also a client whose bridge died with the process, and modern ones, which have no session. Newcomers do not.

    Where a bridge of a busy machine loses its lease meanwhile, everybody has to hear so again: that team says nothing.
    """
    for number in range(6):
        with team_at(tmp_path / str(number), "legacy") as team:
            if _hears_once(team):
                return
    pytest.fail("a bridge lost its lease each time")


def _hears_once(team: Team) -> bool:
    """False: a bridge lost its lease."""

    def recall(replica: Replica, token: str = TOKEN) -> dict[str, Any]:
        answer = modern(replica, "tools/call", {"name": "memory__recall", "arguments": {}}, {}, token=token)
        return messages(answer)[-1] if answer.status_code == 200 else {}

    owner = team.owner()
    others = [one for one in team.bridges if one is not owner]
    first = [user.notes for user in team.users], lost_in(recall(owner))
    if len(team.starts()) > 1:
        return False
    assert first == ([[]] * 3, [])
    mover = next(user for user in team.users if user.replica is owner)
    assert mover.text("recall")
    owner.kill()
    mover.replica = others[0]
    for user in team.users:
        until(lambda user=user: bool(user.text("recall")), "it runs elsewhere")
    started = team.starts()
    heard = [list(user.notes) for user in team.users], lost_in(recall(others[1]))
    newcomer = User(others[0]).begin()
    with closing(newcomer.http):
        more = [lost_in(recall(replica, token)) for replica in others * 2 for token in (TOKEN, OTHER_TOKEN)]
        for user in (newcomer, newcomer, *team.users, *team.users):
            assert user.text("recall")
        mover.replica = others[1]
        assert mover.text("recall")
    if team.starts() != started or len(started) > 2:
        return False
    assert heard == ([[["memory"]]] * 3, ["memory"])
    assert more == [[]] * 8
    assert [user.notes for user in (*team.users, newcomer)] == [*[[["memory"]]] * 3, []]
    # It begins anew where it is, too: its memory is gone all the same.
    os.kill(int(team.starts()[-1]), signal.SIGKILL)
    until(lambda: bool(mover.text("recall")), "it is started again")
    assert mover.notes == [["memory"]] * 2
    return True


def test_two_processes_never_answer_though_the_owner_stands_still_past_its_lease(team: Team) -> None:
    """The owner is stopped (SIGSTOP) with a call on its way; its process would answer when it continues."""
    owner = team.owner()
    rest = [user for user in team.users if user.replica is not owner]
    old = team.starts()[-1]
    assert rest[0].text("remember", value="blue") == old
    late: list[dict[str, Any]] = []
    own = next(user for user in team.users if user.replica is owner)
    owner.signal(signal.SIGSTOP)
    try:
        thread = threading.Thread(target=lambda: late.append(own.call("remember", value="late")), daemon=True)
        thread.start()
        until(lambda: bool(rest[0].text("recall")), "another bridge runs it")
        new = team.starts()[-1]
        assert new != old
        assert rest[0].text("remember", value="green") == new
        count = len(team.lines)
    finally:
        owner.signal(signal.SIGCONT)
    thread.join(60)
    assert late
    assert "late" not in [what for pid, what in team.lines if pid == old]
    until(lambda: not is_running(int(old)), "the former owner ends its process")
    assert [pid for pid, _ in team.lines[count:] if pid == old] == [], "it got nothing more"
    until(lambda: own.text("recall").startswith(new), "the former owner uses the new one")
    assert {user.text("recall") for user in team.users} <= {f"{new} green", f"{new} late"}
    assert team.starts() == [old, new]


def test_calls_behind_one_that_a_bridge_does_not_answer_are_not_sent(team: Team) -> None:
    """Its lease lives still, and it has taken one of them for all that is known: of that one the outcome is."""
    owner = team.owner()
    user = next(user for user in team.users if user.replica is not owner)
    answers: list[tuple[str, str]] = []

    def remember(number: int) -> None:
        arguments, headers = {"value": f"blue{number}"}, {**HEADERS, "mcp-session-id": user.session}
        params = {"name": "memory__remember", "arguments": arguments}
        call = {"jsonrpc": "2.0", "id": 100 + number, "method": "tools/call", "params": params}
        answer = httpx2.post(user.replica.url, json=call, headers=headers, trust_env=False, timeout=120)
        answers.append((arguments["value"], answer.text))

    owner.signal(signal.SIGSTOP)
    try:
        threads = [threading.Thread(target=remember, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: len(answers) >= 3, "they fail")
        assert ["that runs it does not answer" in answer for _, answer in answers[:3]] == [True] * 3, answers
    finally:
        owner.signal(signal.SIGCONT)
    for thread in threads:
        thread.join(120)
    assert len(answers) == 4
    until(lambda: bool(user.text("recall")), "it is used again")
    made = [what for _, what in team.lines if what.startswith("remember")]
    assert not {f"remember {value}" for value, _ in answers[:3]}.intersection(made)
    assert len(made) <= 1


def test_without_the_shared_records_the_process_ends_and_comes_back(team: Team) -> None:
    """Nobody could know whether another bridge has it: calls fail, and nothing has to be done once it is back."""
    old = team.starts()[-1]
    team.redis.kill()
    until(lambda: not is_running(int(old)), "it ends when its lease does")
    failed = team.users[0].call("recall")
    assert failed.get("result", {}).get("isError"), failed
    team.redis.start()
    for user in team.users:
        until(lambda user=user: bool(user.text("recall")), "it runs again")
    assert len(team.starts()) == 2


def test_epochs_survive_a_server_that_lost_its_data_and_there_is_still_one_process(team: Team) -> None:
    old = team.starts()[-1]
    key = next(key for key in team.redis.cli("--scan", "--pattern", "*:u:memory").splitlines() if key)
    epoch = int(team.redis.cli("HGET", key, "epoch"))
    team.redis.cli("FLUSHALL")
    until(lambda: team.redis.cli("HGET", key, "epoch") == str(epoch), "its owner writes it down again")
    for user in team.users:  # their sessions went with the data
        user.session = ""
        user.begin()
    assert {user.text("recall") for user in team.users} == {f"{old} "}
    os.kill(int(old), signal.SIGKILL)
    for user in team.users:
        until(lambda user=user: user.text("recall") not in ("", f"{old} "), "it is started again")
    assert len(team.starts()) == 2
    assert int(team.redis.cli("HGET", key, "epoch")) > epoch


@pytest.mark.parametrize("team", ["legacy", "modern"], indirect=True)
def test_a_bridge_that_drains_leaves_its_process_to_another(team: Team, request: pytest.FixtureRequest) -> None:
    """It uses the new one itself, though it runs on. The streams that bridges keep open do not hold the process."""
    old, owner = team.starts()[-1], team.owner()
    if "[modern]" in request.node.name:
        until(lambda: [what for _, what in team.lines].count("listen") == 3, "all bridges listen")
    command = [sys.executable, "-m", "mcpbridge", "fleet", "drain", owner.name]
    done = subprocess.run(
        command, check=False, env=home_at(owner.directory), capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    rest = [user for user in team.users if user.replica is not owner]
    for user in rest:
        until(lambda user=user: user.text("recall") not in ("", f"{old} "), "another bridge runs it")
    assert len(team.starts()) == 2
    assert not is_running(int(old))
    assert team.owner() is not owner
