"""A kept result is answered on the express lane as in the full lane: same answers, messages, counts and records."""

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpbridge.pipeline.result_cache import CachedResult
from mcpbridge.protocol.body import Body
from mcpbridge.storage.call_log.reader import Filter, read_call, read_calls
from support.in_process_bridge import bridged
from support.lane_records import MODERN_CLIENTS, VERSIONS, recorded, talk_of
from support.lane_steps import RESULTS, STAGES, TEXT, Message, Talk, merged, outcome, server, together

KEPT: Message = {"trusted": True, "tool": {"echo": {"read_only": True, "cache": "10 min"}}}
"""What its server has where results of `echo` are kept; calls of `other` change something."""
COUNTED = {"rate limit", "rate limit of a tool", "calls of a conversation"}
WHATS = sorted({*RESULTS} - {"later"})
STEPS = [*WHATS, "several", "one by one", "look", "log", "strange"]


@pytest.fixture(autouse=True, scope="module")
def ages() -> Iterator[None]:
    """All results are as old as they were when they came: how many digits an age has is the machine's to say."""
    marked = CachedResult.marked

    def at_once(kept: CachedResult, now: float, *, is_shared: bool = False) -> Body:
        return marked(kept, kept.since, is_shared=is_shared)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CachedResult, "marked", at_once)
        yield


@given(
    steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=6),
    stages=st.lists(st.sampled_from(sorted({*STAGES} - {"calls in a row"})), max_size=3, unique=True),
    versions=VERSIONS | st.sampled_from(MODERN_CLIENTS),
)
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
def test_both_lanes_answer_the_same_from_the_cache(
    steps: list[str], stages: list[str], versions: tuple[str, str]
) -> None:
    """Limits count a kept result as any other, and refusals are the same. Each step is done twice: the second hits."""
    sections, more = together(*stages)
    if COUNTED & {
        *stages
    }:  # which of several calls at once are counted first is left to the loop: a kept result is at once
        steps = [step for step in steps if step in RESULTS]
    twice = [step for one in steps for step in (one, one)]
    outcomes = partial(outcome, twice, versions, client=talk_of(versions), settings=merged(KEPT, more))
    express, full = (asyncio.run(outcomes(is_express=is_express, **sections)) for is_express in (True, False))
    assert express["answers"] == full["answers"]
    assert express == full


@pytest.mark.parametrize("stage", STAGES)
async def test_each_stage_does_its_part_for_a_kept_result(stage: str) -> None:
    """More calls than the limits let pass: a kept result counts for them as any other."""
    sections, more = together(stage)
    found = [
        await outcome(
            [*["plain"] * 10, "more", "one by one"],
            ("2025-06-18", "2025-11-25"),
            is_express=is_express,
            settings=merged(KEPT, more),
            **sections,
        )
        for is_express in (True, False)
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("enabled", [None, True])
@pytest.mark.parametrize("what", WHATS)
async def test_a_kept_result_is_recorded_the_same(what: str, enabled: bool | None, tmp_path: Path) -> None:
    """The stages too: none of them is the server."""
    found: list[Message] = []
    for name in ("express", "full"):
        (tmp_path / name).mkdir()
        of_lane = await recorded(
            [what, what, "plain"],
            ("2025-06-18", "2025-11-25"),
            tmp_path / name,
            is_express=name == "express",
            enabled=enabled,
            settings=KEPT,
        )
        found.append(of_lane)
    assert found[0] == found[1]
    assert len(found[0]["records"]) >= 5


@pytest.mark.parametrize("is_logged", [False, True])
async def test_a_kept_result_is_answered_in_the_turn_in_which_the_call_comes(is_logged: bool, tmp_path: Path) -> None:
    files: dict[str, Any] = {
        "store": {"path": str(tmp_path / "store.db")},
        "call_log": {"path": str(tmp_path / "calls.db"), "enabled": is_logged},
        "results": {},  # as they are by default: the mark of a kept result is no word that has to be looked at
    }
    up = server()
    async with bridged({"up": up}, mode="own", servers={"up": KEPT}, **files) as bridge:
        talk = Talk(bridge)
        await talk.begin()
        talk.say(talk.call(1))
        await talk.answer(1)
        asked, tasks = len(up.asked("tools/call")), asyncio.all_tasks()
        talk.say(talk.call(2), talk.call(3))
        hits = talk.heard[-2:]
        assert [(hit["id"], hit["result"]["content"]) for hit in hits] == [(2, TEXT["content"]), (3, TEXT["content"])]
        assert hits[0]["result"]["_meta"]["mcpbridge/cache"]["hit"]
        assert asyncio.all_tasks() == tasks
        assert len(up.asked("tools/call")) == asked
        assert bridge.cache_status()["hits"] == 2
        assert (talk.conversation.running, [*bridge.recorder.running()]) == (0, [])
        talk.conversation.close()
    if is_logged:
        rows = read_calls(tmp_path / "calls.db", Filter(), limit=2)
        wholes = [read_call(tmp_path / "calls.db", row["uid"]) or {} for row in rows]
        assert all(json.dumps(whole["facts"]).count("hit") == 1 for whole in wholes)
        assert all(whole["stages"][-1][0] == "cache" for whole in wholes)
