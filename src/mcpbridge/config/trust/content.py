"""What a decision about a configuration covers: the texts that it was read from, and the code that it brings along."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from mcpbridge.config.schema import Settings
from mcpbridge.config.trust.own_code import python_objects

Content = Mapping[str, str]
"""By the path of each file that counts, the SHA-256 of its bytes."""


def place_of(path: str | os.PathLike[str]) -> str:
    """By what a decision names a configuration: its path from the root on, links resolved."""
    return os.path.realpath(path)


def whole_content(settings: Settings, texts: Content) -> Content:
    """What a decision covers: the texts, and all code of its repository that a configuration names."""
    from mcpbridge.config.trust.named_files import named_files

    return {**named_files(settings), **code_content(settings, texts)}


def code_content(settings: Settings, texts: Content) -> Content:
    """The texts that a configuration was read from, and the Python files that the bridge itself loads."""
    modules = [name.partition(":")[0] for name in python_objects(settings)]
    if not modules:
        return {**texts}
    from mcpbridge.config.trust.python_imports import python_files

    files = python_files(Path(settings.source or ".").parent, modules)
    return {**texts, **{place_of(path): digest(data) for path, data in files.items()}}


def digest(data: bytes) -> str:
    """By which the content of a file is recognised."""
    return hashlib.sha256(data).hexdigest()
