"""Ids of tasks in what servers say of them: replaced where they stand, and nothing else with them."""

import json
from typing import Any

import pytest

from mcpbridge.base.errors import UpstreamAnswered
from mcpbridge.base.masking.text import without_secrets
from mcpbridge.core.failure_masking import masked_error
from mcpbridge.downstream.errors import to_answer
from mcpbridge.downstream.tasks.tasks import with_public_id

SHOWN = "sealed-1"


def renamed(error: bytes, id_: str) -> Any:
    return json.loads(with_public_id(UpstreamAnswered("up", error), id_, SHOWN).error)


@pytest.mark.parametrize("id_", ["1", "c", "code", ":", ",", "}", "-", "0", " ", '"', "\\"])
def test_an_error_stays_whole_whatever_the_server_calls_its_task(id_: str) -> None:
    data = {"code": id_, "c": "x", "list": [1, id_, "x"], "text": f"about {id_}"}
    error = json.dumps({"code": -32001, "message": "no", "data": data}, separators=(",", ":")).encode()
    found = renamed(error, id_)
    assert found["code"] == -32001
    assert found["data"] == {**data, "code": SHOWN, "list": [1, SHOWN, "x"]}


def test_a_message_names_the_task_as_the_client_does_where_the_id_is_a_word() -> None:
    error = b'{"code":-32602,"message":"Unknown task: t1, not t10 or a-t1"}'
    assert renamed(error, "t1")["message"] == f"Unknown task: {SHOWN}, not t10 or a-t1"


@pytest.mark.parametrize("error", [b'{"code":-32001,"message":["t1"]}', b'{"code":-32001,"message":null}'])
def test_an_error_that_is_none_is_left_as_it_is(error: bytes) -> None:
    assert with_public_id(UpstreamAnswered("up", error), "t1", SHOWN).error == error


def test_an_id_of_ours_that_looks_like_a_secret_is_told_all_the_same() -> None:
    """A sealed id is random: one in seventy is taken for a key where a server says it. Ours is no word of a server."""
    id_ = "alml_mPc0m5TUfHy1oFCX4jr3SYY6Sh25cB1gfpqe4s-x13N521SwZGelC1POorlHiWzHpk5ix6Kkm5sUB5HkeH4Q6Uaw_wg2d4mPI"
    said = f"Task {id_} has expired"
    assert id_ not in without_secrets(said)
    error = {"code": -32602, "message": "Task t1 has expired; token=hunter2hunter2", "data": {"task": "t1"}}
    masked = masked_error(UpstreamAnswered("up", json.dumps(error).encode()), without_secrets)
    answer = to_answer(with_public_id(masked, "t1", id_), b"1", "tasks/get", modern=True, redact=without_secrets)
    told = json.loads(bytes(answer.data))["error"]["message"]
    assert told.startswith(said)
    assert "hunter2" not in told
