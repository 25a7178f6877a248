"""The protocol revisions and what sets them apart; pure."""

from typing import Final

__all__ = ["LATEST_LEGACY", "LATEST_MODERN", "LEGACY", "MODERN", "REVISIONS", "is_modern", "negotiate"]

LEGACY: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions that open with the `initialize` handshake, oldest first."""

MODERN: Final = ("2026-07-28",)
"""Revisions whose every request carries the `_meta` envelope, oldest first."""

REVISIONS: Final = (*LEGACY, *MODERN)
"""Every released revision that the bridge speaks, oldest first."""

LATEST_LEGACY: Final = LEGACY[-1]
LATEST_MODERN: Final = MODERN[-1]

BATCHING: Final = "2025-03-26"
"""The one revision that has JSON-RPC batches."""


def is_modern(version: str) -> bool:
    """Whether this revision has no handshake. Unknown ones sort by their date."""
    return version in MODERN or (version not in LEGACY and version > LATEST_MODERN)


def negotiate(offered: str) -> str:
    """The revision to answer `initialize` with: the client's own where we speak it, else our newest of that era."""
    return offered if offered in LEGACY else LATEST_LEGACY
