"""The beginning and the end of a text, and between them what is missing, said exactly."""

__all__ = ["ends"]


def ends(text: str, room: int, head: float = 0.6) -> str:
    """A text in at most `room` characters: whole, or its beginning and its end, cut between lines where there are some.

    `head`: the part of the room that the beginning gets. Less than 80 characters show the beginning alone.
    """
    if len(text) <= room:
        return text
    reserve = len(f"\n[… {text.count(chr(10)) + 1:,} lines, {len(text):,} characters …]\n")
    spare = room - reserve
    if spare < 40:
        return text[: max(room - 1, 0)] + "…"[: max(room, 0)]
    start = _to_line_end(text[: int(spare * head)])
    end = _from_line_start(text[-(spare - len(start)) :])
    missing = text[len(start) : len(text) - len(end)]
    count = missing.count("\n") + (0 if missing.endswith("\n") else 1)
    note = f"[… {count:,} {'line' if count == 1 else 'lines'}, {len(missing):,} characters …]"
    return f"{start}{'' if start.endswith(chr(10)) else chr(10)}{note}\n{end}"


def _to_line_end(start: str) -> str:
    at = start.rfind("\n")
    return start[: at + 1] if at >= len(start) // 2 else start


def _from_line_start(end: str) -> str:
    at = end.find("\n")
    return end[at + 1 :] if 0 <= at < len(end) // 2 else end
