"""The program as a client: one for each session, for as long as the session lives."""

import gc
import weakref

import pytest

from mcpbridge.core.context import Session
from mcpbridge.downstream.elicitation.program import Program, ProgramAnswers
from mcpbridge.downstream.sessions import Sessions


def program() -> Program:
    return Program(ProgramAnswers(elicitation=lambda _: None), "")


def test_requests_of_one_user_are_of_one_client() -> None:
    """Servers keep a session for each client that they may ask."""
    of = program()
    assert of.client("ann") is of.client("ann")
    assert of.client("ann") is not of.client("bob")
    run = of.session("ann", "run 1")
    assert of.client("ann", run) is of.client("ann", run)
    assert of.client("ann", run) is not of.client("ann")
    assert of.client("ann", run).session is run


def test_a_client_is_forgotten_with_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    places = 50
    of = program()
    monkeypatch.setattr(of, "_sessions", Sessions(places=places))
    known = [weakref.ref(of.client(f"user {number}").session) for number in range(5 * places)]
    gc.collect()
    assert sum(session() is not None for session in known) == places


def test_a_session_that_only_a_request_holds_takes_its_client_along() -> None:
    of, session = program(), Session("ann")
    seen = weakref.ref(session)
    of.client("ann", session)
    del session
    gc.collect()
    assert seen() is None
