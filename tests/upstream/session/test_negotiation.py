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
