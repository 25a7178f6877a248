"""pydantic is imported without `importlib.metadata` and `platform`, and nobody can see a difference."""

import os
import platform
import subprocess
import sys
from pathlib import Path

_BEGIN = "import sys; from mcpbridge.base.import_pydantic import import_pydantic; import_pydantic();"
_PLUGIN = """
seen = []


class Plugin:
    def new_schema_validator(self, schema, schema_type, schema_type_path, schema_kind, config, plugin_settings):
        seen.append(schema_type)
        return None, None, None


plugin = Plugin()
"""


def _run(code: str, *folders: Path) -> str:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    done = subprocess.run([sys.executable, "-c", _BEGIN + code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_what_pydantic_needs_in_rare_cases_only_is_not_loaded() -> None:
    code = "import pydantic, uuid; print({'importlib.metadata', 'platform', 'pydantic.networks'} & {*sys.modules})"
    assert _run(code) == "set()"


def test_whoever_imports_it_later_gets_the_real_one() -> None:
    assert _run("import importlib.metadata as m; print(m.distribution('pydantic').name, m.__file__ != '')") == (
        "pydantic True"
    )
    code = "import pydantic.networks as n; print(n.version('pydantic') == __import__('pydantic').VERSION)"
    assert _run(code) == "True"
    code = "import platform, uuid; print(platform.system() == uuid.platform.system(), uuid.platform.python_version())"
    assert _run(code) == f"True {platform.python_version()}"


def test_a_plugin_of_pydantic_that_is_installed_is_used(tmp_path: Path) -> None:
    """As without us: what a user's own tools bring along sees all models of the process."""
    (tmp_path / "seeing.py").write_text(_PLUGIN)
    info = tmp_path / "seeing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: seeing\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pydantic]\nseeing = seeing:plugin\n")
    code = "from pydantic import TypeAdapter; import seeing; TypeAdapter(bytes); print(bytes in seeing.seen)"
    assert _run(code, tmp_path) == "True"


def test_folders_and_archives_on_the_path_that_cannot_be_read_are_no_trouble(tmp_path: Path) -> None:
    archive = tmp_path / "archive.zip"
    archive.write_bytes(b"PK\x05\x06" + bytes(18))
    assert (
        _run("import pydantic; print(pydantic.TypeAdapter(int).validate_python('1'))", archive, tmp_path / "no") == "1"
    )
