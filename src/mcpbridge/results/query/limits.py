"""How much one query over results may ask for, work and answer: every number of `recall` has its home here."""


# What a query may say.

PATH_LENGTH = 2000
"""Characters of a path."""

CONDITION_LENGTH = 4000
"""Characters of a `where` expression."""

CONDITION_DEPTH = 50
"""Parentheses and `not`s of a condition within each other; objects within objects."""

CONDITION_PARTS = 500
"""Conditions of one object, all levels together."""

QUERY_PARTS = 100
"""Columns, sort keys, groups or aggregates of a query."""

FIND_LENGTH = 1000
"""Characters of the text that `find` looks for."""

PATTERN_LENGTH = 1000
"""Characters of a regular expression."""

PATTERN_GROUPS = 20
"""Groups of a regular expression: what each of them matched costs another look at every character."""

PATTERN_MEMORY = 8 * 1024**2
"""Bytes that a compiled regular expression and its automaton may take."""


# How much work it may be.

VISITED_VALUES = 30_000_000
"""Values that one query may visit; far more than any result of 100 MB has, unless each is visited repeatedly."""

GROUPS_PER_ROW = 1000
"""Groups that one row may belong to."""

SEARCH_SECONDS = 15.0
"""Seconds that one search may take, from the first text on. Python and RE2 read some 100 MB a second."""

SCANNED_CHARACTERS = 300_000_000
"""Characters that are scanned for matches; in the worst case each match scans the rest of its line again."""


# How much of the answer is shown.

SAMPLE_ROWS = 50
"""Rows by which the form of a page (CSV or JSON) is chosen."""

CSV_SHARE = 0.85
"""CSV is chosen below this share of the characters of JSON."""

OUTLINE_MEMBER = 40
"""Characters of a member that an outline always shows."""

OUTLINE_NESTED = 150
"""Characters from which a member of an outline is an outline itself."""

LINE_AVERAGE = 2000
"""Characters of the lines of a text, on average, from which `lines` counts those of its JSON written readably."""

MATCH_CONTEXT = 100
"""Characters of a long text that are shown on either side of a match."""

WHOLE_TEXT = 300
"""Characters up to which a text with a match is shown whole."""

MATCHES_PER_LINE = 20
"""Matches in one very long line that are shown."""

LONG_LINE = 1000
"""Characters of a line from which its matches are rows of their own."""

SUM_DIGITS = 700
"""Digits of a sum; beyond that it is rounded, which happens when 1e800 and 1 are added."""

MEAN_DIGITS = 6
"""Digits of an average after its point, or in all if it is below 1."""

DISTINCT_SHOWN = 50
"""Distinct values that are listed, the most frequent first."""

NAMES_SHOWN = 15
"""Names that an error lists."""

SAMPLE_VALUES = 50
"""Values whose members an error lists."""
