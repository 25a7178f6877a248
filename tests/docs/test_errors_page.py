"""The page of errors is what the classes say, and each error names its place on it (issue 19)."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mcpbridge.base import errors
from mcpbridge.base.errors import BridgeError

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/errors.md").read_text("utf-8")
CLASSES = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, BridgeError)]


def test_the_page_is_what_the_classes_say() -> None:
    script = ROOT / "scripts/errors_reference.py"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("one", CLASSES, ids=lambda one: one.__name__)
def test_an_error_has_its_place_with_what_happened_and_what_to_do(one: type[BridgeError]) -> None:
    if one is not BridgeError:
        [part] = re.findall(rf"^### {one.__name__}\n\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
        assert re.search(r"\*\*What to do:\*\* \S", part)
        assert one.docs_page == f"reference/errors.md#{one.__name__.lower()}"
    else:
        assert one.docs_page == "reference/errors.md"
