"""What an answer to `server/discover` tells."""

import json

import pytest
from msgspec import Raw

from mcpbridge.base.errors import BridgeError, UpstreamAnswered, UpstreamGone, UpstreamHttpError, UpstreamTimeout
from mcpbridge.upstream.session.negotiation import Discovered, Unsupported, Verdict, judge


def discovered(*versions: str) -> Raw:
    return Raw(
        json.dumps({"supportedVersions": versions, "capabilities": {"tools": {}}, "instructions": "hi"}).encode()
    )


def answered(code: int, data: object = None) -> UpstreamAnswered:
    return UpstreamAnswered("up", json.dumps({"code": code, "message": "no", "data": data}).encode())


def test_a_shared_modern_revision_is_taken() -> None:
    assert judge(discovered("2026-07-28", "2025-11-25")) == Discovered("2026-07-28", {"tools": {}}, "hi", {})


def test_only_legacy_revisions_mean_legacy() -> None:
    """A DiscoverResult may list only legacy versions: there is nothing to speak but the handshake."""
    assert judge(discovered("2025-11-25")) is Verdict.LEGACY


def test_only_unknown_revisions_mean_that_nothing_fits() -> None:
    assert judge(discovered("2031-01-01")) == Unsupported(["2031-01-01"])


@pytest.mark.parametrize("code", [-32601, -32602, -32600, -32000, 1])
def test_an_ordinary_error_means_legacy(code: int) -> None:
    assert judge(answered(code)) is Verdict.LEGACY


@pytest.mark.parametrize("code", [-32020, -32021, -32022])
def test_a_modern_error_means_modern(code: int) -> None:
    assert isinstance(judge(answered(code)), Discovered)


def test_a_modern_error_that_names_other_revisions_is_believed() -> None:
    assert judge(answered(-32022, {"supported": ["2031-01-01"]})) == Unsupported(["2031-01-01"])
    assert judge(answered(-32022, {"supported": ["2025-11-25"]})) is Verdict.LEGACY


@pytest.mark.parametrize("status", [400, 404, 405, 406, 415])
def test_a_refused_post_means_legacy(status: int) -> None:
    assert judge(UpstreamHttpError("up", status, "no")) is Verdict.LEGACY


@pytest.mark.parametrize(
    "error",
    [
        UpstreamHttpError("up", 401, "no"),
        UpstreamHttpError("up", 503, "no"),
        UpstreamHttpError("up", 429, "no"),
        UpstreamGone("up", "exit code 1"),
        UpstreamTimeout("up", 2.5),
    ],
    ids=str,
)
def test_trouble_tells_nothing_about_the_era(error: BridgeError) -> None:
    assert judge(error) is Verdict.UNKNOWN


@pytest.mark.parametrize("result", [b"{}", b"[]", b"1", b'{"supportedVersions":"x"}'])
def test_a_result_that_is_no_discovery_means_legacy(result: bytes) -> None:
    assert judge(Raw(result)) is Verdict.LEGACY


MODERN, LEGACY, UNKNOWN = "2026-07-28", "2025-11-25", "2031-01-01"


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ((MODERN,), "modern"),
        ((UNKNOWN, MODERN), "modern"),
        ((LEGACY, MODERN, UNKNOWN), "modern"),
        ((LEGACY, UNKNOWN), "legacy"),
        ((UNKNOWN, LEGACY), "legacy"),
        (("2024-11-05", LEGACY), "legacy"),
        ((UNKNOWN,), "none"),
        ((UNKNOWN, "1999-01-01"), "none"),
    ],
)
@pytest.mark.parametrize("code", [0, -32022])
def test_one_revision_that_both_know_is_enough(versions: tuple[str, ...], expected: str, code: int) -> None:
    """Whether the server answers with what it has, or with an error that names it (MCP 2026-07-28, Lifecycle)."""
    found = judge(discovered(*versions) if not code else answered(code, {"supported": list(versions)}))
    if expected == "modern":
        assert isinstance(found, Discovered)
        assert found.version == MODERN
    elif expected == "legacy":
        assert found is Verdict.LEGACY
    else:
        assert found == Unsupported(list(versions))


@pytest.mark.parametrize("data", [None, {}, {"supported": []}, {"supported": 5}, "text", [1]])
def test_a_modern_error_that_names_no_revision_means_the_one_that_was_asked_with(data: object) -> None:
    assert judge(answered(-32022, data)) == Discovered(MODERN, {}, "", {})


@pytest.mark.parametrize("info", [None, "text", 5, [], True])
def test_what_a_server_says_of_itself_is_an_object_or_nothing(info: object) -> None:
    told = {"supportedVersions": [MODERN], "_meta": {"io.modelcontextprotocol/serverInfo": info}}
    found = judge(Raw(json.dumps(told).encode()))
    assert isinstance(found, Discovered)
    assert found.server_info == {}
    told["_meta"] = {"io.modelcontextprotocol/serverInfo": {"name": "x"}}
    found = judge(Raw(json.dumps(told).encode()))
    assert isinstance(found, Discovered)
    assert found.server_info == {"name": "x"}


@pytest.mark.parametrize("status", range(400, 600))
def test_only_a_refusal_that_is_about_the_request_itself_means_legacy(status: int) -> None:
    """Not one about who asks, how often, or when; nor a fault of the server."""
    about_others = {401, 403, 408, 425, 429}
    expected = Verdict.LEGACY if status < 500 and status not in about_others else Verdict.UNKNOWN
    assert judge(UpstreamHttpError("up", status, "no")) is expected
