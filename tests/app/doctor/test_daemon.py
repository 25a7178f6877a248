"""What the doctor finds in what a running bridge says of its servers."""

from pathlib import Path

import pytest

from mcpbridge.app.doctor.config_file import Source
from mcpbridge.app.doctor.daemon import about_running_servers
from mcpbridge.upstream.settings import ServerSettings

SOURCE = Source(Path("servers.toml"), "[servers.up]\ncommand = 'x'\n")


@pytest.mark.parametrize(("count", "words"), [(0, None), (1, "1 of its questions"), (7, "7 of its questions")])
def test_questions_that_were_refused_are_a_finding_that_names_the_settings(count: int, words: str | None) -> None:
    running = {"servers": [{"name": "up", "state": "ready", "questions_refused": count}]}
    found = list(about_running_servers(running, {"up": ServerSettings(command="x")}, SOURCE, {}))
    assert [one.code for one in found] == (["questions-refused"] if words else [])
    for one in found:
        assert words
        assert one.what.startswith(words)
        assert "servers.up.question_rate" in one.fix
        assert one.where.startswith("servers.toml:1")
