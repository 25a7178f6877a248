"""Commands in the test process, where no bridge has to run: with an environment of nobody else's."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mcpbridge.app.cli.commands import run
from support.harness import Finished
from support.json_output import documents

Run = Callable[..., Finished]


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command to its end, where there is no configuration and no bridge runs."""
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
        (tmp_path / name).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("MCPBRIDGE_CONFIG", raising=False)

    def run_command(*words: str) -> Finished:
        capsys.readouterr()
        code = run(words)
        said = capsys.readouterr()
        documents(words, said.out, said.err)
        return Finished(code, said.out, said.err)

    return run_command
