"""The only module that uses parts of the MCP SDK that may move between releases.

`mcp.shared.inbound` holds the header rules of the modern era (MCP 2026-07-28, transports). Importing it by its name
runs the packages above it, which takes a second and needs a client, a server and their dependencies; the file itself
needs `mcp_types` alone. So it is loaded by its location, at the first use. A contract test compares the names used
here with the installed release.
"""

import importlib.util
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

_NAME = "mcp.shared.inbound"
_ALIAS = "mcpbridge.wire._sdk_inbound"


def encode_header_value(value: str) -> str:
    """The value fit for an HTTP header: as it is, or wrapped as `=?base64?…?=`."""
    return _inbound().encode_header_value(value)


def decode_header_value(value: str | None) -> str | None:
    """The value that was encoded; None for a broken wrapping."""
    return _inbound().decode_header_value(value)


def find_invalid_x_mcp_header(input_schema: object) -> str | None:
    """Why an `x-mcp-header` annotation in this schema is invalid; None when all are valid."""
    return _inbound().find_invalid_x_mcp_header(input_schema)


def x_mcp_header_map(input_schema: object) -> dict[tuple[str, ...], str]:
    """The annotated properties of a valid schema: path to header token."""
    return _inbound().x_mcp_header_map(input_schema)


def mcp_param_headers(header_map: Mapping[tuple[str, ...], str], arguments: Mapping[str, Any]) -> dict[str, str]:
    """The `Mcp-Param-*` headers that mirror these arguments, already encoded."""
    return _inbound().mcp_param_headers(header_map, arguments)


def validate_mcp_param_headers(
    input_schema: object, arguments: Mapping[str, Any], headers: Mapping[str, str]
) -> tuple[int, str, object] | None:
    """Error code, message and data when `Mcp-Param-*` headers and arguments disagree; else None."""
    return _rejection(_inbound().validate_mcp_param_headers(input_schema, arguments, headers))


def classify_inbound_request(
    body: Mapping[str, Any], *, headers: Mapping[str, str] | None = None
) -> tuple[int, str, object] | None:
    """Check a modern request against its envelope and headers (lower-case names).

    Returns error code, message and data of the first rule it breaks; None when it is sound.
    """
    return _rejection(_inbound().classify_inbound_request(body, headers=headers))


def find_duplicated_routing_header(headers: Iterable[tuple[str, str]]) -> str | None:
    """The name of a routing header that came more than once; else None."""
    return _inbound().find_duplicated_routing_header(headers)


def http_status_of(code: int, default: int = 200) -> int:
    """The HTTP status that goes with a JSON-RPC error code."""
    return _inbound().ERROR_CODE_HTTP_STATUS.get(code, default)


def name_key_of(method: str) -> str | None:
    """The member of `params` that `Mcp-Name` mirrors for this method; None for a method without a name."""
    return _inbound().NAME_BEARING_METHODS.get(method)


def _rejection(verdict: Any) -> tuple[int, str, object] | None:
    code = getattr(verdict, "code", None)
    return None if code is None else (code, verdict.message, verdict.data)


@cache
def _inbound() -> Any:
    loaded = sys.modules.get(_NAME)
    if loaded is not None:
        return loaded
    package = importlib.util.find_spec("mcp")  # finds, does not import
    if package is None or not package.submodule_search_locations:
        raise ImportError("the package `mcp` is not installed")
    file = Path(package.submodule_search_locations[0]) / "shared" / "inbound.py"
    spec = importlib.util.spec_from_file_location(_ALIAS, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_ALIAS] = module  # its dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[_ALIAS]
        raise
    return module
