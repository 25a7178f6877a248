// What every client does: connect, list, call, read. The arguments are the target as JSON, and the eras: one visit in each.

export async function visit(connectionTo) {
  const [target, ...modes] = process.argv.slice(2);
  for (const mode of modes) await visitIn(mode, target, connectionTo);
}

async function visitIn(mode, target, connectionTo) {
  const { client, transport } = connectionTo(JSON.parse(target), mode);
  await client.connect(transport);
  const { tools } = await client.listTools();
  const calls = {};
  for (const [name, args] of [
    ["rich__echo", { text: "grüße, 世界 🙂" }],
    ["everything__get-sum", { a: 2, b: 40 }],
  ]) {
    if (tools.some((tool) => tool.name === name)) {
      const result = await client.callTool({ name, arguments: args });
      calls[name] = result.content.map((part) => part.text).join("\n");
    }
  }
  const { contents } = await client.readResource({ uri: "memo://one" });
  const { messages } = await client.getPrompt({ name: "rich__greet", arguments: { who: "Ada" } });
  const seen = {
    server: client.getServerVersion()?.name,
    tools: tools.map((tool) => tool.name),
    calls,
    resource: contents[0].text,
    prompt: messages[0].content.text,
  };
  await client.close();
  console.log(JSON.stringify(seen));
}
