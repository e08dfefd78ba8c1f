// discord.js: a webhook's token in the path.
import assert from "node:assert";
import { WebhookClient } from "discord.js";

const token = process.env.DISCORD_WEBHOOK_TOKEN;
const hook = new WebhookClient({ id: "123456789012345678", token });
assert.equal((await hook.send({ content: `by ${token}` })).id, "123456789012345679");
console.log("ok discord");
