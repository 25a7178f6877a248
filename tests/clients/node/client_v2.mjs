// The TypeScript SDK 2.x as a client, in the eras given. Prints what it saw in each as a JSON object.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { visit } from "./visit.mjs";

await visit((target, mode) => ({
  client: new Client(
    { name: "typescript-sdk-v2", version: "1" },
    { versionNegotiation: { mode: mode === "modern" ? { pin: "2026-07-28" } : mode } },
  ),
  transport: target.url
    ? new StreamableHTTPClientTransport(new URL(target.url))
    : new StdioClientTransport({ ...target, stderr: "inherit" }),
}));
