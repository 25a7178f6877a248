"""How the models of the configuration are declared."""

from collections.abc import Iterator

import pytest
from pydantic import BaseModel, ValidationError

import mcpbridge.tools.builtin.settings  # noqa: F401 - its models are ours too
from mcpbridge.config.schema import Settings


def models(of: type[BaseModel] = BaseModel) -> Iterator[type[BaseModel]]:
    for model in of.__subclasses__():
        if model.__module__.startswith("mcpbridge.") and model.__module__.endswith(("settings", "schema")):
            yield model
        yield from models(model)


@pytest.mark.parametrize("model", sorted({*models()}, key=str), ids=lambda model: model.__qualname__)
def test_the_validator_of_a_section_is_made_when_it_is_used(model: type[BaseModel]) -> None:
    """Clients wait for the start, which would make all of them (issue 21)."""
    assert model.model_config.get("defer_build")


@pytest.mark.parametrize("model", sorted({*models()}, key=str), ids=lambda model: model.__qualname__)
def test_a_default_that_is_not_checked_is_what_a_check_would_give(model: type[BaseModel]) -> None:
    try:
        checked = model()
    except ValidationError:
        return  # something has to be given
    made = model.model_construct()
    assert made == checked
    assert made.model_fields_set == checked.model_fields_set
    assert made.model_dump() == checked.model_dump()


def test_a_default_that_is_written_out_is_the_same() -> None:
    sections = [name for name, field in Settings.model_fields.items() if isinstance(field.default, BaseModel)]
    written = Settings.model_validate({name: {} for name in sections})
    assert written.model_dump() == Settings().model_dump()
