// As judge.py, for what has its library in JavaScript alone: a copy beside `node_modules` prints records; nothing is sent.
import { createHmac, webcrypto } from "node:crypto";
import { readFileSync } from "node:fs";
import * as dpop from "dpop";
import "@shopify/shopify-api/adapters/node";
import { shopifyApi } from "@shopify/shopify-api";

const version = (name) => JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;
const records = [];

// RFC 7517 A.2: a key that everybody knows.
const jwk = {
  kty: "EC", crv: "P-256", x: "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4", y: "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
  d: "870MB6gfuTJ4HtUnUvYMyJpr5eUZNP4Bk43bVdj3eAE",
};
const algorithm = { name: "ECDSA", namedCurve: "P-256" };
const privateKey = await webcrypto.subtle.importKey("jwk", jwk, algorithm, true, ["sign"]);
const { d, ...open } = jwk;
const publicKey = await webcrypto.subtle.importKey("jwk", open, algorithm, true, ["verify"]);
const der = Buffer.from(await webcrypto.subtle.exportKey("pkcs8", privateKey)).toString("base64");
const secret = `-----BEGIN PRIVATE KEY-----\n${der.match(/.{1,64}/g).join("\n")}\n-----END PRIVATE KEY-----\n`;
for (const [nonce, token] of [[undefined, undefined], ["srv-nonce", undefined], ["srv\"n", "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU"]]) {
  const proof = await dpop.generateProof({ privateKey, publicKey }, "https://resource.example.org/protectedresource", "GET", nonce, token);
  const headers = { DPoP: proof };
  if (token) headers.Authorization = `DPoP ${token}`;
  records.push({
    recipe: "dpop-es256", judge: `dpop ${version("dpop")} (npm)`, method: "GET",
    url: "https://resource.example.org/protectedresource?a=b", headers, content: "", parts: { secret },
  });
}

const shopify = shopifyApi({
  apiKey: "key", apiSecretKey: "hush", apiVersion: "2025-01", scopes: [], hostName: "app.example", isEmbeddedApp: false,
  logger: { log: async () => {} },
});
const content = '{"id":820982911946154508,"email":"jon@example.com"}';
const headers = {
  "X-Shopify-Hmac-Sha256": createHmac("sha256", "hush").update(content).digest("base64"),
  "X-Shopify-Topic": "orders/create", "X-Shopify-Shop-Domain": "a.myshopify.com", "X-Shopify-API-Version": "2025-01",
  "X-Shopify-Webhook-Id": "1", "Content-Type": "application/json",
};
const answer = await shopify.webhooks.validate({ rawBody: content, rawRequest: { method: "POST", url: "/", headers } });
if (!answer.valid) throw new Error(`not valid: ${JSON.stringify(answer)}`);
records.push({
  recipe: "shopify-webhook", judge: `@shopify/shopify-api ${version("@shopify/shopify-api")} (npm)`, method: "POST",
  url: "https://hooks.example/shopify", headers, content, parts: { secret: "hush" },
});
console.log(JSON.stringify(records, null, 1));
