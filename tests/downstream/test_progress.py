"""What a client hears during its call: its own token, rising values, no flood, and the levels it asked for."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from mcpbridge.base.masking.mask import MASK
from mcpbridge.downstream.progress import BURST, PER_SECOND, CallUpdates, log_notification
from mcpbridge.protocol.log_levels import LEVELS
from support.secret_texts import ISSUED

TOKEN = Raw(b'"mine"')
VALUES = st.one_of(
    st.integers(),
    st.floats(),
    st.none(),
    st.text(max_size=3),
    st.just(Raw(b"1e999")),
    st.just(Raw(b"123456789012345678901234567890")),
)


class Ear:
    """A client, and the clock."""

    def __init__(self, token: Raw | None = TOKEN, log_level: str = "") -> None:
        self.heard: list[dict[str, Any]] = []
        self.now = 0.0
        self.update = CallUpdates(
            lambda message: self.heard.append(json.loads(message)), "up", token, log_level, lambda: self.now
        )

    def progress(self, **params: Any) -> None:
        self.update("notifications/progress", raw(params))

    @property
    def values(self) -> list[float]:
        return [message["params"]["progress"] for message in self.heard]


def raw(params: Any) -> Raw:
    parts = (b"%b:%b" % (json.dumps(k).encode(), bytes(v) if isinstance(v, Raw) else json.dumps(v).encode())
             for k, v in params.items())  # fmt: skip
    return Raw(b"{%b}" % b",".join(parts))


@given(st.lists(st.tuples(VALUES, st.floats(0, 5)), max_size=80))
def test_progress_rises_strictly_whatever_comes(steps: list[tuple[Any, float]]) -> None:
    """Spec, progress: the value must increase with each notification."""
    ear = Ear()
    for value, pause in steps:
        ear.now += pause
        ear.progress(progressToken=7, progress=value)
    assert all(before < after for before, after in zip(ear.values, ear.values[1:], strict=False))
    assert {message["params"]["progressToken"] for message in ear.heard} <= {"mine"}
    assert {message["method"] for message in ear.heard} <= {"notifications/progress"}


@given(st.lists(st.floats(0, 0.3), min_size=1, max_size=200))
def test_progress_is_held_to_a_rate(pauses: list[float]) -> None:
    ear = Ear()
    for number, pause in enumerate(pauses):
        ear.now += pause
        ear.progress(progress=number)
        assert len(ear.heard) <= BURST + ear.now * PER_SECOND + 1e-6


def test_progress_keeps_its_other_members_as_they_came() -> None:
    ear = Ear()
    ear.progress(
        progressToken=7, progress=Raw(b"1.50"), total=Raw(b"123456789012345678901234567890"), message="ü", x=None
    )
    [message] = ear.heard
    assert message["params"] == {
        "progressToken": "mine", "progress": 1.5, "total": 123456789012345678901234567890, "message": "ü", "x": None,
    }  # fmt: skip


@pytest.mark.parametrize("params", [b"[]", b"5", b"{}", b'{"progress":"1"}', b'{"progress":true}', b""])
def test_progress_that_cannot_be_read_is_left_out(params: bytes) -> None:
    ear = Ear()
    ear.update("notifications/progress", Raw(params))
    assert ear.heard == []


def test_a_client_hears_only_what_it_asked_for() -> None:
    no_token, no_level = Ear(token=None, log_level="info"), Ear()
    for ear in (no_token, no_level):
        ear.progress(progress=1)
        ear.update("notifications/message", Raw(b'{"level":"error","data":1}'))
        ear.update("notifications/of/another/kind", Raw(b"{}"))
    assert [message["method"] for message in no_token.heard] == ["notifications/message"]
    assert [message["method"] for message in no_level.heard] == ["notifications/progress"]


@pytest.mark.parametrize("least", LEVELS)
def test_messages_below_the_level_are_left_out(least: str) -> None:
    heard = [level for level in LEVELS if log_notification("up", raw({"level": level, "data": 1}), least)]
    assert heard == list(LEVELS[LEVELS.index(least) :])


def test_a_log_message_names_its_server_and_keeps_the_rest() -> None:
    message = log_notification("up", Raw(b'{"level":"info","logger":"db","data":{"n":1.10}}'), "debug")
    assert message is not None
    assert b'"logger":"up/db"' in message
    assert b'{"n":1.10}' in message
    bare = log_notification("up", Raw(b'{"level":"info","data":null}'), "debug")
    assert bare is not None
    assert json.loads(bare)["params"] == {"level": "info", "data": None, "logger": "up"}


def test_a_level_nobody_knows_counts_as_the_least_severe() -> None:
    assert log_notification("up", Raw(b'{"level":"chatty","data":1}'), "debug")
    assert log_notification("up", Raw(b'{"level":"chatty","data":1}'), "info") is None


@pytest.mark.parametrize("params", [b"[]", b"{}", b'{"level":5}', b'{"level":"info","logger":5}', b""])
def test_a_log_message_that_cannot_be_read_is_left_out(params: bytes) -> None:
    assert log_notification("up", Raw(params), "debug") is None


def test_secrets_leave_the_words_of_progress_and_the_names_of_loggers() -> None:
    key = ISSUED["github"]
    ear = Ear()
    ear.progress(progress=1, message=f"signing in with {key}")
    assert ear.heard[0]["params"]["message"] == f"signing in with {MASK}"
    told = log_notification("up", raw({"level": "error", "logger": key, "data": "x"}), "debug")
    assert told is not None
    assert json.loads(told)["params"]["logger"] == f"up/{MASK}"
