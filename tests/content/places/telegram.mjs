// grammY: the token in the path, and a large file beside it.
import assert from "node:assert";
import { Readable } from "node:stream";
import { Api, InputFile } from "grammy";

const token = process.env.TELEGRAM_BOT_TOKEN;
const api = new Api(token);
assert.equal((await api.sendMessage(1, `my token is ${token}`)).message_id, 7);
const chunk = Buffer.alloc(1 << 20, "x");
const file = Readable.from((function* () {
  for (let at = 0; at < Number(process.env.MIB); at += 1) yield chunk;
})());
assert.equal((await api.sendDocument(1, new InputFile(file, "large"))).message_id, 7);
console.log("ok telegram");
