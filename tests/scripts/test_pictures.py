"""`make screenshots`: the pictures of the docs, drawn of a real run, that play wherever an SVG is shown."""

import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from mcpbridge.app.demo.scenes import SCENES

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts/pictures"
SVG = "{http://www.w3.org/2000/svg}"
LARGEST = 400 * 1024


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))


def checked(drawn: str) -> ET.Element:
    """The picture; it is small, says what it shows, and brings nothing that a page would not play."""
    assert len(drawn.encode()) <= LARGEST
    found = ET.fromstring(drawn)
    assert found.findtext(f"{SVG}title")
    assert found.findtext(f"{SVG}desc")
    assert {one.tag.removeprefix(SVG) for one in found.iter()} <= {
        *("svg", "title", "desc", "style", "rect", "circle", "path", "g", "text", "tspan")
    }
    assert not re.search(r"href|url\(|@import|@font-face|\son\w+=", drawn)
    return found


@pytest.mark.parametrize("name", ["demo.svg", "overview.svg"])
def test_the_pictures_of_the_docs_can_be_shown_anywhere(name: str) -> None:
    found = checked((ROOT / "docs/images" / name).read_text("utf-8"))
    assert "@" not in (found.findtext(f"{SVG}desc") or "@")


def test_a_line_appears_at_its_time_and_the_whole_moves_up_when_the_window_is_full() -> None:
    from terminal_svg import picture

    frames = [(0.0, "\x1b[1;32m$\x1b[0m a <b>\r\n"), (1.0, "one\r\n"), (2.0, "two\r\n"), (3.0, "three")]
    drawn = picture(frames, columns=20, rows=2, title="t", description="d", hold=1)
    found = checked(drawn)
    texts = [one.text for one in found.iter(f"{SVG}text")]
    assert texts == ["t", "$", " a <b>", "one", "two", "three"]
    assert "t1{0%{opacity:0}25.000%,100%{opacity:1}}" in drawn, "the second of four seconds"
    assert (
        "@keyframes s{0%{transform:none}50.000%{transform:translateY(-20px)}75.000%{transform:translateY(-40px)}"
        in drawn
    )
    assert "prefers-reduced-motion:reduce" in drawn
    [dollar] = [one for one in found.iter(f"{SVG}text") if one.text == "$"]
    assert dollar.attrib["class"] == "b"
    assert dollar.attrib["fill"] == "#56d364"


def test_the_demo_is_recorded_and_answered(tmp_path: Path) -> None:
    from record_demo import main

    assert main([str(tmp_path / "demo.svg")]) == 0
    found = checked((tmp_path / "demo.svg").read_text("utf-8"))
    shown = "\n".join(one.text or "" for one in found.iter(f"{SVG}text"))
    for title in SCENES:
        assert title in shown
    assert "\nyes\n" in shown
    assert str(Path(sys.executable).parent) not in shown


def test_the_overview_has_a_number_in_each_of_its_places() -> None:
    from draw_overview import filled, numbers

    played = {
        "facts": {
            "tools_without": 40,
            "tools_with": 4,
            "search_tokens": 99,
            "result_characters": 120_000,
            "preview_characters": 1500,
        },
        "tokens": {
            "items": [
                {"what": "list of tools", "without": 4000, "with": 400},
                {"what": "a large result", "without": 40_000, "with": 800},
            ]
        },
    }
    template = (SCRIPTS / "overview.template.svg").read_text("utf-8")
    drawn = filled(template, numbers(played))
    texts = [one.text for one in checked(drawn).iter(f"{SVG}text")]
    assert {"−90%", "−98%", "1 of 40", "40 tools are listed as 4", "120,000 characters arrive as 1,500"} <= set(texts)
    with pytest.raises(KeyError):
        filled("@unknown@", numbers(played))
