"""Which files a job left in its work folder."""

import os
import stat

__all__ = ["files_left"]

MOST = 1000
"""Files that are told, and directories that are looked into."""


def files_left(folder: str) -> dict[str, int]:
    """Bytes of each regular file, by its path within the folder. Links are not followed."""
    found: dict[str, int] = {}
    waiting = [""]
    for _ in range(MOST):
        if not waiting or len(found) >= MOST:
            break
        inside = waiting.pop()
        try:
            with os.scandir(os.path.join(folder, inside)) as entries:  # noqa: PTH118 - text
                for entry in entries:
                    path, mode = f"{inside}{entry.name}", entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(mode.st_mode):
                        waiting.append(f"{path}/")
                    elif stat.S_ISREG(mode.st_mode) and len(found) < MOST:
                        found[path.encode("utf-8", "replace").decode()] = mode.st_size
        except OSError:
            continue
    return found
