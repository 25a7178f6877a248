"""How the calls of a tool are treated: three levels of settings, and what is known of the tool (issue 4)."""

from typing import Any

import pytest

from mcpbridge.core.call_options import NO_HINTS, CallOptions, Hints
from mcpbridge.core.call_settings import CallDefaults, CallSettings
from mcpbridge.core.result_settings import ResultSettings
from mcpbridge.core.settings_precedence import resolve, result_options


def tool_options(
    name: str = "frobnicate",
    hints: Hints = NO_HINTS,
    *,
    trusted: bool = False,
    tool: dict[str, Any] | None = None,
    server: dict[str, Any] | None = None,
    **calls: Any,
) -> CallOptions:
    return resolve(
        name,
        hints,
        tool=CallSettings.model_validate(tool) if tool is not None else None,
        server=CallSettings.model_validate(server) if server is not None else None,
        calls=CallDefaults.model_validate(calls),
        is_trusted=trusted,
    )


def test_the_nearest_setting_wins_key_by_key() -> None:
    found = tool_options(
        tool={"permission": "deny"}, server={"permission": "allow", "risk": "low", "late": "cancel"}, risk="high"
    )
    assert (found.permission, found.risk, found.late) == ("deny", "low", "cancel")
    assert tool_options(permission="require_approval").permission == "require_approval"
    assert tool_options(inject_defaults=True, tool={"inject_defaults": False}).inject_defaults is False


def test_nothing_is_known_of_a_tool_that_says_nothing() -> None:
    found = tool_options()
    assert (found.effect, found.is_destructive, found.is_idempotent, found.risk) == ("unknown", False, False, "medium")
    assert not found.is_serial


@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("create_issue", "write"),
        ("createIssue", "write"),
        ("CreateIssue", "write"),
        ("create-issue", "write"),
        ("create", "write"),
        ("creates_nothing", "unknown"),
        ("recreate_issue", "unknown"),
        ("github.create_issue", "write"),
        ("issues/create", "write"),
        ("github:createIssue", "write"),
        ("get_issue", "unknown"),
        ("getURL", "unknown"),
        ("repo.list", "unknown"),
        ("delete.get", "write"),
        ("delete_repo", "write"),
        ("truncate_table", "write"),
        ("gett", "unknown"),
        ("", "unknown"),
    ],
)
def test_names_tell_of_side_effects_where_nothing_better_is_known(name: str, effect: str) -> None:
    found = tool_options(name)
    assert found.effect == effect
    assert found.is_serial == (effect == "write")


def test_names_of_destruction_make_a_high_risk() -> None:
    found = tool_options("deleteRepo")
    assert (found.effect, found.is_destructive, found.risk) == ("write", True, "high")
    assert tool_options("get_x").risk == "medium"
    assert tool_options("create_x").risk == "medium"


def test_a_name_alone_makes_no_call_safe_to_repeat() -> None:
    """Issue 4: only by trusted annotation or configuration."""
    assert not tool_options("get_x").is_idempotent
    assert not tool_options("get_x", Hints(read_only=True)).is_idempotent
    assert tool_options("get_x", Hints(read_only=True), trusted=True).is_idempotent
    assert tool_options("x", tool={"read_only": True}).is_idempotent
    assert tool_options("x", Hints(idempotent=True), trusted=True).is_idempotent
    assert not tool_options("x", Hints(idempotent=True)).is_idempotent


@pytest.mark.parametrize("name", ["get_and_wipe", "getURL", "repo.list", "search"])
def test_a_name_that_sounds_like_reading_is_no_knowledge(name: str) -> None:
    """A server that is not trusted names its tools itself, and could get past rules and into the cache by that."""
    found = tool_options(name, server={"cache": 60})
    assert (found.effect, found.risk, found.cache, found.seems_read) == ("unknown", "medium", 0, True)
    known = tool_options(name, Hints(read_only=True), server={"cache": 60}, trusted=True)
    assert (known.effect, known.risk, known.cache, known.seems_read) == ("read", "low", 60, False)


@pytest.mark.parametrize(
    ("name", "hints"), [("frobnicate", NO_HINTS), ("get_x", Hints(read_only=False)), ("get_x", Hints(destructive=True))]
)
def test_what_does_not_sound_like_reading_or_is_worse_does_not_seem_to_read(name: str, hints: Hints) -> None:
    assert not tool_options(name, hints).seems_read


@pytest.mark.parametrize(
    ("hints", "trusted", "effect", "destructive"),
    [
        (Hints(read_only=True), True, "read", False),
        (Hints(read_only=True), False, "unknown", False),
        (Hints(read_only=False), True, "write", False),
        (Hints(read_only=False), False, "write", False),
        (Hints(destructive=True), True, "write", True),
        (Hints(destructive=True), False, "write", True),
        (Hints(read_only=True, destructive=True), True, "read", False),
        (Hints(read_only=True, destructive=True), False, "write", True),
        (Hints(destructive=False), True, "unknown", False),
    ],
)
def test_of_a_server_that_is_not_trusted_only_the_worse_is_believed(
    hints: Hints, trusted: bool, effect: str, destructive: bool
) -> None:
    found = tool_options("frobnicate", hints, trusted=trusted)
    assert (found.effect, found.is_destructive) == (effect, destructive)


def test_annotations_come_before_names_and_settings_before_both() -> None:
    assert tool_options("delete_x", Hints(read_only=True), trusted=True).effect == "read"
    assert tool_options("delete_x", Hints(read_only=True)).is_destructive
    assert not tool_options("delete_x", Hints(destructive=False), trusted=True).is_destructive
    assert tool_options("delete_x", Hints(destructive=False), trusted=True).effect == "write"
    assert tool_options("delete_x", Hints(destructive=False)).is_destructive
    assert tool_options("get_x", Hints(read_only=False)).effect == "write"
    assert tool_options("delete_x", Hints(destructive=True), tool={"read_only": True}).effect == "read"
    assert tool_options("get_x", Hints(read_only=True), trusted=True, server={"read_only": False}).effect == "write"
    assert tool_options("delete_x", tool={"destructive": False}).effect == "write"
    assert not tool_options("delete_x", tool={"destructive": False}).is_destructive


