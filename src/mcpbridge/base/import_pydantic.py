"""Import pydantic without `importlib.metadata`, which costs 2 MiB and a tenth of the start, for two functions.

pydantic asks `entry_points` once for its plugins, and `version` when an e-mail address is checked. While pydantic is
imported, it finds a substitute with these two functions. They load the real module when it has something to do.
"""

import importlib
import os
import sys
from types import ModuleType
from typing import Any

_NAME = "importlib.metadata"


def import_pydantic() -> None:
    """Import pydantic, for a process that starts: other threads would meet the substitute."""
    if _NAME in sys.modules or "pydantic" in sys.modules:
        return
    sys.modules[_NAME] = _Substitute(_NAME)
    try:
        from pydantic import AnyUrl, TypeAdapter

        TypeAdapter(AnyUrl)  # looks for plugins
    finally:
        if isinstance(sys.modules.get(_NAME), _Substitute):
            del sys.modules[_NAME]


class _Substitute(ModuleType):
    """Has `entry_points` and `version`; whoever wants more gets the real module."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system asks whether this is a package
            raise AttributeError(name)
        return getattr(_real(), name)

    @staticmethod
    def entry_points(**params: Any) -> Any:
        """As of `importlib.metadata`."""
        if params.keys() == {"group"} and not _may_have(params["group"]):
            return ()
        return _real().entry_points(**params)

    @staticmethod
    def version(distribution_name: str) -> str:
        """As of `importlib.metadata`."""
        return _real().version(distribution_name)


def _real() -> ModuleType:
    if isinstance(sys.modules.get(_NAME), _Substitute):
        del sys.modules[_NAME]
    return importlib.import_module(_NAME)


def _may_have(group: str) -> bool:
    """Whether a package that is installed may have entry points of this group; True where that is not known."""
    wanted = f"[{group}]".encode()
    for place in sys.path:
        try:
            with os.scandir(place or ".") as entries:
                folders = [entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info", ".egg"))]
        except FileNotFoundError:
            continue
        except OSError:  # an archive, perhaps
            return True
        for folder in folders:
            if folder.endswith(".egg"):
                return True
            try:
                with open(os.path.join(folder, "entry_points.txt"), "rb") as file:  # noqa: PTH118, PTH123 - `pathlib` costs
                    if wanted in file.read().replace(b" ", b""):
                        return True
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                return True
    return False
