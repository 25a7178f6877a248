// The TypeScript SDK 1.x as a client. Prints what it saw as one JSON object.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { WebSocketClientTransport } from "@modelcontextprotocol/sdk/client/websocket.js";
import { visit } from "./visit.mjs";

function over(url) {
  if (url.protocol === "ws:") return new WebSocketClientTransport(url);
  if (url.pathname.endsWith("/sse")) return new SSEClientTransport(url);
  return new StreamableHTTPClientTransport(url);
}

await visit((target) => ({
  client: new Client({ name: "typescript-sdk-v1", version: "1" }),
  transport: target.url
    ? over(new URL(target.url))
    : new StdioClientTransport({ ...target, stderr: "inherit" }),
}));
