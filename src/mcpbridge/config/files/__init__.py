"""Edit JSON, TOML and YAML files in place: one entry in or out, all else as it was. Start with `edit.py`."""
