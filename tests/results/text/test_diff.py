"""Previews of diffs."""

from mcpbridge.results.document import Document
from mcpbridge.results.preview.preview import preview_text

DIFF = """commit 0123456789
Author: Somebody
Date:   today

    Say why

diff --git a/src/big.py b/src/big.py
--- a/src/big.py
+++ b/src/big.py
@@ -1,3 +1,5 @@ def run():
 same
--- looks like a heading
+++ but is none
+two
+three
 same
diff --git a/gone.txt b/gone.txt
deleted file mode 100644
--- a/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
-only
diff --git a/old.md b/new.md
similarity index 100%
rename from old.md
rename to new.md
diff --git a/pic.png b/pic.png
new file mode 100644
Binary files /dev/null and b/pic.png differ
"""


def test_files_and_lines_are_counted() -> None:
    text = preview_text(Document(DIFF, "diff"), 1500)
    assert "4 files changed, 3 insertions(+), 2 deletions(-), 2 hunks" in text
    assert "src/big.py +3 -1" in text
    assert "gone.txt (deleted)" in text
    assert "new.md (renamed from old.md)" in text
    assert "pic.png (new binary)" in text
    assert "Say why" in text
    assert "+three" in text


def test_a_diff_without_git_is_read() -> None:
    text = preview_text(Document("--- a.txt\t2025\n+++ b.txt\t2025\n@@ -1 +1 @@\n-x\n+y\n", "diff"), 500)
    assert "1 file changed, 1 insertion(+), 1 deletion(-), 1 hunk" in text
    assert "b.txt +1 -1" in text
