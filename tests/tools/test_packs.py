"""Packs: where they come from, their templates, and their commands."""

import string
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.errors import ConfigError, UnknownName, UpstreamError
from mcpbridge.tools.backend import BackendContext
from mcpbridge.tools.packs import Pack, PackBackend, PackTool, TemplateFailed, filled, places_of
from mcpbridge.tools.settings import pack_name
from support.backends.backend_calls import found, result, text_of

VALUE = {"a": {"b": [1, {"c": "x"}]}, "n": None, "t": "text", "__class__": "kept"}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{a.b.0}", 1),
        ("{a.b.1.c}!", "x!"),
        ("{a.b}", [1, {"c": "x"}]),
        ("<{a.b}>", '<[1,{"c":"x"}]>'),
        ("{n}", None),
        ("<{n}>", "<>"),
        ("{{t}} {t}", "{t} text"),
        ("{}", VALUE),
        ("{gone?}", None),
        ("<{gone.far?}>", "<>"),
        ({"x": "{t}", "y": "{gone?}", "z": ["{gone?}", "{t}", 3]}, {"x": "text", "z": ["text", 3]}),
        ("{__class__}", "kept"),
        ("plain", "plain"),
        (None, None),
    ],
)
def test_templates_are_filled_from_a_value(template: object, expected: object) -> None:
    assert filled(template, VALUE) == expected


@pytest.mark.parametrize(
    "template",
    ["{gone}", "{a.c}", "{a.b.2}", "{a.b.-1}", "{t.upper}", "{t.0}", "{", "}", "{t!r}x{", "{a..b}", "{t.__class__}"],
)
def test_what_is_not_there_or_no_template_is_refused(template: str) -> None:
    with pytest.raises(TemplateFailed):
        filled(template, VALUE)


@given(text=st.text(alphabet="{}ab.?0!_: " + string.ascii_lowercase[:4], max_size=20))
def test_a_template_reads_nothing_but_its_value(text: str) -> None:
    """Whatever is written: it is filled from what is there, or refused."""
    try:
        names = places_of(text)
        made = filled(text, {"a": 1, "b": {"c": "x"}})
    except TemplateFailed:
        return
    for name in names:
        assert all(part for part in name.split(".")) or name == ""
    if "{" not in text and "}" not in text:
        assert made == text


def forecast(place: dict[str, str], days: int = 1) -> dict[str, Any]:
    """The weather to come."""
    return {"place": place["name"], "high": 20 * days}


def plain(n: int) -> int:
    return n + 1


PACK = Pack(
    name="weather",
    tools=[
        PackTool(function=forecast, input={"place": {"name": "{city}"}, "days": "{days?}"}, output="{place}: {high}°"),
        PackTool(function=forecast, name="raw", description="Raw.", output={"temperature": "{high}"}),
        plain,
    ],
    commands={"count": len, "fail": lambda data: 1 / 0},
)


async def test_its_tools_take_and_give_what_its_templates_say() -> None:
    backend = PackBackend.of(PACK)
    async with found(backend):
        first, raw, last = backend.tools
        assert first["inputSchema"] == {
            "type": "object",
            "properties": {"city": {}, "days": {}},
            "required": ["city"],
        }
        assert (first["description"], raw["description"], last["name"]) == ("The weather to come.", "Raw.", "plain")
        assert text_of(await result(backend, "forecast", {"city": "Ulm"})) == "Ulm: 20°"
        assert text_of(await result(backend, "forecast", {"city": "Ulm", "days": 2})) == "Ulm: 40°"
        structured = (await result(backend, "raw", {"place": {"name": "x"}}))["structuredContent"]
        assert structured == {"temperature": 20}
        assert text_of(await result(backend, "plain", {"n": 1})) == "2"
        failed = await result(backend, "forecast", {})
        assert (failed["isError"], "there is no `city`" in text_of(failed)) == (True, True)
        with pytest.raises(UnknownName):
            await result(backend, "nothing", {})


async def test_its_commands_are_called_by_name() -> None:
    backend = PackBackend.of(PACK)
    async with found(backend):
        assert await backend.command("count", {"a": 1}) == 1
        with pytest.raises(UnknownName, match="count"):
            await backend.command("cont", {})
        with pytest.raises(UpstreamError, match="ZeroDivisionError"):
            await backend.command("fail", {})
        assert (await backend.check()).ok


@pytest.mark.parametrize(
    ("reference", "name"),
    [("weather", "weather"), ("pkg.weather:pack", "weather"), ("pkg.mod:PACK", "mod"), ("pkg.mod:climate", "climate")],
)
def test_a_pack_has_a_name_before_it_is_loaded(reference: str, name: str) -> None:
    assert pack_name(reference) == name


def around(directory: Path) -> BackendContext:
    return BackendContext(None, directory=directory)  # type: ignore[arg-type]


@pytest.mark.parametrize("entry", ["{module}:make", "{module}:pack", "{module}"])
async def test_an_installed_pack_is_found_by_its_entry_point(
    entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"installed_{time.monotonic_ns()}"
    (tmp_path / f"{module}.py").write_text(
        "from mcpbridge.tools.packs import Pack\n"
        "def f(n: int): return n\n"
        "pack = Pack(name='x', tools=[f])\n"
        "def make(): return pack\n"
    )
    info = tmp_path / "some_pack-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-pack\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[mcpbridge.packs]\nsome = {entry.format(module=module)}\nother = nothing_like_this:pack\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    backend = PackBackend("some", around(tmp_path))
    async with found(backend):
        assert [tool["name"] for tool in backend.tools] == ["f"]
        assert "nothing_like_this" not in sys.modules
    async with found(PackBackend("unknown", around(tmp_path)), "failed"):
        pass
    sys.modules.pop(module, None)


async def test_a_pack_that_is_none_says_so(tmp_path: Path) -> None:
    module = f"broken_{time.monotonic_ns()}"
    (tmp_path / f"{module}.py").write_text("pack = 3\ndef boom(): raise ValueError('x')\n")
    for reference, told in [
        (f"{module}:pack", "it is no `Pack` but int"),
        (f"{module}:boom", "it cannot be made: ValueError: x"),
        ("no-such-pack", "no installed package has a pack of this name"),
    ]:
        backend = PackBackend(reference, around(tmp_path))
        async with found(backend, "failed"):
            assert told in backend.condition.reason
    sys.modules.pop(module, None)


@pytest.mark.parametrize(
    ("tools", "told"),
    [
        ([plain, plain], "every tool needs a name of its own"),
        ([PackTool(function=plain, output="{")], "is no place"),
        ([PackTool(function=plain, input={"n": "}"})], "is no place"),
        ([PackTool(function=max, name="max")], "'max' of the pack 'p'"),
    ],
)
def test_a_tool_that_is_none_is_named(tools: list[Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        PackBackend.of(Pack(name="p", tools=tools))
