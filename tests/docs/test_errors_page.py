"""The page of errors is what the classes say, and each error names its place on it (issue 19)."""

import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.base.errors import BridgeError

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/errors.md").read_text("utf-8")
SCRIPT = ROOT / "scripts/errors_reference.py"


def module() -> Any:
    spec = spec_from_file_location("errors_reference", SCRIPT)
    assert spec
    assert spec.loader
    loaded = module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


CLASSES = sorted(module().classes(), key=lambda one: one.__name__)


def test_the_page_is_what_the_classes_say() -> None:
    checked = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_every_class_of_errors_in_the_package_is_on_the_page() -> None:
    """Also those that are declared beside the code that raises them."""
    known = {one.__name__ for one in CLASSES}
    sources = [path.read_text("utf-8") for path in (ROOT / "src/mcpbridge").rglob("*.py")]
    classes = [
        found for text in sources for found in re.findall(r"^class ([A-Za-z]\w*)\((\w+)[,)]", text, re.MULTILINE)
    ]
    assert [name for name, base in classes if base in known and name not in known] == []


@pytest.mark.parametrize("one", CLASSES, ids=lambda one: one.__name__)
def test_an_error_has_its_place_with_what_happened_why_and_what_to_do(one: type[BridgeError]) -> None:
    if one is BridgeError:
        assert one.docs_page == "docs/reference/errors.md"
        return
    [part] = re.findall(rf"^### {one.__name__}\n\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert re.match(r"[A-Z]\w* ", part)
    assert re.search(r"^\*\*Why:\*\* \S", part, re.MULTILINE)
    assert re.search(r"^\*\*What to do:\*\* \S", part, re.MULTILINE)
    assert one.docs_page == f"docs/reference/errors.md#{one.__name__.lower()}"
