"""A yes covers what a command runs without naming it (issue 22): each way around it that was found, with the file."""

import os
from pathlib import Path

import pytest

from mcpbridge.config.load import read
from mcpbridge.config.trust.named_files import named_files

FILES = {
    ".env": "NODE_OPTIONS=--require=./hook.js",
    ".npmrc": "registry=https://evil.example",
    ".profile": "x",
    "Makefile": "x:",
    "Dockerfile": "FROM x",
    "compose.yaml": "x: 1",
    "justfile": "x:",
    "package.json": '{"scripts":{"start":"node index.js"}}',
    "pyproject.toml": '[project]\nname="x"\n[project.scripts]\nserve = "app.cli:main"\n',
    "uv.lock": "x",
    "index.js": "x",
    "hook.js": "x",
    "main.go": "x",
    "go.mod": "module x",
    "requirements.txt": "mcp",
    "script.py": "import helper",
    "helper.py": "x",
    "json.py": "the standard library has one, too",
    "data.json": "{}",
    "conf/settings": "x",
    "lib/mod.js": "x",
    "lib/mod.py": "x",
    "src/app/__init__.py": "",
    "src/app/cli.py": "x",
    "pkg/__init__.py": "",
    "pkg/__main__.py": "import helper",
    "local/package.json": '{"bin":"./dist/x.js"}',
    "local/dist/x.js": "x",
    "local/README.md": "x",
    "docs/guide.md": "x",
    "docs/package.json": "{}",
    "tools/tool": "#!/bin/sh",
    "tools/sitecustomize.py": "x",
    "node_modules/.bin/files": "x",
    "node_modules/@team/files/package.json": "{}",
    "sub/Makefile": "x:",
    "sub/server.py": "x",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    top = tmp_path / "repository"
    (top / ".git").mkdir(parents=True)
    for name, text in FILES.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    (top / "linked").symlink_to(top / "lib")
    return top


def covered(top: Path, command: str, **env: str) -> set[str]:
    program, *args = command.split(" ")
    table = f"[servers.a]\ncommand = {program!r}\nargs = {[one.replace('~', ' ') for one in args]!r}\n"
    table += "".join(f"env.{name} = {value!r}\n" for name, value in env.items())
    (top / "servers.toml").write_text(table)
    found = named_files(read(top / "servers.toml", {}).settings)
    return {os.path.relpath(path, os.path.realpath(top)) for path in found}


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("make x", "Makefile"),
        ("make -C sub x", "sub/Makefile"),
        ("just x", "justfile .env"),
        ("npm start", "package.json .npmrc"),
        ("sh -c cd~lib~&&~npm~start", "package.json .npmrc"),
        ("docker compose run x", "compose.yaml Dockerfile"),
        ("docker build ./local", "local/package.json"),
        ("npx -y @team/files", ".npmrc node_modules/.bin/files node_modules/@team/files/package.json"),
        ("npx -y files@1", "node_modules/.bin/files"),
        ("npx -y ./local", "local/package.json local/dist/x.js"),
        ("uvx --from ./pkg x", "pkg/__main__.py pkg/__init__.py"),
        ("uv run serve", "pyproject.toml uv.lock src/app/cli.py"),
        ("uv run --directory sub server.py", "sub/server.py"),
        ("uv run script.py", "script.py helper.py json.py pyproject.toml"),
        ("uv run --with-requirements requirements.txt x", "requirements.txt"),
        ("pip install -rrequirements.txt", "requirements.txt"),
        ("python -m pkg", "pkg/__init__.py pkg/__main__.py helper.py json.py"),
        ("python -mpkg", "pkg/__main__.py"),
        ("python -m http.server", "json.py"),
        ("python -c import~helper", "helper.py json.py"),
        ("python pkg", "pkg/__main__.py"),
        ("node .", "package.json index.js"),
        ("node index", "index.js"),
        ("node ./lib/mod", "lib/mod.js"),
        ("node linked/mod.js", "lib/mod.js"),
        ("node -r ./hook x.js", "hook.js"),
        ("node --require=./hook x.js", "hook.js"),
        ("node --env-file=.env x.js", ".env"),
        ("env -C lib node mod.js", "lib/mod.js"),
        ("sh -c .~./.env;~x", ".env"),
        ("bash --rcfile .profile", ".profile"),
        ("x -c@conf/settings", "conf/settings"),
        ("go run .", "main.go go.mod"),
    ],
)
def test_what_runs_is_covered(repository: Path, command: str, files: str) -> None:
    wanted = set(files.split()) - {"main.go"}  # code of the whole repository is named to the person, and not compared
    assert wanted <= covered(repository, command)


@pytest.mark.parametrize(
    ("env", "files"),
    [
        ({"NODE_OPTIONS": "--require ./hook.js"}, "hook.js"),
        ({"NODE_OPTIONS": "--require=./hook"}, "hook.js"),
        ({"BASH_ENV": ".env"}, ".env"),
        ({"BASH_ENV": "conf/settings"}, "conf/settings"),
        ({"PATH": "./tools:/usr/bin"}, "tools/tool"),
        ({"PYTHONPATH": "tools"}, "tools/sitecustomize.py"),
        ({"PYTHONSTARTUP": "script.py"}, "script.py helper.py"),
    ],
)
def test_what_a_variable_has_run_is_covered(repository: Path, env: dict[str, str], files: str) -> None:
    assert set(files.split()) <= covered(repository, "tool x", **env)


def test_a_container_that_is_only_run_has_no_project_files(repository: Path) -> None:
    assert covered(repository, "docker run -i --rm image") == set()


@pytest.mark.parametrize(
    "command", ["npx -y @modelcontextprotocol/server-filesystem docs", "server --root ./docs", "node /opt/x.js docs"]
)
def test_data_is_not_covered(repository: Path, command: str) -> None:
    """Servers change it: else each change of theirs would ask again."""
    (repository / "docs/notes.js").write_text("x")
    assert not [one for one in covered(repository, command) if one in ("docs/guide.md", "docs/notes.js")]
