"""Write the table of word vectors that tools are found by from the archive in which it was fitted.

    python scripts/routing_table.py ARCHIVE.npz            write src/mcpbridge/routing/data/words.table anew
    python scripts/routing_table.py ARCHIVE.npz --check    exit with 1 if it is not what would be written

The archive has `table` (rows of int8), `scale` and `weight` (a half-precision number a row) and `vocab` (the entry of
each row). The form that is written is told in `catalog/search/lexical/word_vectors.py`; it loads with one look and
without numpy.
"""

import ast
import struct
import sys
import zipfile
from pathlib import Path

from mcpbridge.catalog.search.lexical.word_vectors import TABLE, encode_table

USAGE = 2


def main(arguments: list[str]) -> int:
    """Exit code 0; 1 if `--check` found another table; 2 for wrong arguments."""
    if not arguments or len(arguments) > 2 or arguments[1:] not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return USAGE
    data = converted(Path(arguments[0]))
    if arguments[1:]:
        return int(TABLE.read_bytes() != data)
    TABLE.write_bytes(data)
    print(f"{TABLE}: {len(data):,} bytes")
    return 0


def converted(archive: Path) -> bytes:
    """The table of an archive, as it is shipped."""
    with zipfile.ZipFile(archive) as members:
        (rows, dims), cells = _array(members, "table")
        (_,), scales = _array(members, "scale")
        (_,), weights = _array(members, "weight")
        (_,), vocabulary = _array(members, "vocab")
    width = len(vocabulary) // rows
    entries = [vocabulary[at : at + width].decode("utf-32-le").rstrip("\0") for at in range(0, len(vocabulary), width)]
    factors = [
        scale * weight
        for (scale,), (weight,) in zip(struct.iter_unpack("<e", scales), struct.iter_unpack("<e", weights), strict=True)
    ]
    return encode_table(entries, factors, cells, dims)


def _array(members: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], bytes]:
    """Shape and bytes of an array in numpy's own form, version 1."""
    data = members.read(f"{name}.npy")
    if data[:8] != b"\x93NUMPY\x01\x00":
        raise ValueError(f"{name} is no array of version 1")
    (size,) = struct.unpack_from("<H", data, 8)
    header = ast.literal_eval(data[10 : 10 + size].decode("latin-1"))
    if header["fortran_order"]:
        raise ValueError(f"{name} is stored by columns")
    return header["shape"], data[10 + size :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
