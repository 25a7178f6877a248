"""What previews say of some documents, in rooms of several sizes: read by people, and compared with each run."""

import pytest

from support.preview_examples import (
    COLUMNS_FILE,
    DOCUMENTS,
    FOLDER,
    SHAPES_FILE,
    columns_example,
    example,
    shapes_example,
)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_preview_of_an_example_is_as_its_file_has_it(name: str) -> None:
    """Written anew by `PYTHONPATH=tests python -m support.preview_examples --write`, when what previews say changes."""
    assert example(DOCUMENTS[name]()) == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def test_what_is_known_of_single_columns_is_as_the_file_has_it() -> None:
    assert columns_example() == (FOLDER / f"{COLUMNS_FILE}.txt").read_text(encoding="utf-8")


def test_values_of_many_shapes_are_taken_apart_as_the_file_has_it() -> None:
    assert shapes_example() == (FOLDER / f"{SHAPES_FILE}.txt").read_text(encoding="utf-8")


def test_each_file_is_of_a_document() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {*DOCUMENTS, COLUMNS_FILE, SHAPES_FILE}
