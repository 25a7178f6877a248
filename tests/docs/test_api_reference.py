"""The reference of the library is what the docstrings say: `scripts/api_reference.py` and the page that it writes."""

import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import griffe
import pytest

import mcpbridge

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "scripts/api_reference.py"
PAGE = ROOT / "docs/reference/api.md"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = spec_from_file_location("api_reference", SCRIPT)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def function_of(code: str) -> griffe.Function:
    function = griffe.visit("written", filepath=Path("written.py"), code=code).members["f"]
    assert isinstance(function, griffe.Function)
    return function


def test_the_page_is_what_the_docstrings_say() -> None:
    """Issue 9: an API reference generated from the docstrings."""
    checked = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_every_public_name_stands_on_it_once() -> None:
    shown = re.findall(r"^### `(\w+)`$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert sorted(shown) == sorted(name for name in mcpbridge.__all__ if name != "__version__")


def test_every_link_leads_to_something_on_it() -> None:
    page = PAGE.read_text("utf-8")
    anchors = re.findall(r'<a id="([\w.]+)"></a>', page)
    headings = {title.lower().replace(" ", "-") for title in re.findall(r"^## (.*)$", page, re.MULTILINE)}
    assert len(anchors) == len({*anchors})
    assert {*re.findall(r"\]\(#([^)]+)\)", page)} <= {*anchors} | headings


def test_the_methods_of_a_bridge_are_there_and_its_inner_parts_are_not() -> None:
    page = PAGE.read_text("utf-8")
    for name in (
        "Bridge.open",
        "Bridge.run",
        "Bridge.request",
        "Bridge.has_settled",
        "SyncBridge.open",
        "Client.recall",
    ):
        assert f'<a id="{name}"></a>' in page
    assert "`Bridge.set_backend`" not in page
    assert "_private" not in page


@pytest.mark.parametrize(
    "code",
    [
        "async def f(a: int, /, b: str = 'x', *, c: float | None = None, **rest: object) -> list[int]: ...",
        "def f(*parts: str, last=0): ...",
        "def f() -> None: ...",
    ],
)
def test_a_signature_is_as_it_is_written(script: Any, code: str) -> None:
    assert script.signature(function_of(code), "f") == code.removesuffix(": ...")


def test_a_method_is_shown_without_itself_and_a_long_one_over_several_lines(script: Any) -> None:
    assert script.signature(function_of("def f(self, a: int) -> int: ..."), "C.f") == "def C.f(a: int) -> int"
    parameters = [f"parameter_{number}: int" for number in range(6)]
    long = f"@classmethod\n@other\ndef f(cls, {', '.join(parameters)}) -> int: ..."
    lines = "".join(f"    {one},\n" for one in parameters)
    assert script.signature(function_of(long), "f") == f"@classmethod\ndef f(\n{lines}) -> int"


def test_sections_become_lists_and_known_names_links(script: Any) -> None:
    docstring = """What `Bridge.run` does, unlike `other`.

    bridge.run(`Bridge.run`)

Raises:
    CallFailed: it is
        an error.
    OSError: no file.
"""
    known = {"Bridge.run": "[`Bridge.run`](#Bridge.run)", "CallFailed": "[`CallFailed`](#CallFailed)"}
    assert script.prose(docstring, lambda words: known.get(words, f"`{words}`")) == (
        "What [`Bridge.run`](#Bridge.run) does, unlike `other`.\n\n    bridge.run(`Bridge.run`)\n\n"
        "**Raises**\n\n- [`CallFailed`](#CallFailed): it is an error.\n- `OSError`: no file."
    )


NAMES = mcpbridge.__all__


@pytest.mark.parametrize(
    ("names", "odd"),
    [([*NAMES, "json"], "json"), ([name for name in NAMES if name != "Bridge"], "Bridge")],
    ids=["in no subject", "not public"],
)
def test_a_name_that_has_no_place_is_refused(
    script: Any, monkeypatch: pytest.MonkeyPatch, names: list[str], odd: str
) -> None:
    monkeypatch.setattr(mcpbridge, "__all__", names)
    with pytest.raises(script.Undocumented, match=f" {odd}$"):
        script.page()


def test_a_name_without_a_docstring_is_refused(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names = script.public()
    monkeypatch.setattr(names["Bridge"].members["open"], "docstring", None)
    monkeypatch.setattr(names["CallResult"], "docstring", None)
    monkeypatch.setattr(script, "public", lambda: names)
    with pytest.raises(script.Undocumented, match=r"CallResult, Bridge\.open|Bridge\.open, CallResult"):
        script.page()
