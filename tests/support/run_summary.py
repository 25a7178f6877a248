"""What tests want to be read at the end of a run, also of one whose tests run in several processes."""

import pytest

__all__ = ["WORDS"]

WORDS = pytest.StashKey[dict[str, str]]()
"""By title; in the stash of the configuration, which `conftest.py` fills and shows."""
