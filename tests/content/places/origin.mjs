// Slack, Microsoft's login, Telegram, Discord and Twilio as far as their SDKs need them, on one port: each takes its real
// credential where the service documents it, and there alone. What came in is written down without it.
//   node origin.mjs STAGE
import { appendFileSync, readFileSync } from "node:fs";
import https from "node:https";

const stage = process.argv[2];
const real = JSON.parse(process.env.REAL);
const basic = (user, secret) => `Basic ${Buffer.from(`${user}:${secret}`).toString("base64")}`;
const form = (content) => new URLSearchParams(content);

// Whether the credential is there, and what is answered then.
const services = {
  "slack.com": ({ url, headers, content }) => {
    if (url.pathname === "/api/oauth.v2.access") {
      return [form(content).get("client_secret") === real.slackApp, { ok: true, access_token: "none-of-ours", team: { id: "T" } }];
    }
    const told = headers.authorization === `Bearer ${real.slack}` || form(content).get("token") === real.slack;
    return [told, { ok: true, ts: "1.2", channel: "C1" }];
  },
  "login.microsoftonline.com": ({ url, content }) => {
    const issuer = "https://login.microsoftonline.com/11111111-2222-3333-4444-555555555555";
    if (url.pathname.endsWith("/openid-configuration")) {
      return [true, { issuer: `${issuer}/v2.0`, authorization_endpoint: `${issuer}/oauth2/v2.0/authorize`, token_endpoint: `${issuer}/oauth2/v2.0/token`, jwks_uri: `${issuer}/discovery/v2.0/keys` }];
    }
    return [form(content).get("client_secret") === real.azure, { token_type: "Bearer", expires_in: 3599, access_token: "eyJ.none.ours" }];
  },
  "api.telegram.org": ({ url }) => [
    url.pathname.startsWith(`/bot${real.telegram}/`),
    { ok: true, result: { message_id: 7, date: 1, chat: { id: 1, type: "private" } } },
  ],
  "discord.com": ({ url }) => [
    url.pathname.endsWith(`/webhooks/123456789012345678/${real.discord}`),
    { id: "123456789012345679", channel_id: "1", content: "", attachments: [], embeds: [], mentions: [], mention_roles: [], timestamp: "2026-01-01T00:00:00Z", type: 0, author: { id: "1", username: "hook", discriminator: "0000" } },
  ],
  "api.twilio.com": ({ headers }) => [
    headers.authorization === basic("AC00000000000000000000000000000001", real.twilio),
    { sid: "SM1", status: "queued" },
  ],
};

const tls = { cert: readFileSync(`${stage}/leaf.pem`), key: readFileSync(`${stage}/leaf.key`) };
const server = https.createServer(tls, (request, response) => {
  const host = request.headers.host.split(":")[0];
  const url = new URL(request.url, `https://${host}`);
  let [content, length] = [Buffer.alloc(0), 0];
  request.on("data", (chunk) => {
    length += chunk.length;
    if (content.length < 1 << 20) content = Buffer.concat([content, chunk]);
  });
  request.on("end", () => {
    const text = content.toString("latin1");
    const [told, answer] = services[host]({ url, headers: request.headers, content: text });
    let seen = `${request.url} ${JSON.stringify(request.headers)} ${text.slice(0, 4096)}`;
    const times = Object.values(real).reduce((sum, secret) => {
      const parts = [secret, encodeURIComponent(secret), Buffer.from(`AC00000000000000000000000000000001:${secret}`).toString("base64")];
      const found = [...new Set(parts)].reduce((sum, part) => sum + seen.split(part).length - 1, 0);
      for (const part of parts) seen = seen.replaceAll(part, "[real]");
      return sum + found;
    }, 0);
    appendFileSync(`${stage}/seen.log`, `${told ? "taken" : "REFUSED"} ${times} ${length} ${host} ${seen.replaceAll(/\s+/g, " ")}\n`);
    const said = JSON.stringify(told ? answer : { ok: false, error: "invalid_auth", description: "Unauthorized" });
    response.writeHead(told ? 200 : 401, { "content-type": "application/json" }).end(said);
  });
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
