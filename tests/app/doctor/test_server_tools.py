"""Names, schemas and sizes of what servers offer, and what becomes of them with clients (issue 7, `doctor`)."""

import json
from pathlib import Path
from typing import Any

from mcpbridge.app.doctor.clients import about_clients
from mcpbridge.app.doctor.config_file import Source
from mcpbridge.app.doctor.examination import about_unmatched
from mcpbridge.app.doctor.finding import Finding
from mcpbridge.app.doctor.server_tools import about_offers
from mcpbridge.app.doctor.start_servers import Boot, catalog_of, tokens_of
from mcpbridge.config.schema import Settings

SOURCE = Source(Path("servers.toml"), "[servers.s]\ncommand = 'x'\n")


def tool(name: str, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    return {"name": name, "description": "Does it.", "inputSchema": schema, **more}


def boot(*tools: dict[str, Any], server: str = "s", **more: Any) -> Boot:
    listed = {"tools": tuple(json.dumps(one).encode() for one in tools)}
    return Boot(server, "stdio", is_ready=True, era="legacy", revision="2025-11-25", lists=listed, **more)


def settings(**sections: Any) -> Settings:
    return Settings.model_validate({"servers": {"s": {"command": "x"}, "t": {"command": "x"}}, **sections})


def found_of(*boots: Boot, **sections: Any) -> dict[str, Finding]:
    how, by_name = settings(**sections), {one.server: one for one in boots}
    snapshot = catalog_of(how, by_name)
    tokens = {name: sum(of.values()) for name, of in tokens_of(how, snapshot).items()}
    return {one.code: one for one in about_offers(snapshot, by_name, tokens, SOURCE)}


def test_of_a_tidy_server_there_is_nothing_to_say() -> None:
    assert found_of(boot(tool("read_file"), tool("write_file"))) == {}


def test_a_name_that_had_to_change_is_told_with_the_one_it_has() -> None:
    found = found_of(boot(tool("files.read"), tool("x" * 60), tool("fine")))
    assert found.keys() == {"renamed"}
    assert found["renamed"].what.startswith("2 tools have another name: files.read is s__files_read")


def test_what_is_left_out_or_mended_is_told() -> None:
    found = found_of(boot(tool("a", inputSchema="none"), tool("b", title=5), tool("c")))
    assert found["not-listed"].what.startswith("1 tool not listed (a)")
    assert found["mended"].what.startswith("1 tool listed with something mended (b)")


def test_a_schema_that_is_none_is_told() -> None:
    broken = {"type": "object", "properties": {"a": {"type": "strnig"}}}
    found = found_of(boot(tool("a", inputSchema=broken), tool("b")))
    assert found["schema-not-valid"].what == "the inputSchema of 1 tool is not valid (a)"


def test_arguments_without_a_type_and_missing_or_long_descriptions_are_told() -> None:
    vague = {"type": "object", "properties": {"a": {"description": "?"}}}
    found = found_of(
        boot(tool("a", inputSchema=vague), tool("b", description=""), tool("c", description="x" * 5000)),
        boot(tool("d"), server="t", instructions="y" * 5000),
    )
    assert found.keys() >= {"arguments-without-type", "description-missing", "description-cut", "instructions-cut"}
    assert found["instructions-cut"].server == "t"


def test_an_output_schema_is_told_of_where_it_is_listed() -> None:
    promising = tool("a", outputSchema={"type": "object"})
    assert "output-schema" in found_of(boot(promising), results={"strategy": "off"})
    assert "output-schema" not in found_of(boot(promising))  # results may be shortened, so it is not listed


def test_noise_trouble_and_a_probe_that_kills_are_told() -> None:
    found = found_of(boot(tool("a"), noise="hello", troubles=("prompts/list: no",), died_of_probe=True))
    assert found.keys() == {"stdout-noise", "list-failed", "dies-of-probe"}


def test_a_client_that_takes_fewer_tools_is_told_of() -> None:
    tokens = {f"s__{number}": 1 for number in range(130)}
    auto = [one.what for one in about_clients(settings(), tokens, SOURCE)]
    assert auto == []  # those are listed the search tools instead
    everything = [one.what for one in about_clients(settings(expose={"mode": "all"}), tokens, SOURCE)]
    assert any("cursor takes 80 tools" in what for what in everything)
    assert any("takes 128 tools" in what for what in everything)


def test_names_that_clients_cut_come_only_with_a_longer_limit() -> None:
    assert list(about_clients(settings(), {"s" * 48: 1}, SOURCE)) == []
    found = list(about_clients(settings(), {"s" * 100: 1}, SOURCE))
    assert {one.code for one in found} == {"name-too-long"}
    assert any("gemini-cli" in one.what for one in found)


def test_settings_that_match_nothing_are_told() -> None:
    how = settings(permissions=[{"tools": ["s/raed_file"], "permission": "deny"}])
    [one] = about_unmatched(how, {"s": boot(tool("read_file"))})
    assert one.code == "matches-nothing"
    assert "did you mean `s/read_file`" in one.what
