// GraphQL by Yoga and by Apollo, MCP by server-everything, behind TLS on one port; writes down what they carry out.
//   node servers.mjs STAGE
import { spawn } from "node:child_process";
import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { createRequire } from "node:module";
import { ApolloServer } from "@apollo/server";
import { startStandaloneServer } from "@apollo/server/standalone";
import { createSchema, createYoga } from "graphql-yoga";

const stage = process.argv[2];
const did = (what) => appendFileSync(`${stage}/seen.log`, `${what}\n`);
const typeDefs = `
  type Query { viewer: String, secretPlan: String }
  type Mutation { addComment(text: String): String, mergePullRequest(id: Int): String, deleteRef: String }`;
const field = (of, name) => (_, given) => {
  did(`${of} ${name}`);
  return given.text ?? name;
};
const resolvers = (of) => ({
  Query: Object.fromEntries(["viewer", "secretPlan"].map((name) => [name, field(of, name)])),
  Mutation: Object.fromEntries(["addComment", "mergePullRequest", "deleteRef"].map((name) => [name, field(of, name)])),
});

const yoga = createYoga({ schema: createSchema({ typeDefs, resolvers: resolvers("yoga") }), batching: true, logging: false });
const apollo = new ApolloServer({ typeDefs, resolvers: resolvers("apollo"), allowBatchedHttpRequests: true });
const { url } = await startStandaloneServer(apollo, { listen: { port: 0, host: "127.0.0.1" } });

// The server says that it listens also where it cannot, so its port is one that nobody is given.
const free = process.env.MCP_PORT;
const everything = createRequire(import.meta.url).resolve("@modelcontextprotocol/server-everything/dist/index.js");
// It takes `crypto` for granted, which Node 18 has by import alone.
const crypto = `${stage}/crypto.cjs`;
writeFileSync(crypto, 'globalThis.crypto ??= require("node:crypto").webcrypto;');
const child = spawn(process.execPath, ["--require", crypto, everything, "streamableHttp"], {
  env: { ...process.env, PORT: free }, stdio: ["ignore", "ignore", "pipe"],
});
process.on("exit", () => child.kill());
for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => process.exit());
await new Promise((ready) => child.stderr.on("data", (said) => String(said).includes("listening") && ready()));

const relay = (port, request, response) => {
  // A connection for each, since a server may end an idle one just when it is used again.
  const to = { agent: false, port, host: "127.0.0.1", method: request.method, path: request.url, headers: request.headers };
  const onward = http.request(to, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  onward.on("error", () => response.destroy());
  response.on("close", () => onward.destroy());
  request.pipe(onward);
};
const tls = { cert: readFileSync(`${stage}/leaf.pem`), key: readFileSync(`${stage}/leaf.key`) };
const server = https.createServer(tls, (request, response) => {
  const host = request.headers.host;
  if (host === "yoga.example.test") return yoga(request, response);
  if (host === "apollo.example.test") return relay(new URL(url).port, request, response);
  let content = "";
  request.on("data", (chunk) => (content += chunk));
  request.on("end", () => {
    for (const one of content ? [JSON.parse(content)].flat() : []) {
      if (one.method === "tools/call") did(`mcp ${one.params.name} ${JSON.stringify(one.params.arguments)}`);
    }
  });
  relay(free, request, response);
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
