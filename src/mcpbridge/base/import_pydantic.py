"""Import pydantic without two modules that it needs next to nothing of.

`importlib.metadata` costs 1.5 MiB and a tenth of the start. pydantic asks `entry_points` once for its plugins, and
`version` when an e-mail address is checked. `platform`, 0.3 MiB, is asked by `uuid` for the name of the system. While
pydantic is imported, it finds substitutes with these functions. They load the real module when it has something to do.
"""

import importlib
import os
import sys
from types import ModuleType
from typing import Any


def import_pydantic() -> None:
    """Import pydantic, for a process that starts: other threads would meet the substitutes."""
    if "pydantic" in sys.modules:
        return
    substitutes = [substitute() for substitute in (_Metadata, _Platform) if substitute.stands_for not in sys.modules]
    sys.modules.update({substitute.stands_for: substitute for substitute in substitutes})
    try:
        from pydantic import TypeAdapter

        TypeAdapter(int)  # looks for plugins
    finally:
        for substitute in substitutes:
            _remove(substitute.stands_for)


class _Substitute(ModuleType):
    """Has some functions of a module; whoever wants more gets the real one."""

    stands_for = ""

    def __init__(self) -> None:
        super().__init__(self.stands_for)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system asks whether this is a package
            raise AttributeError(name)
        return getattr(_real(self.stands_for), name)


class _Metadata(_Substitute):
    stands_for = "importlib.metadata"

    @classmethod
    def entry_points(cls, **params: Any) -> Any:
        """As of `importlib.metadata`."""
        if params.keys() == {"group"} and not _may_have(params["group"]):
            return ()
        return _real(cls.stands_for).entry_points(**params)

    @classmethod
    def version(cls, distribution_name: str) -> str:
        """As of `importlib.metadata`."""
        return _real(cls.stands_for).version(distribution_name)


class _Platform(_Substitute):
    stands_for = "platform"

    @classmethod
    def system(cls) -> str:
        """As of `platform`."""
        return os.uname().sysname if sys.platform == "linux" else _real(cls.stands_for).system()


def _real(name: str) -> ModuleType:
    _remove(name)
    return importlib.import_module(name)


def _remove(name: str) -> None:
    if isinstance(sys.modules.get(name), _Substitute):
        del sys.modules[name]


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
