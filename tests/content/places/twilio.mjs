// Twilio's SDK: the token as the password of Basic.
import assert from "node:assert";
import twilio from "twilio";

const token = process.env.TWILIO_AUTH_TOKEN;
const client = twilio("AC00000000000000000000000000000001", token);
const message = await client.messages.create({ from: "+15550001", to: "+15550002", body: token });
assert.equal(message.sid, "SM1");
console.log("ok twilio");
