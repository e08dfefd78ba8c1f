// Makes a DPoP proof with a key that is given as PEM: a copy beside `node_modules` reads what is asked for and prints the proof.
import { createPrivateKey, createPublicKey, webcrypto } from "node:crypto";
import { readFileSync } from "node:fs";
import * as dpop from "dpop";

const { secret, url, method, token, nonce } = JSON.parse(readFileSync(0, "utf8"));
const key = createPrivateKey(secret);
const algorithm = { name: "ECDSA", namedCurve: "P-256" };
const imported = (key, use) => webcrypto.subtle.importKey("jwk", key.export({ format: "jwk" }), algorithm, true, use);
const pair = { privateKey: await imported(key, ["sign"]), publicKey: await imported(createPublicKey(key), ["verify"]) };
console.log(await dpop.generateProof(pair, url, method, nonce ?? undefined, token ?? undefined));
