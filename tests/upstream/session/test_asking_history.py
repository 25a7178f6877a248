"""What a server was seen to ask, and who may share a session with whom because of it (issue 7)."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge.core.elicitation import ELICIT, LIST_ROOTS, NO_CAPABILITIES, SAMPLE, ClientCapabilities
from mcpbridge.upstream.manifest import Manifest
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.session.asking_history import ENOUGH, AskingHistory, suits
from mcpbridge.upstream.settings import ServerSettings
from support.upstreams.scripted_upstream import LEGACY_SERVER, ScriptedTransport, Someone, Watcher, call_of

FORM = ClientCapabilities.declared({"elicitation": {}}, "2025-11-25")
BOTH = ClientCapabilities.declared({"elicitation": {}, "roots": {}}, "2025-11-25")
ROOTS = ClientCapabilities.declared({"roots": {}}, "2025-11-25")
TOOLS = ClientCapabilities.declared({"sampling": {"tools": {}}}, "2025-11-25")


def learned(profile: ClientCapabilities, calls: int = ENOUGH) -> AskingHistory:
    history = AskingHistory(learns=True)
    for _ in range(calls):
        assert history.learns_of(profile)
        history.passed(profile)
    return history


def test_a_server_is_quiet_in_what_it_could_have_asked_often_enough() -> None:
    assert learned(BOTH, ENOUGH - 1).quiet is NO_CAPABILITIES
    history = learned(BOTH)
    assert history.quiet is BOTH
    assert not history.learns_of(BOTH)
    assert history.learns_of(TOOLS), "of that nothing is known yet"
    assert learned(TOOLS).quiet.sampling_context, "what a model may be given is no other question"


def test_one_question_counts_for_ever_and_for_its_kind_only() -> None:
    history = learned(BOTH)
    history.asked(LIST_ROOTS)
    assert history.quiet is FORM
    assert not history.has_asked, "for roots servers ask when they begin, whatever comes"
    assert AskingHistory(history.counts, learns=True).quiet is FORM, "as it is kept"
    assert not history.learns_of(BOTH)
    history.asked(ELICIT)
    assert history.quiet is NO_CAPABILITIES
    assert history.has_asked
    first = AskingHistory(learns=True)
    first.asked(SAMPLE)
    assert not first.learns_of(TOOLS)


def test_where_nothing_is_kept_nothing_is_learned() -> None:
    history = AskingHistory({"form": ENOUGH})
    assert history.quiet is NO_CAPABILITIES
    assert not history.learns_of(FORM)
    history.asked(ELICIT)
    assert history.has_asked


@pytest.mark.parametrize(
    ("declared", "client", "quiet", "may"),
    [
        (FORM, FORM, NO_CAPABILITIES, True),
        (FORM, NO_CAPABILITIES, NO_CAPABILITIES, False),
        (FORM, NO_CAPABILITIES, FORM, True),
        (NO_CAPABILITIES, FORM, FORM, False),  # it was not told that it may ask
        (BOTH, ROOTS, FORM, True),
        (BOTH, FORM, FORM, False),  # of its roots it would be asked
        (BOTH, NO_CAPABILITIES, BOTH, True),
    ],
)
def test_who_shares_a_session(
    declared: ClientCapabilities, client: ClientCapabilities, quiet: ClientCapabilities, may: bool
) -> None:
    assert suits(declared, client, quiet) is may


async def test_what_was_learned_is_kept_and_serves_all_kinds_from_the_next_start(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    settings = ServerSettings(command="x")

    def pool() -> Pool:
        def made(_: str, __: ServerSettings) -> ScriptedTransport:
            return transport

        return Pool({"up": settings}, made, Watcher(), client_info={"name": "b"}, manifest=Manifest(tmp_path))

    async def used(running: Pool, *people: Someone) -> set[Any]:
        found = set[Any]()
        for client in people:
            upstream = await running.serving(running.upstreams["up"], client)
            await upstream.request(call_of(client=client))
            found.add(upstream)
        return found

    with anyio.fail_after(20):
        async with (first := pool()).running():
            await first.settled(30)
            first.expect(BOTH)
            assert await used(first, *[Someone(form=True, roots=True)] * ENOUGH) == {first.upstreams["up"]}
            assert len(await used(first, Someone())) == 1
            assert first.instances("up") == 2, "one that is in use is not shared in another way"
        async with (second := pool()).running():
            kinds = [Someone(), Someone(form=True), Someone(roots=True), Someone(form=True, roots=True)]
            assert await used(second, *kinds, *kinds) == {second.upstreams["up"]}
            assert second.instances("up") == 1
            await used(second, Someone(sampling=True))
            assert second.instances("up") == 2, "it could not ask a model so far"
            second.upstreams["up"].declared.history.asked(ELICIT)
            assert len(await used(second, *kinds)) > 1
        async with (third := pool()).running():
            assert third.upstreams["up"].declared.history.quiet is ROOTS
