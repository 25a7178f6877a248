"""Two readings of the configuration: what of the second one can take effect (issue 7)."""

from typing import Any

import pytest

from mcpbridge.config.needs_restart import Reloaded, changed_sections, in_effect
from mcpbridge.config.schema import Settings


def settings(**sections: Any) -> Settings:
    return Settings.model_validate(sections)


@pytest.mark.parametrize(
    ("sections", "keys"),
    [
        ({"store": {"max_bytes": "1 MiB"}}, ("store.max_bytes",)),
        ({"http": {"path": "/x", "sse": False}}, ("http.path", "http.sse")),
        ({"limits": {"max_frame": "1 MiB"}}, ("limits.max_frame",)),
        ({"questions": {"state_key": "a key of sixteen"}}, ("questions.state_key",)),
        ({"call_log": {"path": "x.db"}}, ("call_log.path",)),
        ({"daemon": {"http": "127.0.0.1:1"}}, ("daemon.http",)),
    ],
)
def test_what_is_settled_at_the_start_stays_as_it_was(sections: dict[str, Any], keys: tuple[str, ...]) -> None:
    before = settings()
    assert in_effect(before, settings(**sections)) == (before, keys)
    assert in_effect(settings(**sections), settings(**sections)) == (settings(**sections), ())


def test_the_rest_takes_effect_beside_it() -> None:
    wanted = settings(
        questions={"timeout": 5, "state_key": "a key of sixteen"}, observe={"metrics": False, "max_tools": 5}
    )
    effective, keys = in_effect(settings(), wanted)
    assert keys == ("observe.max_tools", "questions.state_key")
    assert (effective.questions.timeout, effective.questions.state_key) == (5, None)
    assert (effective.observe.metrics, effective.observe.max_tools) == (False, 2000)


def test_sections_are_named_in_the_order_of_the_reference() -> None:
    after = settings(servers={"a": {"command": "a"}}, cache={"max_bytes": 1}, calls={"batch": 2})
    assert changed_sections(settings(), after) == ("calls", "cache")
    assert changed_sections(after, after) == ()


def test_what_a_reload_changed_is_told_without_what_is_empty() -> None:
    assert Reloaded(added=("a",), sections=("calls",)).to_json() == {"added": ["a"], "sections": ["calls"]}
    assert not Reloaded(needs_restart=("store.path",)), "nothing is different by it"
    assert Reloaded(kept=("a",))
