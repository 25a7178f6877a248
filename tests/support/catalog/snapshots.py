"""One snapshot of some offers, for tests that do not build several."""

from collections.abc import Mapping, Sequence
from typing import Any

from mcpbridge.catalog.snapshot import Snapshot
from mcpbridge.catalog.snapshot_builder import SnapshotBuilder
from mcpbridge.catalog.upstream_filter import Offer
from mcpbridge.core.source_settings import OfferSettings


def build_snapshot(offers: Sequence[Offer], settings: Mapping[str, OfferSettings], **options: Any) -> Snapshot:
    """The catalog of these offers; `options` are those of `SnapshotBuilder`."""
    return SnapshotBuilder(**options).build(offers, settings)
