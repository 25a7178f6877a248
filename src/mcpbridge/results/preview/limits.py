"""How a preview shares its room, and how much of a document it reads: every number of previews has its home here.

The size of a preview is a setting (`core/result_settings.py`). What one fact is worth is decided where it is written.
"""

# How the room is shared: facts, rows, fields.

WORTH_MORE_THAN_ROWS = 0.03
"""Facts of so much worth for each character go before rows."""

WORTH_THEIR_ROOM = 0.06
"""Facts of so much worth may take most of what is reserved for rows, too."""

WORTH_SAYING = 0.03
"""Facts of less worth for each character are left out even where there is room: a model pays for each word."""

LONG_PREVIEW = 700
"""Characters from which a preview is long: the longer it is, the more a fact must be worth."""

RISE = 1.5
"""How much more a fact must be worth with each `LONG_PREVIEW` characters."""

ROWS_SHARE = 0.28
"""Share of the room that is reserved for rows until the best facts are chosen."""

FIELDS_SHARE = 0.45
"""Share of the room that the list of fields may take."""

ENDS_SHARE = 0.35
"""Share of the room that the first and the last rows of all tables may take."""

ROOM_FOR_ENDS = 1000
"""Characters of room from which the first and last rows go before all else; with less they get what is left."""

ROOM_FOR_JSON_ROWS = 120
"""Characters that must be left before rows are added as JSON."""

FIELD_FORMS = ((True, 64, 0.65), (False, 64, 0.65), (False, 24, 0.9), (False, 0, 1.0))
"""Forms of the list of fields, tried in order: with types or without, how long constant values may be, and what
share of the room the list may take."""

CHARS_IN_TOKEN = 3.2
"""Characters of a token in previews, on average."""


# How many rows are worth their room.

ROW_COUNTS = (1, 2, 4, 8, 12)
"""How many first rows are tried, beside as many as fit."""

CHARACTER_COST = 0.009
"""What a character costs in a preview of usual length, on the scale of the worth of columns."""

USUAL_LENGTH = 1000
"""Characters of a preview of usual length."""

COLUMN_GAIN = 0.8
"""What showing a column gains; beside its worth, as the following."""

NAMED_ROW_GAIN = 0.4
"""What each row up to the twelfth gains, which can be asked for by its place: what it is called."""

ROW_GAIN = 0.05
"""The same for what else the row has."""

SMALL_TABLE_GAIN = 9.0
"""What showing all rows of a small table gains: anything can be looked up, and nothing needs to be asked for."""

SMALL_TABLE = 16
"""Rows of a small table."""

LARGE_TABLE_GAIN = 3.0
"""What showing all of a large table gains; a part of it in proportion."""

LIST_LOSS = -4.0
"""A list of what the rows are called is shown even if it is worth so much less than nothing."""

LIST_TOKENS = 60
"""Estimated tokens of a list of what the first rows are called: twelve numbers, three hashes."""

ENDS_TOKENS = 72
"""Estimated tokens of the first and the last row with the names of their columns."""

FURTHER_ROWS_TOKENS = 48
"""Estimated tokens of further rows behind the first one."""

ROW_COLUMNS = 9
"""Columns of a row that are shown."""

SHOWN_ROWS = 400
"""Rows that are shown of one table."""

CELL_LENGTH = 56
"""Characters of one value in a row."""

ENDS_CELL_LENGTH = 30
"""Characters of one value in the first and last rows."""

JSON_ROW_TEXT = 80
"""Characters of one text in a row that is shown as JSON."""

JSON_ROW_ELEMENTS = 3
"""Elements of one list in a row that is shown as JSON."""

JSON_ROW_MEMBERS = 40
"""Members of one object in a row that is shown as JSON."""

JSON_ROW_DEPTH = 6
"""Levels of nesting of a row that is shown as JSON."""


# How long one value, count or list may be.

NUMBER_LENGTH = 120
"""Characters of a number."""

LONG_ID = 24
"""Characters from which an id, such as a hash, is shown by its beginning."""

LONG_ID_BEGINNING = 10
"""Characters of that beginning."""

CONSTANT_LENGTH = 56
"""Characters of the value that a constant column has in every row."""

PLAIN_VALUE_LENGTH = 120
"""Characters of a field that occurs once; of a longer text the beginning and the end are shown."""

COUNTED_VALUES = 12
"""Values of a column that are counted one by one."""

MOST_BEGINNINGS, MOST_ENDINGS = 10, 24
"""First words, and extensions, of the texts of a column up to which they are counted."""

GROUPS = 8
"""Values of a column by which sums are shown."""

GROUP_CELLS = 24
"""Pairs of values of two columns by which sums are shown."""

PAIRS_WORTH = 16.0
"""Worth of the sums by two columns."""

TREE_LENGTH = 6000
"""Characters of the outline of a tree."""

SHORT_TREE = 900
"""Characters of an outline that is worth showing whole, if there is room."""


# How much of a document is read.

TABLE_VALUES = 400_000
"""Values of one table that are read; of a larger one, rows at even distances."""

TREE_NODES = 200_000
"""Nodes of a tree that are read."""

SECTIONS = 24
"""Parts of a document that are described; the largest ones."""

FIELDS = 400
"""Fields of one table that are listed."""

PLAIN_FIELDS = 400
"""Fields of an object that are described one by one."""

SAMPLE_VALUES = 500
"""Values that show whether reading all of a column is worth it."""

NESTING_DEPTH = 12
"""Levels of nesting that are read; what is deeper counts as one opaque value."""

TABLE_COLUMNS = 300
"""Columns of one table."""

MAP_NAMES = 40
"""An object in rows that has more names than this over all rows, and few in each, is a map: its names are data."""

PLAIN_LIST = 5
"""Elements up to which a list of plain values counts as one value; a longer one is a table."""

PLAIN_LIST_TEXT = 100
"""Characters from which the one text in a list counts as a long text."""

SERIES_POINTS = 8
"""Points from which a list of numbers is a series."""
