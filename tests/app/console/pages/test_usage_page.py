"""The page of usage: who used what, with links to the calls."""

import re
from pathlib import Path

import pytest

from support.console_app import visiting
from support.harness import eventually, python_server
from support.people import ear_of, person

pytestmark = pytest.mark.anyio
CONFIG = {"servers": {"gated": python_server("gated")}}


async def test_it_sums_up_calls_by_what_is_ticked(tmp_path: Path) -> None:
    async with visiting(CONFIG, tmp_path) as one:
        assert "No call was recorded in this time" in await one.get("usage")
        for _ in range(3):
            await one.bridge.call_tool("gated__echo", {"text": "hello"})
        text = await eventually(lambda: one.get("usage?by=user&by=tool&since=24h"), lambda page: "gated/echo" in page)
        assert "local user" in text
        assert 'href="/console/calls?tool=gated%2Fecho">3</a>' in text
        assert "Dollars</th>" not in text
        assert "Dollars</th>" in await one.get("usage?price=3")
        assert "No call of this user" in await one.get("usage?user=nobody")


@pytest.mark.parametrize(
    "asked", ["price=-1", "price=x", "price=nan", "since=ever", "by=people", "by=team", "user=%3Cb%3E"]
)
async def test_what_is_wrong_in_the_address_is_no_error_of_the_page(asked: str, tmp_path: Path) -> None:
    async with visiting(CONFIG, tmp_path) as one:
        text = await one.get(f"usage?{asked}")
        assert "<b>" not in text
        assert ("expected dollars" in text) is asked.startswith("price")


async def test_it_shows_what_is_used_of_quotas(tmp_path: Path) -> None:
    roles = [
        {"name": "daily", "principals": ["*"], "servers": ["gated"], "quota": "3 calls per day"},
        {"name": "team", "principals": ["*"], "servers": ["gated"], "quota": "9 calls per month", "quota_of": "team"},
    ]
    async with visiting(CONFIG, tmp_path) as one:
        assert 'id="quotas"' not in await one.get("usage")
    async with visiting({**CONFIG, "roles": roles}, tmp_path / "more") as one:
        assert "the whole team" in await one.get("usage")
        ann = await ear_of(one.bridge.server, person("ann"))
        for _ in range(3):
            await ann.ask("tools/call", {"name": "gated__echo", "arguments": {"text": "hello"}})
        text = (await one.get("usage")).partition('id="quotas"')[2]
        assert re.search(r"#ann</td><td>3 calls per day</td><td[^>]*>3</td>.*100 %", text)
        assert re.search(r"the whole team</td><td>9 calls per month</td><td[^>]*>3</td>", text)
        assert '<time datetime="2' in text
