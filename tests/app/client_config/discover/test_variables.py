"""Variables in the spellings of all clients become ours."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.app.client_config.clients import Dialect
from mcpbridge.app.client_config.discover.variables import Variables, variable_name
from mcpbridge.config.variables import Expansion

FOLDER = Path("/home/ada/.client")


def ours(text: str, dialect: Dialect = "common", project: Path | None = None, **more: bool) -> object:
    return Variables(dialect, FOLDER, project, expands=more.get("expands", True)).of(
        text, is_argument=more.get("is_argument", False)
    )


@pytest.mark.parametrize(
    ("dialect", "written", "expected"),
    [
        ("common", "${X}", "${X}"),
        ("common", "${X:-a b}", "${X:-a b}"),
        ("common", "${env:X}-${env:Y:-d}-${env:Z:e}", "${X}-${Y:-d}-${Z:-e}"),
        ("common", "${userHome}${/}a${pathSeparator}b", "${HOME}/a/b"),
        ("common", "${workspaceFolder}/src", "${PROJECT_ROOT}/src"),
        ("common", "${workspaceFolder:api}", "${PROJECT_ROOT}"),
        ("common", "${file:/run/key}", "${file:/run/key}"),
        ("common", "${file:key}", "${file:/home/ada/.client/key}"),
        ("common", "${input:github-token}", "${GITHUB_TOKEN}"),
        ("common", "${user_config.apiKey}", "${API_KEY}"),
        ("common", "${x:y} ${} ${1} ${a b}", "$${x:y} $${} $${1} $${a b}"),
        ("common", "$X %X% {{X}} {env:X} ${", "$X %X% {{X}} {env:X} $${"),
        ("claude", "${CLAUDE_PROJECT_DIR:-.}/x", "${PROJECT_ROOT}/x"),
        ("gemini", "$X-${Y}-%Z%", "${X}-${Y}-${Z}"),
        ("continue", "${{ secrets.X }} ${{secrets.org/pack/Y}} ${{ inputs.Z }}", "${X} ${Y} ${Z}"),
        ("librechat", "{{LIBRECHAT_USER_ID}}/${X}", "${LIBRECHAT_USER_ID}/${X}"),
        ("opencode", "{env:X} {file:./k} {file:~/k}", "${X} ${file:/home/ada/.client/k} ${file:~/k}"),
        ("codex", "${X} ${not one}", "${X} $${not one}"),
    ],
)
def test_spellings(dialect: Dialect, written: str, expected: str) -> None:
    assert ours(written, dialect) == expected


def test_a_project_that_is_known_is_no_variable() -> None:
    text = "${workspaceFolder}/a ${workspaceFolderBasename}"
    assert ours(text, project=Path("/home/ada/shop")) == "/home/ada/shop/a shop"


def test_what_a_client_passes_on_unexpanded_is_left_to_the_shell_that_gets_it() -> None:
    assert ours("echo ${HOME} ${X:-1}", is_argument=True, expands=False) == "echo $${HOME} $${X:-1}"


def test_defaults_and_words_of_what_a_client_asks_for() -> None:
    variables = Variables("vscode", FOLDER, inputs={"region": ("Region", "eu"), "key": ("The key", "")})
    assert variables.of(["${input:region}", "${input:key}"]) == ["${REGION:-eu}", "${KEY}"]
    assert list(variables.notes) == ["`${KEY}` stands for what the client asked for, or took from elsewhere: The key"]


@given(st.text(alphabet="${}:-/aX_ \\%", max_size=30), st.booleans())
def test_what_is_ours_already_stays(text: str, expands: bool) -> None:
    once = ours(text, expands=expands)
    assert isinstance(once, str)
    assert ours(once) == once


@settings(max_examples=300)
@given(st.text(alphabet="${}aX:-", max_size=30))
def test_text_that_no_client_expands_comes_out_as_it_was(text: str) -> None:
    """In `args` of a client without variables all of it is text."""
    written = ours(text, is_argument=True, expands=False)
    expansion = Expansion({}, FOLDER)
    assert expansion.of(written) == text
    assert not expansion.missing


@given(st.text(max_size=40))
def test_a_name_for_a_variable_can_be_one(text: str) -> None:
    name = variable_name(text)
    assert name.isidentifier()
    assert variable_name(name) == name
