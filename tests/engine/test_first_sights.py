"""What was seen of servers first is kept on disk, as far as the disk takes it (issue 18)."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from mcpbridge.engine.pins.first_sight import Sight, SightStore


def _refuse(*_: Any, **__: Any) -> Any:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def test_a_disk_that_takes_nothing_any_more_costs_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder was made before; on such a disk, nothing can be removed either. Root may write wherever a test is."""
    store = SightStore(tmp_path)
    store.follow(str(tmp_path / "servers.toml"))
    store.keep(Sight("before"))
    with monkeypatch.context() as full, capture_logs() as logs:
        full.setattr("os.open", _refuse)
        full.setattr(Path, "unlink", _refuse)
        store.keep(Sight("meanwhile"))
        store.keep(Sight("again"))
    assert [line["event"] for line in logs] == ["what servers show cannot be stored"]
    assert "Read-only" in logs[0]["reason"]
    store.keep(Sight("after"))
    assert store.sight("after").server == "after"
