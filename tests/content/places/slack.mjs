// Slack's SDK: the token in a field, and an application's secret in a form.
import assert from "node:assert";
import { WebClient } from "@slack/web-api";

const token = process.env.SLACK_BOT_TOKEN;
const client = new WebClient(token, { retryConfig: { retries: 0 } });
const sent = await client.chat.postMessage({ channel: "C1", text: `about ${token}` });
assert.equal(sent.ok, true);
const secret = process.env.SLACK_CLIENT_SECRET;
const login = await new WebClient().oauth.v2.access({ client_id: "1.2", client_secret: secret, code: secret });
assert.equal(login.ok, true);
// As its documentation shows for curl.
const form = new URLSearchParams({ token, channel: "C1", text: token });
const asked = await fetch("https://slack.com/api/chat.postMessage", { method: "POST", body: form });
assert.equal((await asked.json()).ok, true);
console.log("ok slack");
