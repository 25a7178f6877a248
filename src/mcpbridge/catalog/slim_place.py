"""Where a schema stands in another one, which decides what may be done with it."""

from msgspec import Struct

__all__ = ["Place"]


class Place(Struct, frozen=True):
    """Where a schema stands."""

    name: str = ""
    """Of the property, or the definition, whose schema it is; empty at the top and where it has none."""
    told: str = ""
    """The description of the schema around it, or the tool, that describes the same."""
    depth: int = 0
    is_exact: bool = False
    """Only what changes nothing may be done."""
    is_shared: bool = False
    """Other schemas check the same value, and may require what this one does not."""
    is_left_out: bool = False
    """The property may be left out, which then means its default."""
    is_required: bool = False

    def inner(self, told: str = "", *, exact: bool = False, shared: bool = False) -> "Place":
        """A place within this one, for what describes the same value or its parts."""
        is_exact, is_shared = self.is_exact or exact, self.is_shared or shared
        return Place("", told, self.depth + 1, is_exact, is_shared, is_required=self.is_required)

    def property(self, name: str, *, left_out: bool, required: bool) -> "Place":
        """That of a property of this object."""
        return Place(name, "", self.depth + 1, self.is_exact, self.is_shared, left_out, required)
