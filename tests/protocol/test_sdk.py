"""The contract with the installed SDK: the rules that `protocol/sdk.py` borrows exist and behave."""

import subprocess
import sys

import mcp.shared.inbound as original

from mcpbridge.protocol import sdk

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
SCHEMA = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}


def test_header_values_survive_the_codec() -> None:
    for value in ("plain", " edge", "näh", "=?base64?eA==?=", "", "line\nbreak"):
        assert sdk.decode_header_value(sdk.encode_header_value(value)) == value
    assert sdk.encode_header_value("näh").startswith("=?base64?")
    assert sdk.decode_header_value("=?base64?%%?=") is None


def test_a_sound_request_passes_and_a_contradiction_is_named() -> None:
    body = {"method": "tools/call", "params": {"name": "a", "_meta": META}}
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "a"}
    assert sdk.classify_inbound_request(body, headers=headers) is None
    verdict = sdk.classify_inbound_request(body, headers={**headers, "mcp-name": "b"})
    assert verdict is not None
    assert verdict[0] == -32020
    assert sdk.http_status_of(-32020) == 400
    assert sdk.http_status_of(-32601) == 404
    assert sdk.http_status_of(1) == 200


def test_annotated_arguments_are_mirrored_and_checked() -> None:
    assert sdk.find_invalid_x_mcp_header(SCHEMA) is None
    assert sdk.find_invalid_x_mcp_header({"x-mcp-header": "A"}) is not None
    headers = sdk.mcp_param_headers(sdk.x_mcp_header_map(SCHEMA), {"region": "eu"})
    assert headers == {"Mcp-Param-Region": "eu"}
    assert sdk.validate_mcp_param_headers(SCHEMA, {"region": "eu"}, headers) is None
    refusal = sdk.validate_mcp_param_headers(SCHEMA, {"region": "us"}, headers)
    assert refusal is not None
    assert refusal[0] == -32020


def test_routing_headers_and_names_are_known() -> None:
    assert sdk.find_duplicated_routing_header([("Mcp-Method", "a"), ("mcp-method", "a")]) == "mcp-method"
    assert sdk.name_key_of("resources/read") == "uri"
    assert sdk.name_key_of("tools/list") is None
    assert original.MCP_METHOD_HEADER == "mcp-method"


def test_loading_the_rules_does_not_load_the_sdk() -> None:
    """Importing `mcp` takes a second; the bridge starts without it."""
    code = (
        "import sys; from mcpbridge.protocol import sdk; assert 'mcp_types' not in sys.modules; "
        "assert sdk.encode_header_value('a') == 'a'; assert 'mcp' not in sys.modules; assert 'mcp_types' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
