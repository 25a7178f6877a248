"""Commands about tools: `list`, `search`, `call`, `read`, `manage`, `tokens`, `bench`, `rank`."""
