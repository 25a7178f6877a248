"""A server with results of tens of megabytes: good ones, failed ones, broken ones."""

import json
import sys
from hashlib import sha256

ROW = (
    b'{"id":1.50,"name":"Zo\xc3\xab \\"the\\" \\ud83d\\ude00 \\\\",'
    b'"big":12345678901234567890123,"tags":[[[{}]]],"id":2}'
)
ROWS = b",".join([ROW] * (30_000_000 // len(ROW)))
BLOCK = b'{"type":"text","text":"%b"}' % (b"0123456789 \\n" * 800_000)
RESULTS = {
    "rows": b'{"content":[],"structuredContent":{ "rows":[%b] },"x" : null}' % ROWS,
    "failure": b'{"content":[%b],"isError":true,"more":"%b"}' % (BLOCK, b"x" * 9_000_000),
    "broken": b'{"content":[%b,%b,]}' % (BLOCK, BLOCK),
    "wrong bytes": b'{"content":[%b,"\xff"]}' % BLOCK,
    "text": b'{"content":[%b,%b]}' % (BLOCK, BLOCK),
    "small": b'{"content":[{"type":"text","text":"ok"}]}',
}
out = sys.stdout.buffer
for line in sys.stdin.buffer:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    params = asked.get("params", {})
    if asked["method"] == "initialize":
        result = json.dumps(
            {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "stub", "version": "1"},
            }
        ).encode()
    elif asked["method"] == "tools/list":
        tools = [{"name": name.replace(" ", "_"), "inputSchema": {"type": "object"}} for name in RESULTS]
        result = json.dumps({"tools": tools}).encode()
    elif asked["method"] == "tools/call":
        result = RESULTS[params["name"].replace("_", " ")]
        if "digest" in params["arguments"]:
            result = json.dumps({"content": [], "digest": sha256(result).hexdigest()}).encode()
    else:
        result = b"{}"
    out.write(b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (asked["id"], result))
    out.flush()
