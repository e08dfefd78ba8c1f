// AWS SDK for JavaScript v3: S3 as programs use it, and the other services.

import { createHash } from "node:crypto";
import https from "node:https";
import { Readable } from "node:stream";
import { BedrockRuntimeClient, ConverseStreamCommand, InvokeModelCommand, InvokeModelWithResponseStreamCommand } from "@aws-sdk/client-bedrock-runtime";
import { DeleteTableCommand, DynamoDBClient, GetItemCommand, PutItemCommand } from "@aws-sdk/client-dynamodb";
import * as S3 from "@aws-sdk/client-s3";
import { GetSecretValueCommand, SecretsManagerClient } from "@aws-sdk/client-secrets-manager";
import { ReceiveMessageCommand, SendMessageCommand, SQSClient } from "@aws-sdk/client-sqs";
import { GetCallerIdentityCommand, STSClient } from "@aws-sdk/client-sts";
import { Upload } from "@aws-sdk/lib-storage";
import { getSignedUrl } from "@aws-sdk/s3-request-presigner";
import { NodeHttpHandler } from "@smithy/node-http-handler";
import { HttpsProxyAgent } from "https-proxy-agent";

const { SIGNING_BUCKET: Bucket, SIGNING_CLIENT: client, HTTPS_PROXY: proxy } = process.env;
const keys = JSON.parse(process.env.SIGNING_KEYS);
const chosen = (process.env.SIGNING_OPERATIONS || "").split(",").filter(Boolean);
// Node 20 reads no proxy variable.
const httpsAgent = proxy ? new HttpsProxyAgent(proxy, { keepAlive: true }) : new https.Agent({ keepAlive: true });
const common = { requestHandler: new NodeHttpHandler({ httpsAgent }), maxAttempts: 1 };
const s3 = new S3.S3Client({ ...common, forcePathStyle: true });

const Key = (name) => `${client}/${name}`;
const at = (name) => ({ Bucket, Key: Key(name) });
const send = (name, input, to = s3) => to.send(new S3[name + "Command"](input));
const read = async (name, more = {}) => Buffer.from(await (await send("GetObject", { ...at(name), ...more })).Body.transformToByteArray());
const content = (size) => Buffer.alloc(size, Buffer.from(Array.from({ length: 256 }, (_, at) => at)));
const text = (value) => (Buffer.isBuffer(value) && value.length > 200 ? createHash("sha256").update(value).digest("hex") : JSON.stringify(Buffer.isBuffer(value) ? value.toString() : value));
const same = (found, wanted) => {
  if (text(found) !== text(wanted)) throw new Error(`${text(found)} instead of ${text(wanted)}`);
};

const fetched = (url, method, body, headers = {}) => new Promise((resolve, reject) => {
  const request = https.request(url, { method, agent: httpsAgent, headers }, (response) => {
    const parts = [];
    response.on("data", (part) => parts.push(part)).on("end", () => (response.statusCode === 200 ? resolve(Buffer.concat(parts)) : reject(new Error(`${response.statusCode} ${Buffer.concat(parts)}`))));
  });
  request.on("error", reject).end(body);
});

