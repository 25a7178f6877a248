"""A source that is cited can be opened: a page of the specification, an RFC, an issue, a page in `docs/`.

Papers that are in no repository, and the numbers of their sections, are no sources.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("src", "tests", "benchmarks", "examples", "scripts", "docs")
SUFFIXES = {".py", ".md", ".toml", ".mjs", ".js", ".yaml", ".json", ".jsonc"}
DATA = {"data", "node_modules", "__pycache__"}
"""Folders of texts that others wrote."""

PRIVATE = re.compile(
    r"""
    \b(?:DESIGN|HOUSE|LAYOUT)\b                                # papers by their names
    | \bhouse\s+style\b
    | \bproject['’]s\s+(?:own\s+)?(?:notes|research|design|digest)\b
    | \b(?:design|security)\s+notes\b
    | \bnotes\s+on\s+(?:security|reliability)\b
    | \b[Rr]esearch(?:,?\s+(?:section\s+)?[0-9]|,\s+(?:section|traps?)\b)
    | \b(?:[Mm]easured,\s+|[Ss]ources:\s+|;\s+)research\s+on\b
    | \b[Tt]he\s+design,\s+section\b
    | \b[Ss]pec(?:ification)?,?\s+(?:section\s+)?§?\s?[1-9](?:\.[0-9]+)*(?![0-9])    # "spec 2.11" says not of what
    """,
    re.VERBOSE,
)
SPACE = re.compile(r"\s+(?:#\s+)?")


def cited(text: str) -> list[str]:
    """The private sources that a text cites; one may go on in the next line."""
    return PRIVATE.findall(SPACE.sub(" ", text))


def texts() -> list[Path]:
    """What people read and write here."""
    inside = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    ours = [
        path
        for path in inside
        if path.suffix in SUFFIXES and path != Path(__file__) and not DATA & {*path.relative_to(ROOT).parts}
    ]
    return [*ours, *ROOT.glob("*.md"), *ROOT.glob("*.toml"), ROOT / "Makefile", ROOT / "Dockerfile"]


def test_what_is_cited_can_be_opened() -> None:
    found = {path.relative_to(ROOT): private for path in texts() if (private := cited(path.read_text()))}
    assert not found, "cite a page that readers can open, or say the reason itself"


@pytest.mark.parametrize(
    "text",
    [
        "in one place (DESIGN, section 3)",
        "HOUSE style, section 8",
        "Spec 2.11: listed and callable",
        "bound to the principal (spec §2.9)",
        "Spec 7 of what is here",
        "declared once (2.3 of the project's\n    # notes)",
        "Research, section 1: each tried for real.",
        "Research 1.3: it vanishes",
        "(issue 2: no orphan; notes on security, 1.6)",
        "frames, not models (design notes)",
    ],
)
def test_a_paper_that_is_not_here_is_no_source(text: str) -> None:
    assert cited(text)


@pytest.mark.parametrize(
    "text",
    [
        "MCP 2026-07-28, Tools, tools/call",
        "Spec 2025-11-25, transports",
        "MCP Apps 2026-01-26, Resource Discovery",
        "RFC 6455, section 4.1",
        "JSON-RPC 2.0, section 5",
        "docs/explanation/architecture.md, Layers (issue 4)",
        "deep research, in depth research, research report",
        "a spec of 3 operations",
        "designed by hand; the house is white",
    ],
)
def test_a_page_that_can_be_opened_is_one(text: str) -> None:
    assert not cited(text)
