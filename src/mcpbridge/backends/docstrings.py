"""What a docstring says of a function and of its parameters."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

__all__ = ["documented"]


def documented(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The description, and those of parameters by name, of a docstring in any usual style."""
    while isinstance(function, partial):
        function = function.func
    text = inspect.getdoc(function)
    if not text or text.startswith(f"{getattr(function, '__name__', '')}("):  # a dataclass without one of its own
        return "", {}
    from docstring_parser import ParseError, parse

    try:
        parsed = parse(text)
    except (ParseError, ValueError, IndexError):
        return text, {}
    parts = [part.strip() for part in (parsed.short_description, parsed.long_description) if part and part.strip()]
    parameters = {one.arg_name.lstrip("*"): " ".join((one.description or "").split()) for one in parsed.params}
    return "\n\n".join(parts), {name: said for name, said in parameters.items() if said}
