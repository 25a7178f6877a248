"""A yes does not depend on which variables there are: what misses one is shown and covered as it is written."""

from pathlib import Path

from mcpbridge.app.cli.config.config_path import describe_what_runs
from mcpbridge.config.load import read
from mcpbridge.config.trust.content import whole_content

FILE = """
[servers.a]
command = "sh"
args = ["srv.sh", "id > /tmp/x; echo ${EDITOR_NAME}"]
env = { A = "${AWS_SECRET_ACCESS_KEY}" }
inherit_env = ["GITHUB_TOKEN"]

[servers.b]
url = "https://${HOST_NAME}/mcp"
headers = { Authorization = "Bearer ${B_TOKEN}" }

[tools.t]
description = "t"
command = ["sh", "-c", "echo ${T_WORD}"]
"""


def written(folder: Path) -> Path:
    (folder / "srv.sh").write_text("echo")
    file = folder / "servers.toml"
    file.write_text(FILE)
    return file


def test_all_of_it_is_shown_while_variables_are_missing(tmp_path: Path) -> None:
    shown = describe_what_runs(read(written(tmp_path), {}))
    for text in (
        "id > /tmp/x; echo ${EDITOR_NAME}",
        "A='${AWS_SECRET_ACCESS_KEY}'",
        "with the variables GITHUB_TOKEN of the environment",
        "connects to https://${HOST_NAME}/mcp",
        "Bearer ${B_TOKEN}",
        "echo ${T_WORD}",
    ):
        assert text in shown, shown
    [reads] = [line for line in shown.splitlines() if line.strip().startswith("reads ")]
    for name in ("EDITOR_NAME", "AWS_SECRET_ACCESS_KEY", "HOST_NAME", "B_TOKEN", "T_WORD"):
        assert f"${{{name}}}" in reads


def test_the_same_files_are_covered_with_and_without_the_variables(tmp_path: Path) -> None:
    file = written(tmp_path)
    environ: dict[str, str] = dict.fromkeys(
        ("EDITOR_NAME", "AWS_SECRET_ACCESS_KEY", "HOST_NAME", "B_TOKEN", "T_WORD"), "x"
    )
    without, with_them = (read(file, one) for one in ({}, environ))
    assert str(tmp_path / "srv.sh") in whole_content(without.judged, without.content)
    assert whole_content(without.judged, without.content) == whole_content(with_them.judged, with_them.content)


def test_a_server_whose_variable_is_missing_stays_off(tmp_path: Path) -> None:
    loaded = read(written(tmp_path), {})
    assert loaded.settings.servers["a"].unavailable
    assert loaded.settings.servers["b"].url == "http://unavailable.invalid"
    assert loaded.settings.servers["a"].args == []
