"""The pages of the console, one module each: which routes it has, and what its template is given."""
