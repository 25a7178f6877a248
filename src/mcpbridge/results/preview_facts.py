"""Facts of a preview, and which of them go into so many characters.

Each fact belongs to a line and has a worth: about how often somebody asks for it. Facts are taken by worth for each
character. Where the line stands, and where in the line, does not depend on what is taken.
"""

from collections.abc import Iterable

from msgspec import Struct, field

from mcpbridge.results.tokens import estimated_tokens_of

__all__ = ["Fact", "Line", "Lines", "by_worth", "cost_of"]

CHARS_IN_TOKEN = 3.2
"""In what previews say, on average."""


class Fact(Struct):
    """Something worth saying of a line's subject."""

    text: str
    worth: float
    """Compare: 10 for the value counts of a state, 1 for a mean."""
    names: str = ""
    """The path of the field that need not be listed elsewhere when this is said."""
    joint: bool = False
    """It goes on with the fact before it, and is said only with that."""


class Line(Struct):
    """What can be said of one subject, in the order in which it is said."""

    title: str
    """With what the line begins; a field path, or words."""
    facts: list[Fact] = field(default_factory=list[Fact])
    names: str = ""
    """The path of the field that its title names."""
    taken: set[int] = field(default_factory=set[int])
    whole: str = ""
    """A long text, of which its one fact tells the beginning; more of it is told where there is room."""

    def add(self, text: str, worth: float, names: str = "", *, joint: bool = False) -> None:
        """One more fact, if there is something to say."""
        if text:
            self.facts.append(Fact(text, worth, names or self.names, joint))

    def may_take(self, place: int) -> bool:
        """It is not taken yet, and what it goes on with is."""
        return place not in self.taken and (not self.facts[place].joint or place - 1 in self.taken)

    @property
    def told(self) -> set[str]:
        """The fields that can be read in it."""
        return {self.facts[place].names for place in self.taken}

    @property
    def text(self) -> str:
        """The line with what was taken."""
        facts = [self.facts[place] for place in sorted(self.taken)]
        body = "".join(f"{' ' if fact.joint else '; '}{fact.text}" for fact in facts)[2:]
        return f"{self.title}: {body}" if self.title else body


Lines = list[Line]


def cost_of(text: str) -> float:
    """What a text costs, in characters of plain words: its tokens count for half, for digits and signs take more."""
    return (len(text) + CHARS_IN_TOKEN * estimated_tokens_of(text)) / 2


def by_worth(lines: Iterable[Line]) -> list[tuple[float, Line, int]]:
    """All facts with their worth for what a character costs, the most first; equal ones as they stand."""
    ranked: list[tuple[float, Line, int]] = []
    for line in lines:
        begin = cost_of(line.title) / 2
        before = 0.0
        for place, fact in enumerate(line.facts):
            rank = fact.worth / (cost_of(fact.text) + begin + 6)
            before = min(rank, before) if fact.joint else rank
            ranked.append((before, line, place))
    ranked.sort(key=lambda entry: -entry[0])
    return ranked
