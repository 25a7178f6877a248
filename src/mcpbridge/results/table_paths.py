"""Lists of paths by folder: what paths that follow each other share is said once, above them.

    # paths; what is indented lies in the folder above
    /srv/app/
     main.py
     api/
      users.py

Folders end with `/`. The order stays, so a folder may come again.
"""

__all__ = ["PATHS", "paths_form", "paths_restored"]

PATHS = "# paths; what is indented lies in the folder above"
"""The first line."""


def paths_form(text: str) -> str:
    """Paths, one a line, grouped by folder. What is no path is a line of its own."""
    paths = [line.split("/") for line in text.split("\n")]
    lines = [PATHS]
    above: list[list[str]] = []
    for i, path in enumerate(paths):
        *folders, name = path
        depth, at = _shared(above, folders)
        del above[depth:]
        following = paths[i + 1][:-1] if i + 1 < len(paths) else []
        while at < len(folders):
            # As many folders as the next path shares stand in one line; the rest is this path's alone.
            end = at
            while end < len(folders) and end < len(following) and folders[end] == following[end]:
                end += 1
            if end == at or folders[:at] != following[:at]:
                break
            above.append(folders[at:end])
            lines.append(" " * depth + "".join(f"{folder}/" for folder in folders[at:end]))
            depth, at = depth + 1, end
        lines.append(" " * depth + "/".join([*folders[at:], name]))
    return "\n".join(lines)


def paths_restored(text: str) -> str:
    """The paths again, one a line."""
    out: list[str] = []
    above: list[str] = []
    for line in text.split("\n")[1:]:
        name = line.lstrip(" ")
        depth = len(line) - len(name)
        del above[depth:]
        if name.endswith("/"):
            above.append(name)
        else:
            out.append("".join(above) + name)
    return "\n".join(out)


def _shared(above: list[list[str]], folders: list[str]) -> tuple[int, int]:
    """How many of the lines above hold for these folders too, and how many folders they say."""
    at = 0
    for depth, said in enumerate(above):
        if folders[at : at + len(said)] != said:
            return depth, at
        at += len(said)
    return len(above), at
