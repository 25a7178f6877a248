"""The list of hosts: what is allowed by it, and what is no entry."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.sandbox.egress.rules import MOST_PORTS, Rules, parse_rule


def test_a_list_allows_what_is_on_it() -> None:
    rules = Rules(["API.github.com:443", "*.example.com:443", "10.0.0.5:5432", "[fd00::1]:80", "api.github.com:80"])
    assert rules.allows("api.github.com", 443)
    assert rules.allows("api.GitHub.com.", 80)
    assert not rules.allows("api.github.com", 8080)
    assert not rules.allows("github.com", 443)
    assert not rules.allows("x.api.github.com", 443)
    assert not rules.allows("api.github.com.attacker.test", 443)
    assert rules.allows("a.example.com", 443)
    assert rules.allows("a.b.example.com", 443)
    assert not rules.allows("example.com", 443)
    assert not rules.allows("badexample.com", 443)
    assert rules.allows("10.0.0.5", 5432)
    assert rules.allows("[FD00:0::1]", 80)
    assert rules.ports == [80, 443, 5432]
    assert rules.hosts == ["api.github.com"]
    assert rules.addresses() == ["10.0.0.5", "fd00::1"]
    assert rules.addresses(80) == ["fd00::1"]
    assert rules.knows("a.example.com")
    assert not rules.knows("a.example.org")


@pytest.mark.parametrize(
    "text",
    ["", "x", ":443", "x:", "x:0", "x:65536", "x:443x", "https://x:443", "x/y:443", "a b:443", "*:443", "*.com:443",
     "a.*.com:443", "x:4:4", "localhost:80", "a.localhost:80", "*.10.0.0.1:443", "1.2.3:80", "ä.example:443",
     "-a.b:443", "x:٣"],
)  # fmt: skip
def test_what_is_no_entry_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_rule(text)


def test_there_are_not_too_many_ports() -> None:
    with pytest.raises(ValueError, match="different ports"):
        Rules([f"example.com:{port}" for port in range(1, MOST_PORTS + 2)])


@given(st.text(max_size=60))
def test_any_text_is_an_entry_or_none(text: str) -> None:
    with suppress(ValueError):
        rule = parse_rule(text)
        assert 0 < rule.port < 65536
        assert rule.matches(rule.host, rule.port) is not rule.is_wildcard
