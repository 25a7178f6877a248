"""Home directories of servers: one for each server and program, in the state directory, and nobody else's."""

from pathlib import Path

from mcpbridge.upstream.isolation.home import home_of, make_home


def test_each_server_and_each_program_has_its_own(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    homes = {home_of(name, program, environ) for name in ("a", "b", "A/b", "A_b") for program in ("x", "y")}
    assert len(homes) == 8
    assert {home.parent for home in homes} == {tmp_path / "mcpbridge" / "homes"}
    assert home_of("a", "x", environ) == home_of("a", "x", environ)


def test_a_name_leads_nowhere_else(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    for name in ("..", "../../x", ".", "a\0b", "", "ä" * 300):
        assert home_of(name, "x", environ).parent == tmp_path / "mcpbridge" / "homes"


def test_it_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    home = home_of("a", "x", {"XDG_STATE_HOME": str(tmp_path)})
    assert make_home(home) == str(home.resolve())
    assert home.stat().st_mode & 0o777 == 0o700
    (home / "file").write_text("kept")
    make_home(home)
    assert (home / "file").read_text() == "kept"
