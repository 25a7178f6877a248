"""The examples of `examples/library` do what they say, before a model that follows a script over HTTP (issue 9)."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from support.models.scripted_models import ModelServer, ScriptedTurn, scripted_models

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "examples/library"
SERVERS = ROOT / ".venv-servers"

pytestmark = pytest.mark.skipif(not SERVERS.exists(), reason="`make example` installs the servers of the examples")


def calls(*wanted: tuple[str, dict[str, Any]], text: str = "") -> ScriptedTurn:
    return ScriptedTurn(text, wanted)


def city(name: str) -> tuple[str, dict[str, Any]]:
    return "weather", {"city": name}


TRIP = [
    calls(
        ("find_trains", {"origin": "Bern", "destination": "Rome"}),
        city("Rome"),
        ("time__get_current_time", {"timezone": "Europe/Rome"}),
        text="Let me look.",
    ),
    calls(city("Bern"), city("Rome")),
    calls(("choose_seat", {"train": "EC 35"}), city("Bern")),
    calls(("book", {"train": "EC 37", "price": 129.0}), ("book", {"train": "EC 35", "price": 89.0})),
    calls(("find_trains", {"origin": "Rome", "destination": "Bern"})),
    calls(("weather", {"town": "Bern"})),
    calls(("choose_seat", {"train": "NJ 40"}), city("Bern")),
    calls(("book", {"train": "NJ 40", "price": 159.0})),
    calls(city("Milan"), city("Zurich"), city("Bern")),
    ScriptedTurn("All is booked."),
]
"""Ten turns: calls side by side, a person who is asked twice, bad arguments, two calls that somebody must agree to."""


class Trip:
    """The example as its users run it: one process after the other, in one directory."""

    def __init__(self, folder: Path, models: ModelServer, api: str) -> None:
        self.folder, self.models, self.api = folder, models, api
        (folder / ".venv-servers").symlink_to(SERVERS)

    async def __call__(self, *words: str) -> str:
        return await shown(self.folder, self.models, FOLDER / "trip.py", "--api", self.api, *words)


async def shown(folder: Path, models: ModelServer, *command: object) -> str:
    """What a program writes, which must end well."""
    environment = {
        **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "OPENAI_BASE_URL": models.openai,
        "OPENAI_API_KEY": "none",
        "ANTHROPIC_BASE_URL": models.address,
        "ANTHROPIC_API_KEY": "none",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *map(str, command),
        cwd=folder,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    with anyio.fail_after(60):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


@pytest.mark.parametrize("api", ["openai", "anthropic"])
async def test_a_trip_of_ten_turns_waits_for_people_between_processes(tmp_path: Path, api: str) -> None:
    """Progress, artifacts, a paused person and approvals, each gone on with by another process."""
    async with scripted_models(TRIP) as models:
        trip = Trip(tmp_path, models, api)
        said = await trip("ask", "Take me from Bern to Rome and back.")
        assert "find_trains: looked at EC 37 (2 of 3)" in said
        assert "for the program alone: 3 rows" in said
        assert "sunny, 24" in said
        assert await trip("waiting") in said
        (seat,) = re.findall(r"waiting \[human\] (\S+): tools/choose_seat", said)

        said = await trip("answer", seat, "12A")
        assert "The traveller chose seat 12A." in said
        assert "EC 35 is booked" in said
        assert "EC 37 is booked" not in said
        (dear,) = re.findall(r"waiting \[approval\] (\S+): tools/book .*129", said)

        said = await trip("approve", dear)
        assert "EC 37 is booked for 129.0" in said
        assert "the night train has beds" in said
        (dearer,) = re.findall(r"waiting \[approval\] (\S+): tools/book .*159", said)

        said = await trip("deny", dearer)
        assert "NJ 40 is booked" not in said
        assert said.rstrip().endswith("All is booked.")

        assert len(models.heard) == len(TRIP)
        assert all(
            "EC 35 -> " not in json.dumps(one.body) and '"minutes"' not in json.dumps(one.body) for one in models.heard
        )
        last = json.dumps(models.heard[-1].body, ensure_ascii=False)
        for told in ("chose seat 12A", "EC 37 is booked", "was not approved", "town"):
            assert told in last, f"the model was never told of {told!r}"


async def test_an_agent_over_two_servers_fits_on_a_page(tmp_path: Path) -> None:
    """The tutorial's, word for word."""
    script = [
        calls(
            ("time__get_current_time", {"timezone": "UTC"}), ("git__git_log", {"repo_path": str(ROOT), "max_count": 1})
        ),
        calls(("count_words", {"text": "to be or not to be"})),
        ScriptedTurn("Six words."),
    ]
    (tmp_path / ".venv-servers").symlink_to(SERVERS)
    agent = FOLDER / "agent.py"
    assert len(agent.read_text().splitlines()) < 40
    async with scripted_models(script) as models:
        said = await shown(tmp_path, models, agent, "How", "many?")
    assert said.count("[") == 3
    assert said.rstrip().endswith("Six words.")
    told = json.dumps(models.heard[-1].body)
    assert "day_of_week" in told
    assert "Commit" in told or not (ROOT / ".git").exists()
