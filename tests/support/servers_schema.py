"""The JSON Schema of the configuration, `docs/reference/servers.schema.json`, as an editor uses it."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

__all__ = ["check"]

SCHEMA = Path(__file__).parents[2] / "docs/reference/servers.schema.json"


@cache
def _validator() -> Any:
    """Itself checked against its dialect, which takes half a second: once for all documents."""
    schema = json.loads(SCHEMA.read_text("utf-8"))
    dialect = jsonschema.validators.validator_for(schema)
    dialect.check_schema(schema)
    return dialect(schema)


def check(document: dict[str, Any]) -> None:
    """Fail if an editor would mark something in this configuration.

    Raises:
        jsonschema.ValidationError: what it would mark most.
        jsonschema.SchemaError: the schema itself is none.
    """
    if (error := jsonschema.exceptions.best_match(_validator().iter_errors(document))) is not None:
        raise error
