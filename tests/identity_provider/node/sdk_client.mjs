// The TypeScript SDK's OAuth client against the bridge. The arguments: its URL, and tools to call (a JSON list). It
// prints the page to sign in at, reads from standard input where the browser was sent back to, and prints what it sees.
import { createInterface } from "node:readline";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const url = new URL(process.argv[2]);
let information, tokens, verifier;
const provider = {
  get redirectUrl() { return "http://127.0.0.1:18907/callback"; },
  get clientMetadata() {
    return { client_name: "typescript-sdk", redirect_uris: ["http://127.0.0.1:18907/callback"], token_endpoint_auth_method: "none", grant_types: ["authorization_code"], response_types: ["code"] };
  },
  clientInformation: () => information,
  saveClientInformation: (value) => { information = value; },
  tokens: () => tokens,
  saveTokens: (value) => { tokens = value; },
  redirectToAuthorization: (page) => console.log(JSON.stringify({ page: page.href })),
  saveCodeVerifier: (value) => { verifier = value; },
  codeVerifier: () => verifier,
};
const client = () => new Client({ name: "typescript-sdk", version: "1" });
let transport = new StreamableHTTPClientTransport(url, { authProvider: provider });
try {
  await client().connect(transport);
  throw new Error("let in without a token");
} catch (error) {
  if (error.name !== "UnauthorizedError" && error.constructor.name !== "UnauthorizedError") throw error;
}
for await (const line of createInterface({ input: process.stdin })) {
  await transport.finishAuth(new URL(line).searchParams.get("code"));
  break;
}
transport = new StreamableHTTPClientTransport(url, { authProvider: provider });
const connected = client();
await connected.connect(transport);
const { tools } = await connected.listTools();
const calls = {};
for (const name of JSON.parse(process.argv[3] ?? "[]")) {
  try {
    calls[name] = (await connected.callTool({ name, arguments: {} })).content[0].text;
  } catch (error) {
    calls[name] = error.message;
  }
}
console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), calls, tokens }));
await connected.close();
process.exit(0);
