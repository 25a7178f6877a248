"""The beginning and the end of a text, and between them what is missing, said exactly."""

from mcpbridge.results.text_facts import many

__all__ = ["ends"]


def ends(text: str, room: int, head: float = 0.6) -> str:
    """A text in at most `room` characters: whole, or its beginning and its end, cut between lines where there are some.

    `head`: the part of the room that the beginning gets. Less than 80 characters show the beginning alone.
    """
    if len(text) <= room:
        return text
    reserve = len(f"\n[… {text.count(chr(10)) + 1} lines, {len(text)} characters …]\n")
    spare = room - reserve
    if spare < 40:
        return text[: max(room - 1, 0)] + "…"[: max(room, 0)]
    start = _to_line_end(text[: int(spare * head)])
    end = _from_line_start(text[-(spare - len(start)) :])
    missing = text[len(start) : len(text) - len(end)]
    whole = _whole_lines(missing, is_from_start=start[-1:] in ("", "\n"))
    counted = f"{many(whole, 'line')}, " if whole else ""
    note = f"[… {counted}{len(missing)} characters …]"
    return f"{start}{'' if start.endswith(chr(10)) else chr(10)}{note}\n{end}"


def _whole_lines(missing: str, *, is_from_start: bool) -> int:
    """How many lines are missing from their start to their end. `is_from_start`: the first is, as far as that goes."""
    return max(missing.count("\n") - (not is_from_start), 0)


def _to_line_end(start: str) -> str:
    at = start.rfind("\n")
    return start[: at + 1] if at >= len(start) // 2 else start


def _from_line_start(end: str) -> str:
    at = end.find("\n")
    return end[at + 1 :] if 0 <= at < len(end) // 2 else end
