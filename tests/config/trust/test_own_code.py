"""Files that the tools and servers of a configuration are made of: whoever writes them runs what they like."""

import os
from pathlib import Path

import pytest

from mcpbridge.config.load import read
from mcpbridge.config.trust.own_code import OwnCode
from mcpbridge.library.bridge import Bridge

TEXT = """
[servers.mine]
command = "python3"
args = ["serve.py"]
cwd = "srv"
[tools.fn]
function = "mod.inner:f"
[tools.lint]
command = ["./run.sh", "{path}"]
[tools.pets]
openapi = "docs/api.json"
[[hooks]]
event = "tool_call.before"
command = ["sh", "hook.sh"]
"""


def laid_out(folder: Path) -> Path:
    for name in ("srv/serve.py", "run.sh", "hook.sh", "docs/api.json", "pkg/__init__.py", "data/x.py", "mod.py"):
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("{}")
    (folder / "servers.toml").write_text(TEXT)
    return folder / "servers.toml"


@pytest.mark.parametrize(
    ("path", "is_code"),
    [
        *[(one, True) for one in ("srv/serve.py", "run.sh", "hook.sh", "docs/api.json", "mod.py", "MOD.py")],
        *[(one, True) for one in ("new.py", "mod/inner.py", "pkg/deep/x.py", "__pycache__/mod.cpython-311.pyc")],
        *[(one, False) for one in ("data/x.py", "notes.txt", "pkg/data.csv", "srv/other.py", "docs/api.md")],
    ],
)
def test_named_files_and_code_beside_the_configuration_are_known(tmp_path: Path, path: str, is_code: bool) -> None:
    settings = read(laid_out(tmp_path), {}).settings
    top = Path(os.path.realpath(tmp_path)).parts
    assert OwnCode(settings).holds((*top, *path.split("/"))) is is_code
    assert not OwnCode(settings).holds(("/", *path.split("/")))


def test_where_no_code_is_named_code_is_code_of_others(tmp_path: Path) -> None:
    (tmp_path / "servers.toml").write_text('[tools.x]\nendpoint = "http://127.0.0.1:9/"\n')
    settings = read(tmp_path / "servers.toml", {}).settings
    assert not OwnCode(settings).holds((*Path(os.path.realpath(tmp_path)).parts, "mod.py"))


async def test_file_write_changes_no_code_of_the_bridge_and_file_read_shows_it(tmp_path: Path) -> None:
    (tmp_path / "mod.py").write_text("def f() -> str:\n    return 'mine'\n")
    (tmp_path / "servers.toml").write_text(
        '[builtin]\nenable = ["file-read", "file-write"]\n[builtin.files]\nroots = ["."]\n'
        '[builtin.tool.file-write]\npermission = "allow"\n[tools.fn]\nfunction = "mod:f"\n[store]\npath = "s.db"\n'
    )
    async with Bridge(read(tmp_path / "servers.toml", {}).settings) as bridge:
        for path, mode in (("mod.py", "overwrite"), ("new.py", "create")):
            call = {"path": path, "content": "import os", "mode": mode}
            refused = await bridge.request("tools/call", {"name": "file-write", "arguments": call})
            assert "made of it" in refused["content"][0]["text"]
        shown = await bridge.request("tools/call", {"name": "file-read", "arguments": {"path": "mod.py"}})
        assert "mine" in shown["content"][0]["text"]
    assert "mine" in (tmp_path / "mod.py").read_text()
    assert not (tmp_path / "new.py").exists()
