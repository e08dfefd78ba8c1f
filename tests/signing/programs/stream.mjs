// AWS SDK for JavaScript v3: a signed event stream over HTTP/2, both ways at once.

import { StartStreamTranscriptionCommand, TranscribeStreamingClient } from "@aws-sdk/client-transcribe-streaming";

const sizes = [1, 4096, 32000, 20000, 7];

async function* audio() {
  for (const size of sizes) {
    yield { AudioEvent: { AudioChunk: new Uint8Array(size).fill(size % 251) } };
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const heard = async () => {
  const client = new TranscribeStreamingClient({ maxAttempts: 1 });
  const answer = await client.send(new StartStreamTranscriptionCommand({ LanguageCode: "en-US", MediaEncoding: "pcm", MediaSampleRateHertz: 16000, AudioStream: audio() }));
  const found = [];
  for await (const event of answer.TranscriptResultStream) {
    if (!event.TranscriptEvent) throw new Error(JSON.stringify(event));
    found.push(Number(event.TranscriptEvent.Transcript.Results[0].Alternatives[0].Transcript));
  }
  let sum = 0;
  const wanted = sizes.map((size) => (sum += size));
  if (JSON.stringify(found) !== JSON.stringify(wanted)) throw new Error(`${found} instead of ${wanted}`);
};

heard().then(
  () => console.log("ok event stream"),
  (error) => {
    if (process.env.SIGNING_VERBOSE) console.error(error);
    console.log(`FAIL event stream: ${error.name}: ${String(error.message).replace(/\s+/g, " ").slice(0, 400)}`);
    process.exitCode = 1;
  },
).finally(() => process.exit());
