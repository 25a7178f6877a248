"""The README: short, with install links that install what they say (issue 19)."""

import base64
import json
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text("utf-8")
SERVER = {"command": "mcpbridge", "args": ["serve"]}


def test_a_stranger_reads_it_in_three_minutes() -> None:
    """Issue 19: at most 250 lines and 12,000 characters."""
    assert len(TEXT.splitlines()) <= 250
    assert len(TEXT) <= 12_000


def install_link(host: str) -> dict[str, list[str]]:
    [link] = re.findall(rf"\]\((https://{re.escape(host)}/\S+)\)", TEXT)
    return parse_qs(urlsplit(link).query, strict_parsing=True)


def test_the_link_for_cursor_installs_the_bridge() -> None:
    """Its configuration is base64 of JSON (cursor.com/docs/mcp/install-links)."""
    query = install_link("cursor.com")
    assert query["name"] == ["mcpbridge"]
    assert json.loads(base64.b64decode(query["config"][0], validate=True)) == SERVER


def test_the_link_for_vs_code_installs_the_bridge() -> None:
    """Its configuration is JSON."""
    query = install_link("insiders.vscode.dev")
    assert query["name"] == ["mcpbridge"]
    assert json.loads(query["config"][0]) == SERVER


@pytest.mark.parametrize("picture", re.findall(r"!\[[^\]]+\]\((\S+?)\)|<img[^>]*src=\"([^\"]+)\"", TEXT))
def test_a_picture_is_there_and_loads_nothing(picture: tuple[str, str]) -> None:
    path = ROOT / (picture[0] or picture[1])
    if path.suffix == ".png":
        assert path.read_bytes().startswith(b"\x89PNG\r\n"), "pixels, which load nothing"
        return
    svg = path.read_text("utf-8")
    assert svg.lstrip().startswith(("<svg", "<?xml"))
    away = re.findall(r"(?:href|src)=\"(https?:[^\"]+)|url\([\"']?(https?:[^)\"']+)|<script", svg)
    assert away == []


def test_what_was_measured_is_what_the_page_of_figures_says() -> None:
    """The five figures are copies: of the tables in docs/explanation/measured.md."""
    measured = (ROOT / "docs/explanation/measured.md").read_text("utf-8")
    table = TEXT.partition("## Measured")[2].partition("\n## ")[0]
    figures = re.findall(r"\d[\d,.]*(?= (?:%|µs|ms|MiB))", table)
    assert len(figures) >= 10
    assert [one for one in figures if one not in measured] == []
