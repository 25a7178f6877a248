"""What is said again, over all conversations (issue 7): every request is answered once, no call runs twice."""

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from mcpbridge.app.stdio_proxy.replay import Memory, Request, Requests


def request(id_: int | str, method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}).encode() + b"\n"


def answer(id_: int | str, *, error: bool = False) -> bytes:
    body = {"error": {"code": 1, "message": ""}} if error else {"result": {}}
    return json.dumps({"jsonrpc": "2.0", "id": id_, **body}, separators=(",", ":")).encode() + b"\n"


class Conversation(RuleBasedStateMachine):
    """A client that has shaken hands asks, and daemons answer, end in order, or crash."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = Memory()
        self.memory.from_client(request("hand", "initialize"), 0)
        assert self.memory.from_daemon(answer("hand"))
        self.place = 100
        self.asked: dict[int, str] = {}
        self.answers = dict[int, int]()
        self.reached: dict[int, int] = {}
        """How often a call may have been begun, by id."""
        self.at_daemon: list[int] = []
        self.last = 0

    def hear(self, line: bytes) -> None:
        """The client reads a line."""
        message = json.loads(line)
        for one in message if isinstance(message, list) else [message]:
            if "method" not in one:
                self.answers[one["id"]] = self.answers.get(one["id"], 0) + 1

    @rule(method=st.sampled_from(["tools/call", "tools/list", "vendor/do"]), reaches=st.booleans())
    def ask(self, method: str, reaches: bool) -> None:
        self.last += 1
        line = request(self.last, method, name="x")
        assert self.memory.from_client(line, self.place)
        self.asked[self.last] = method
        self.place += len(line)
        self.at_daemon.append(self.last)
        if not reaches:
            self.at_daemon.pop()
            self.crash(sent=self.place - len(line))

    @rule(data=st.data(), error=st.booleans())
    @precondition(lambda self: self.at_daemon)
    def answered(self, data: st.DataObject, error: bool) -> None:
        id_ = data.draw(st.sampled_from(self.at_daemon))
        self.at_daemon.remove(id_)
        line = answer(id_, error=error)
        assert self.memory.from_daemon(line)
        self.hear(line)

    @rule(data=st.data())
    @precondition(lambda self: self.at_daemon)
    def cancelled(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(self.at_daemon))
        self.at_daemon.remove(id_)
        said = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id_}}
        assert self.memory.from_client(json.dumps(said).encode() + b"\n", self.place)
        self.answers[id_] = 1

    @rule()
    def leave(self) -> None:
        self.next_daemon(self.memory.lose(None), begun=False)

    @rule()
    def crash(self, sent: int | None = None) -> None:
        self.next_daemon(self.memory.lose(self.place if sent is None else sent), begun=True)

    def next_daemon(self, told: list[bytes], *, begun: bool) -> None:
        for id_ in self.at_daemon if begun else ():
            self.reached[id_] = self.reached.get(id_, 0) + 1
        for line in told:
            self.hear(line)
        self.at_daemon = []
        opening = json.loads(self.memory.introduction())
        assert opening["method"] == "initialize"
        assert self.memory.is_introducing
        assert not self.memory.from_daemon(answer(opening["id"]))
        assert not self.memory.is_introducing
        self.place = 100
        for line in self.memory.resume(self.place):
            self.place += len(line)
            self.at_daemon.append(json.loads(line)["id"])

    def teardown(self) -> None:
        for id_ in list(self.at_daemon):
            self.at_daemon.remove(id_)
            self.hear(answer(id_))
            self.memory.from_daemon(answer(id_))
        assert not self.memory.wants_answers
        assert self.answers == dict.fromkeys(self.asked, 1)
        repeated = {id_ for id_, times in self.reached.items() if times > 1}
        assert {self.asked[id_] for id_ in repeated} <= {"tools/list"}
        assert all(times <= 2 for times in self.reached.values())


TestConversation = Conversation.TestCase
TestConversation.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_what_is_too_large_to_be_kept_is_answered_in_place_of_being_asked_again() -> None:
    requests = Requests(most_kept=100)
    for id_, size in ((1, 60), (2, 60), (3, 30)):
        requests.add(Request(id_, "tools/call", {}, b"x" * size, 0, 0))
    told = [json.loads(line) for line in requests.lose(None)]
    assert [one["id"] for one in told] == [2]
    assert "Call again" in told[0]["result"]["content"][0]["text"]
    assert [line for _, line in requests.again(0)] == [b"x" * 60 + b"\n", b"x" * 30 + b"\n"]
    requests.take(1)
    requests.add(Request(4, "tools/call", {}, b"x" * 60, 0, 0))
    assert requests.lose(None) == [], "room again"


def test_a_handshake_without_an_answer_is_the_clients_own() -> None:
    """It is piped in whole before anything is answered."""
    memory = Memory()
    ready = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
    said = [request(1, "initialize"), ready, request(2, "tools/list")]
    for line in said:
        memory.from_client(line, 0)
    assert memory.lose(None) == []
    assert memory.introduction() == b""
    assert memory.resume(0) == said
    assert memory.from_daemon(answer(1)), "the client has waited for it"


def test_a_handshake_that_is_refused_now_is_noticed() -> None:
    memory = Memory()
    memory.from_client(request(1, "initialize"), 0)
    memory.from_daemon(answer(1))
    memory.lose(0)
    opening = json.loads(memory.introduction())
    assert not memory.from_daemon(answer(opening["id"], error=True))
    assert memory.is_refused


def test_a_subscription_that_was_refused_is_not_repeated() -> None:
    memory = Memory()
    memory.from_client(request(1, "resources/subscribe", uri="x://1"), 0)
    memory.from_daemon(answer(1, error=True))
    memory.from_client(request(2, "resources/subscribe", uri="x://2"), 0)
    memory.lose(None)
    assert memory.resume(0) == [request(2, "resources/subscribe", uri="x://2")], "once"


def test_after_a_change_of_lists_the_next_daemon_may_have_others() -> None:
    memory = Memory()
    memory.from_client(request(1, "initialize"), 0)
    introduced = {"capabilities": {"tools": {"listChanged": True}}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "result": introduced}, separators=(",", ":")).encode()
    memory.from_daemon(line)
    assert memory.greeted("a") == [], "the first"
    assert memory.greeted("b") == [], "not ready"
    memory.from_client(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n', 0)
    assert memory.greeted("b") == []
    memory.from_daemon(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n')
    assert len(memory.greeted("b")) == 1
