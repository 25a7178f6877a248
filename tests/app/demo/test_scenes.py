"""Each scene of the demo holds on real servers, and none of them holds where it should not."""

import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.demo.conftest import LONGEST, left_behind
from mcpbridge.app.demo.bill import Bill
from mcpbridge.app.demo.cast import Cast, ToolCall
from mcpbridge.app.demo.own_cast import own_cast
from mcpbridge.app.demo.play import Options, play, started
from mcpbridge.app.demo.scenes import SCENES, SceneFailed, Show
from mcpbridge.app.demo.terminal import Screen

Played = dict[str, Any]


@pytest.fixture(scope="module")
def played(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Run where a module of the working directory would be in the way of any Python that looked there."""
    anywhere = tmp_path_factory.mktemp("anywhere")
    (anywhere / "json.py").write_text("raise SystemExit('taken from the working directory')")
    command = [sys.executable, "-P", "-m", "mcpbridge", "demo", "--json", "--price", "2"]
    run = subprocess.run(
        command,
        check=False,
        cwd=anywhere,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        stdin=subprocess.DEVNULL,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("title", SCENES)
def test_a_scene_holds(played: Played, title: str) -> None:
    [scene] = [scene for scene in played["scenes"] if scene["title"] == title]
    assert scene["holds"]
    assert scene["says"]


def test_the_bill_is_the_sum_of_its_items(played: Played) -> None:
    tokens = played["tokens"]
    assert tokens["without"] == sum(item["without"] for item in tokens["items"])
    assert tokens["with"] == sum(item["with"] for item in tokens["items"])
    assert tokens["counted"] == "estimate"
    saved = tokens["without"] - tokens["with"]
    assert saved > 50_000
    assert f"{saved:,} tokens" in played["scenes"][-1]["says"]
    assert f"${tokens['without'] * 2 / 1e6:.3f}" in played["scenes"][-1]["says"], "at the price that was given"


def test_a_run_leaves_nothing_behind(played: Played, place: Path) -> None:
    assert left_behind(place) == []


@pytest.fixture
async def show() -> AsyncIterator[Show]:
    with tempfile.TemporaryDirectory(prefix="mb-") as made, (Path(made) / "log").open("w+") as log:
        directory = Path(made)
        screen = Screen(is_quiet=True)
        async with own_cast(directory) as cast, started(cast, directory, log, screen, Options(is_quiet=True)) as show:
            yield show


async def test_what_is_not_so_fails_its_scene(show: Show) -> None:
    """Of a scene that cannot fail nobody learns that it holds."""
    good = show.cast
    plain = ToolCall("calendar__describe_day", {"day": "2026-03-02"})
    await fails(show, "A result goes", "there is no kept result", good)
    await fails(show, "A tool is found", "is not the first", replace(good, found_call=plain))
    await fails(show, "A tool is found", "the answer is not in the result", replace(good, answer=lambda _said: ""))
    await fails(show, "A large result", "was not kept", replace(good, large=ToolCall("shop__list_products", {})))
    await fails(show, "A large result", "recall answers", replace(good, orders=good.orders[:100]))
    await play_scene(show, "A large result", good)
    elsewhere = good.written_file.parent / "other.json"
    elsewhere.parent.mkdir()
    elsewhere.write_text("[]")
    await fails(show, "A result goes", "is not what was kept", replace(good, written_file=elsewhere))
    await fails(show, "Wrong arguments", "nothing was mended", replace(good, mended=plain))
    await fails(show, "Wrong arguments", "was accepted", replace(good, refused=plain))
    await fails(show, "Wrong arguments", "does not say what fits", replace(good, fix="a number of pages"))
    await fails(show, "A call that needs a yes", "nobody was asked", replace(good, approved=plain))
    await fails(show, "A call that needs a yes", "before anybody was asked", replace(good, has_happened=lambda: True))
    await fails(show, "A call that needs a yes", "had no effect", replace(good, has_happened=lambda: False))
    await fails(show, "A server is killed", "was answered before", replace(good, slow=plain))
    await fails(show, "A server is killed", "has no process", replace(good, killed=ToolCall("web__list_pages", {})))
    show.bill = Bill()
    await fails(show, "The bill", "nothing was saved", good)


async def test_a_list_that_is_not_shorter_fails_its_scene(show: Show) -> None:
    show.without = {"calendar": []}
    await fails(show, "Five servers", "the longer one", show.cast)


async def play_scene(show: Show, title: str, cast: Cast) -> str:
    [scene] = [scene for name, scene in SCENES.items() if name.startswith(title)]
    show.cast = cast
    return await scene(show)


async def fails(show: Show, title: str, why: str, cast: Cast) -> None:
    with pytest.raises(SceneFailed, match=why):
        await play_scene(show, title, cast)


async def test_a_scene_that_does_not_hold_ends_the_run_with_5(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    @asynccontextmanager
    async def spoilt(directory: Path) -> AsyncIterator[Cast]:
        async with own_cast(directory) as cast:
            yield replace(cast, answer=lambda _said: "")

    played = await play(spoilt, Options())
    assert played.code == 5
    assert [scene["holds"] for scene in played.scenes] == [True, False]
    shown = capsys.readouterr().out
    assert "✗ the answer is not in the result" in shown
    assert "3 of 8" not in shown


async def test_a_server_that_does_not_start_ends_the_run_with_5(capsys: pytest.CaptureFixture[str]) -> None:
    @asynccontextmanager
    async def spoilt(directory: Path) -> AsyncIterator[Cast]:
        async with own_cast(directory) as cast:
            cast.config.write_text(cast.config.read_text().replace("notes_main", "poems_main"))
            yield cast

    played = await play(spoilt, Options())
    assert played.code == 5
    assert not played.scenes
    assert "✗" in capsys.readouterr().out
