"""`doctor --fix`: one change of servers.toml, with everything else left as it is. Pure."""

from difflib import unified_diff
from typing import Any

from mcpbridge.doctor.finding import Edit

__all__ = ["applied", "difference"]


def applied(text: str, edit: Edit) -> str:
    """The text of a servers.toml with the change made; the same text where it has been made, or cannot be."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document: Any = tomlkit.parse(text)
        server: Any = document["servers"][edit.server]
        _change(server, edit)
        return tomlkit.dumps(document)
    except (TOMLKitError, LookupError, TypeError, AttributeError, ValueError):
        return text


def difference(before: str, after: str, file: str) -> str:
    """The lines that change, as `diff -U0` shows them: others may hold what nobody should see."""
    lines = unified_diff(before.splitlines(), after.splitlines(), file, file, n=0, lineterm="")
    return "\n".join(lines)


def _change(server: Any, edit: Edit) -> None:
    if edit.key:
        *tables, last = edit.key
        for name in tables:
            if name not in server:
                import tomlkit

                server[name] = tomlkit.inline_table()
            server = server[name]
        server[last] = edit.value
        return
    args = server.get("args", [])
    words = list(args)
    if edit.instead and words[edit.at] != edit.instead:
        raise ValueError("the arguments are others by now")
    words[edit.at : edit.at + bool(edit.instead)] = edit.args
    if "args" not in server or "\n" not in args.as_string():
        server["args"] = _array(words, getattr(args, "trivia", None))
        return
    if edit.instead:
        del args[edit.at]
    for number, word in enumerate(edit.args):  # one by one, so that comments between them stay where they are
        args.insert(edit.at + number, word)


def _array(words: list[str], trivia: Any) -> Any:
    """A list on one line, with what stood around the old one."""
    import tomlkit

    array: Any = tomlkit.array()
    array.extend([str(word) for word in words])
    if trivia is not None:
        array.trivia.comment, array.trivia.comment_ws = trivia.comment, trivia.comment_ws
        array.trivia.trail = trivia.trail
    return array
