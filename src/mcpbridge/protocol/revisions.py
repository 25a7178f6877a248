"""The protocol revisions and what sets them apart; pure.

A revision is named by its date, so one is older than another when its name sorts before.
"""

from typing import Final

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

FIRST_WITH_ANNOTATIONS: Final = "2025-03-26"
"""Brought tool annotations, audio content and the `completions` capability."""

FIRST_WITH_STRUCTURE: Final = "2025-06-18"
"""Brought structured results and their schemas, links to resources, and titles."""

FIRST_WITH_ICONS: Final = "2025-11-25"
"""Brought icons, and `execution` of tools."""


def is_modern(version: str) -> bool:
    """Whether this revision has no handshake. Unknown ones sort by their date."""
    return version in MODERN or (version not in LEGACY and version > LATEST_MODERN)


def negotiate(offered: str) -> str:
    """The revision to answer `initialize` with: the client's own where we speak it, else our newest of that era."""
    return offered if offered in LEGACY else LATEST_LEGACY
