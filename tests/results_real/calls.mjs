// The TypeScript SDKs as clients: lists, then calls. Prints the results as one JSON list. It runs in the folder where the
// SDKs are installed. The arguments are a URL, an era or "v1", and a list of [tool, arguments] as JSON.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const installed = createRequire(`${process.cwd()}/`);
const from = (name) => import(pathToFileURL(installed.resolve(name)));
const [url, mode, calls] = process.argv.slice(2);

async function connected() {
  if (mode === "v1") {
    const { Client } = await from("@modelcontextprotocol/sdk/client/index.js");
    const { StreamableHTTPClientTransport } = await from("@modelcontextprotocol/sdk/client/streamableHttp.js");
    const client = new Client({ name: "typescript-sdk-v1", version: "1" });
    await client.connect(new StreamableHTTPClientTransport(new URL(url)));
    return client;
  }
  const { Client, StreamableHTTPClientTransport } = await from("@modelcontextprotocol/client");
  const versionNegotiation = { mode: mode === "legacy" ? mode : { pin: mode } };
  const client = new Client({ name: "typescript-sdk-v2", version: "1" }, { versionNegotiation });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return client;
}

const client = await connected();
await client.listTools(); // from here on it checks results against the schemas of the tools
const results = [];
for (const [name, args] of JSON.parse(calls)) {
  const { content, structuredContent } = await client.callTool({ name, arguments: args });
  results.push({ text: content[0].text, structured: structuredContent ?? null });
}
await client.close();
console.log(JSON.stringify(results));
