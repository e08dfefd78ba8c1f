// GraphQL by its SDK: what changes nothing, or comments, is done; nothing else is, however it is written.
import assert from "node:assert";
import { GraphQLClient, gql } from "graphql-request";

const server = process.argv[2];
const client = new GraphQLClient(`https://${server}.example.test/graphql`);
const refused = async (what, asked) => {
  const error = await asked.then(() => assert.fail(`${server}: ${what} was allowed`), (error) => error);
  assert.equal(error.response?.status, 403, `${what}: ${error.stack}`);
  console.log(`${what}: ${error.message.slice(0, 160).replaceAll("\n", " ")}`);
};

assert.deepEqual(await client.request(gql`query Q { a: viewer ...F } fragment F on Query { b: viewer }`), { a: "viewer", b: "viewer" });
const read = new GraphQLClient(client.url, { method: "GET", headers: { "apollo-require-preflight": "yes" } });
assert.deepEqual(await read.request(gql`{ viewer }`), { viewer: "viewer" });
const comment = gql`mutation C($text: String) { done: addComment(text: $text) }`;
assert.deepEqual(await client.request(comment, { text: 'mergePullRequest "{' }), { done: 'mergePullRequest "{' });

const merge = gql`mutation M { ...F } fragment F on Mutation { addComment: mergePullRequest(id: 1) }`;
await refused("a merge behind an alias, in a fragment", client.request(merge));
await refused("a merge in a batch", client.batchRequests([{ document: gql`{ viewer }` }, { document: merge }]));
await refused("a merge by operationName", client.request(`query A { viewer } ${merge}`, {}, {}, { operationName: "A" }));
await refused("another field", client.request(gql`mutation { deleteRef }`));
await refused("a field of a query that is not listed", client.request(gql`{ viewer secretPlan }`));
const kept = { extensions: { persistedQuery: { version: 1, sha256Hash: "00" } } };
const raw = await fetch(client.url, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(kept) });
assert.equal(raw.status, 403);
console.log(`ok ${server}`);
