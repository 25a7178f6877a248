// The TypeScript SDK 1.x as a client. Prints what it saw as one JSON object.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { visit } from "./visit.mjs";

await visit((target) => ({
  client: new Client({ name: "typescript-sdk-v1", version: "1" }),
  transport: target.url
    ? new StreamableHTTPClientTransport(new URL(target.url))
    : new StdioClientTransport({ ...target, stderr: "inherit" }),
}));
