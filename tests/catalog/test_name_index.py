import pytest

from mcpbridge.base.errors import UnknownName
from mcpbridge.catalog.name_index import NameIndex, Names


def directory(*tools: tuple[str, str]) -> NameIndex[str]:
    owners = {f"{s}:{t}": Names(s, t) for s, t in tools}
    return NameIndex("tool", {f"{s}__{t}": f"{s}:{t}" for s, t in tools}, owners.__getitem__)


@pytest.mark.parametrize("name", ["git__status", "git/status", "git.status", "status"])
def test_every_alias_means_the_tool(name: str) -> None:
    assert directory(("git", "status"), ("fs", "read")).find(name) == "git:status"


def test_a_bare_name_of_two_servers_is_refused_with_the_names_that_work() -> None:
    with pytest.raises(UnknownName) as refusal:
        directory(("a", "search"), ("b", "search")).find("search")
    assert refusal.value.candidates == ["a__search", "b__search"]
    assert str(refusal.value) == "Ambiguous tool name: search (it could be a__search, b__search?)"


def test_what_is_listed_goes_before_every_alias() -> None:
    """A server may call its tool what is another tool's listed name; only the listed one is meant by it."""
    found = directory(("a", "b"), ("evil", "a__b"), ("evil", "a/b"), ("evil", "a.b"))
    assert [found.find(name) for name in ("a__b", "a/b", "a.b")] == ["a:b", "a:b", "a:b"]


def test_names_that_can_be_split_in_two_ways_are_refused() -> None:
    with pytest.raises(UnknownName, match="Ambiguous"):
        directory(("a", "b.c"), ("a.b", "c")).find("a.b.c")


@pytest.mark.parametrize(
    "wrong",
    ["filesystem__raed_file", "raed_file", "filesystem/read_fil", "FILESYSTEM__READ_FILE", "Read_File", "READ_FIEL"],
)
def test_a_misspelt_name_is_answered_with_the_nearest(wrong: str) -> None:
    crowd = [(f"server{i}", f"operation_{i}") for i in range(200)]
    with pytest.raises(UnknownName) as refusal:
        directory(("filesystem", "read_file"), *crowd).find(wrong)
    assert refusal.value.candidates[0] == "filesystem__read_file"
    assert not str(refusal.value).startswith("Ambiguous")


@pytest.mark.parametrize("wrong", ["", "x" * 1_000_000, "☃"])
def test_a_name_like_no_other_is_answered_without_guesses(wrong: str) -> None:
    with pytest.raises(UnknownName) as refusal:
        directory(("filesystem", "read_file")).find(wrong)
    assert refusal.value.candidates == []
    assert len(str(refusal.value)) < 300


def test_the_list_keeps_its_order() -> None:
    assert list(directory(("b", "x"), ("a", "y")).wires) == ["b__x", "a__y"]