const operations = {
  put: () => send("PutObject", { ...at("put"), Body: "hello", Metadata: { who: "judge" }, ContentType: "text/plain" }),
  get: async () => {
    const found = await send("GetObject", at("put"));
    same([await found.Body.transformToString(), found.Metadata], ["hello", { who: "judge" }]);
  },
  range: async () => {
    await send("PutObject", { ...at("range"), Body: content(100_000) });
    same(await read("range", { Range: "bytes=1000-1999" }), content(2000).subarray(1000));
  },
  head: async () => same((await send("HeadObject", at("put"))).ContentLength, 5),
  list: async () => {
    for (const name of ["a", "b/1", "b/2"]) await send("PutObject", { ...at("list/" + name), Body: "" });
    const found = [];
    for await (const page of S3.paginateListObjectsV2({ client: s3, pageSize: 2 }, { Bucket, Prefix: Key("list/") })) found.push(...page.Contents.map((item) => item.Key));
    same(found, ["a", "b/1", "b/2"].map((name) => Key("list/" + name)));
  },
  copy: async () => {
    await send("PutObject", { ...at("from ü+%"), Body: "copied" });
    await send("CopyObject", { ...at("to"), CopySource: encodeURI(`${Bucket}/${Key("from ü+%")}`).replaceAll("+", "%2B") });
    same(await read("to"), Buffer.from("copied"));
  },
  delete: async () => {
    for (const name of ["gone", "gone too"]) await send("PutObject", { ...at(name), Body: "" });
    await send("DeleteObject", at("gone"));
    await send("DeleteObjects", { Bucket, Delete: { Objects: [{ Key: Key("gone too") }] } });
    same((await send("ListObjectsV2", { Bucket, Prefix: Key("gone") })).KeyCount, 0);
  },
  multipart: async () => {
    const whole = content(17_000_000);
    await new Upload({ client: s3, params: { ...at("multipart"), Body: Readable.from([whole]) }, partSize: 6 << 20 }).done();
    same(await read("multipart"), whole);
  },
  keys: async () => {
    for (const name of keys) {
      await send("PutObject", { ...at(name), Body: name });
      same(await read(name), Buffer.from(name));
      same((await send("ListObjectsV2", { Bucket, Prefix: Key(name) })).Contents[0].Key, Key(name));
    }
  },
  checksums: async () => {
    for (const ChecksumAlgorithm of ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"]) {
      await send("PutObject", { ...at("sum"), Body: content(300_000), ChecksumAlgorithm });
      same(await read("sum", { ChecksumMode: "ENABLED" }), content(300_000));
    }
  },
  stream: async () => {
    await send("PutObject", { ...at("stream"), Body: Readable.from([content(50_000), content(20_000)]), ContentLength: 70_000 });
    same(await read("stream"), Buffer.concat([content(50_000), content(20_000)]));
  },
  "virtual host": async () => {
    await send("PutObject", { ...at("virtual host"), Body: "host" }, new S3.S3Client(common));
    same(await read("virtual host"), Buffer.from("host"));
  },
  "presigned get": async () => {
    await send("PutObject", { ...at("presigned ü"), Body: "by url" });
    same(await fetched(await getSignedUrl(s3, new S3.GetObjectCommand(at("presigned ü")), { expiresIn: 300 }), "GET"), Buffer.from("by url"));
  },
  "presigned put": async () => {
    await fetched(await getSignedUrl(s3, new S3.PutObjectCommand(at("presigned put")), { expiresIn: 300 }), "PUT", "put by url", { "Content-Length": 10 });
    same(await read("presigned put"), Buffer.from("put by url"));
  },
  dynamodb: async () => {
    const db = new DynamoDBClient(common), Item = { id: { S: "js ü" }, n: { N: "7" } };
    await db.send(new PutItemCommand({ TableName: "judges", Item }));
    same((await db.send(new GetItemCommand({ TableName: "judges", Key: { id: Item.id } }))).Item, Item);
  },
  sts: async () => same((await new STSClient(common).send(new GetCallerIdentityCommand({}))).Account, "123456789012"),
  sqs: async () => {
    const queues = new SQSClient(common), QueueUrl = process.env.AWS_ENDPOINT_URL_SQS + "/123456789012/judges";
    await queues.send(new SendMessageCommand({ QueueUrl, MessageBody: "from js <&>" }));
    same((await queues.send(new ReceiveMessageCommand({ QueueUrl }))).Messages[0].Body, "from js <&>");
  },
  bedrock: async () => {
    const answer = await bedrock().send(new InvokeModelCommand({ modelId: "anthropic.claude-3-sonnet-20240229-v1:0", body: JSON.stringify({ prompt: "hi" }) }));
    same(JSON.parse(Buffer.from(answer.body)), { completion: "echo hi" });
  },
  "bedrock stream": async () => {
    const modelId = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.x-v1:0";
    const answer = await bedrock().send(new InvokeModelWithResponseStreamCommand({ modelId, body: JSON.stringify({ prompt: "hi" }) }));
    const numbers = [];
    for await (const event of answer.body) numbers.push(JSON.parse(Buffer.from(event.chunk.bytes)).n);
    same(numbers, [0, 1, 2, 3, 4, 5, 6, 7]);
    const said = await bedrock().send(new ConverseStreamCommand({ modelId: "x-v1:0", messages: [{ role: "user", content: [{ text: "one two three" }] }] }));
    const words = [];
    for await (const event of said.stream) if (event.contentBlockDelta) words.push(event.contentBlockDelta.delta.text);
    same(words, ["one", "two", "three"]);
  },
  "service error": async () => {
    const error = await new DynamoDBClient(common).send(new DeleteTableCommand({ TableName: "judges" })).then(() => null, (error) => error);
    same(error?.name, "ResourceNotFoundException");
  },
  refusal: async () => {
    const asked = new SecretsManagerClient(common).send(new GetSecretValueCommand({ SecretId: "judge" }));
    if (process.env.SIGNING_DIRECT) return asked;
    const error = await asked.then(() => null, (error) => error);
    same([error?.name, error?.message.includes("gateway why ")], ["AccessDeniedException", true]);
  },
};

// Node's other HTTP client speaks HTTP/2 here, which goes by no proxy.
function bedrock() {
  return new BedrockRuntimeClient(common);
}

let failed = false;
for (const [name, operation] of Object.entries(operations)) {
  if (chosen.length && !chosen.includes(name)) continue;
  try {
    await operation();
    console.log(`ok ${name}`);
  } catch (error) {
    failed = true;
    if (process.env.SIGNING_VERBOSE) console.error(error);
    console.log(`FAIL ${name}: ${error.name}: ${String(error.message).replace(/\s+/g, " ").slice(0, 400)}`);
  }
}
process.exit(failed ? 1 : 0);
