"""Suggestions for a misspelled name: which known names are close to it.

This serves every "did you mean": servers, tools, configuration keys, commands. How the suggestion is worded is left to
the error that makes it.
"""

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], *, limit: int = 3) -> list[str]:
    """The names that `name` was probably meant to be, best first; empty when nothing is close.

    Case decides only between names that are equally near without it.
    """
    from difflib import SequenceMatcher, get_close_matches  # a bridge in which all is well needs none

    forms: dict[str, list[str]] = {}
    for one in dict.fromkeys(known):
        forms.setdefault(one.casefold(), []).append(one)
    close = get_close_matches(name.casefold(), forms, n=limit, cutoff=0.6)
    found = [
        one for form in close for one in sorted(forms[form], key=lambda one: -SequenceMatcher(None, one, name).ratio())
    ]
    return found[:limit]
