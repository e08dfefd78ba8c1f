// MCP by its SDK, before server-everything: two tools, one with a bounded argument, and no others.
import assert from "node:assert";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const url = new URL("https://mcp.example.test/mcp");
const transport = new StreamableHTTPClientTransport(url);
const client = new Client({ name: "test", version: "1" });
await client.connect(transport);
const tools = (await client.listTools()).tools.map((tool) => tool.name);
assert.ok(["echo", "get-sum", "get-env"].every((name) => tools.includes(name)), `${tools}`);

const call = (name, given) => client.callTool({ name, arguments: given });
const text = async (name, given) => (await call(name, given)).content[0].text;
assert.match(await text("echo", { message: 'get-env"' }), /get-env"/);
assert.match(await text("get-sum", { a: 2, b: 3 }), /5/);
const refused = async (what, asked) => {
  const error = await asked.then(() => assert.fail(`${what} was allowed`), (error) => error);
  assert.match(error.message, /403|policy/, `${what}: ${error.stack}`);
  console.log(`${what}: ${error.message.slice(0, 160).replaceAll("\n", " ")}`);
};
await refused("another tool", call("get-env", {}));
await refused("a tool beyond its bound", call("get-sum", { a: 101, b: 3 }));

const batch = Array.from({ length: 10 }, (_, at) => ({
  jsonrpc: "2.0", id: at, method: "tools/call", params: { name: at === 7 ? "get-env" : "echo", arguments: {} },
}));
const headers = {
  "content-type": "application/json", accept: "application/json, text/event-stream", "mcp-session-id": transport.sessionId,
};
// A single call is refused in an answer of JSON-RPC, which has the status 200.
const post = async (content) => {
  const answer = await fetch(url, { method: "POST", headers, body: content });
  return (await answer.text()).includes("\"code\":-32040") ? 403 : answer.status;
};
assert.equal(await post(JSON.stringify(batch)), 403);
assert.equal(await post('{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"ping","params":{"name":"get-env"}}'), 403);
assert.equal(await post('{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call","params":{"name":"get-env"}}'), 403);
await client.close();
console.log("ok mcp");