def test_the_names_can_be_set() -> None:
    assert tool_options("create_x", write_names=[]).effect == "unknown"
    assert tool_options("issue_create", write_names=["*_create"]).effect == "write"
    assert tool_options("wipe", destructive_names=["wipe_*"]).is_destructive
    assert not tool_options("get_x", read_names=[]).seems_read
    assert tool_options("x_got", read_names=["*_got"]).seems_read
    assert tool_options("Wipe", write_names=["wip?"]).effect == "write"


# -- every option by itself


LEVELS = ("tool", "server", "calls")


@pytest.mark.parametrize(
    ("key", "values", "read"),
    [
        ("permission", ("deny", "require_approval", "allow"), lambda found: found.permission),
        ("risk", ("low", "medium", "high"), lambda found: found.risk),
        ("arguments", ("check", "pass", "coerce"), lambda found: found.arguments),
        ("late", ("cancel", "keep", "cancel"), lambda found: found.late),
        ("inject_defaults", (False, True, False), lambda found: found.inject_defaults),
        ("log_content", (True, False, True), lambda found: found.log_content),
    ],
)
def test_of_three_levels_the_nearest_that_says_something_counts(key: str, values: tuple[Any, ...], read: Any) -> None:
    for first in range(3):
        said = {level: {key: value} for level, value in list(zip(LEVELS, values, strict=True))[first:]}
        found = tool_options(tool=said.get("tool", {}), server=said.get("server"), **said.get("calls", {}))
        assert read(found) == values[first]


@pytest.mark.parametrize(
    ("tool", "server", "timeouts"),
    [
        (None, None, None),
        ({}, None, None),
        (None, {"call_timeout": 5}, None),
        ({}, {"call_timeout": 5}, None),
        ({"permission": "allow"}, {"call_timeout": 5}, None),
        ({"call_timeout": 7}, {"call_timeout": 5}, (7, 600)),
        ({"max_call_timeout": 9}, {"call_timeout": 5}, (5, 9)),
        ({"call_timeout": 7, "max_call_timeout": 3}, None, (7, 7)),
        ({"call_timeout": 7, "max_call_timeout": 9}, {"call_timeout": 5}, (7, 9)),
    ],
)
def test_a_tool_has_times_of_its_own_only_if_it_says_so(
    tool: dict[str, Any] | None, server: dict[str, Any] | None, timeouts: tuple[float, float] | None
) -> None:
    """Else those of its server count, which may change while it runs."""
    found = tool_options(tool=tool, server=server).timeouts
    assert (None if found is None else (found.idle, found.total)) == timeouts


@pytest.mark.parametrize("is_own", [False, True])
@pytest.mark.parametrize(
    ("settings", "annotated", "by_name"),
    [({}, True, True), ({"side_effects": "serial"}, True, True), ({"side_effects": "parallel"}, False, False)],
)
def test_calls_that_write_run_one_at_a_time_unless_they_may_run_side_by_side(
    settings: dict[str, Any], annotated: bool, by_name: bool, is_own: bool
) -> None:
    """For a function of one's own its annotations alone decide; of a server's tool its name does as well."""

    def is_serial(name: str, hints: Hints) -> bool:
        own = CallSettings.model_validate(settings)
        return resolve(
            name, hints, tool=None, server=own, calls=CallDefaults(), is_trusted=True, is_own_function=is_own
        ).is_serial

    assert is_serial("frobnicate", Hints(read_only=False)) is annotated
    assert is_serial("frobnicate", Hints(destructive=True)) is annotated
    assert is_serial("create_note", NO_HINTS) is (by_name and not is_own)
    assert is_serial("frobnicate", NO_HINTS) is False
    assert is_serial("create_note", Hints(read_only=True)) is False


@pytest.mark.parametrize(
    ("name", "hints", "tool", "seconds"),
    [
        ("get_x", Hints(read_only=True), {}, 60),
        ("get_x", NO_HINTS, {}, 0),
        ("get_x", NO_HINTS, {"cache": 30}, 30),
        ("create_x", NO_HINTS, {"cache": 30}, 0),
        ("x", Hints(destructive=True), {"cache": 30}, 0),
        ("x", Hints(read_only=False), {"cache": 30}, 0),
        ("x", NO_HINTS, {"cache": 30}, 30),
        ("create_x", NO_HINTS, {"cache": 30, "read_only": True}, 30),
    ],
)
def test_what_writes_is_never_cached_and_what_may_write_only_by_its_own_setting(
    name: str, hints: Hints, tool: dict[str, Any], seconds: float
) -> None:
    assert tool_options(name, hints, trusted=True, tool=tool, server={"cache": 60}).cache == seconds


def test_options_of_results_come_from_the_nearest_level_each() -> None:
    tool, server, everything = (
        ResultSettings.model_validate(one)
        for one in ({"budget": 500}, {"budget": 900, "strategy": "off"}, {"preview_items": 7, "strategy": "truncate"})
    )
    found = result_options(tool, server, everything)
    assert (found.budget, found.strategy, found.items) == (500, "off", 7)
    assert result_options(None, server, None).budget == 900
    assert result_options(None, None, None) == result_options()


def test_a_tool_has_no_limits_unless_its_server_has_some() -> None:
    found = tool_options()
    assert (found.max_concurrent, found.rate_limit, found.server_rate_limit) == (0, None, None)
