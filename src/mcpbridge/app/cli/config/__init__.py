"""Commands about the configuration: `add`, `remove`, `enable`, `disable`, `check`, `doctor`."""
