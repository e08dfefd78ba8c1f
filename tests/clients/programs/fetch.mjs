// Node's own fetch: JSON, a stream of events, and an upload from a stream.
import { API, Stream, assert, verdict } from './verdict.mjs'
import './proxy.mjs'

await verdict('node-fetch', async () => {
  const headers = { authorization: `Bearer ${process.env.API_TOKEN}` }
  const answer = await fetch(`${API}/v1/whoami`, { headers })
  assert(answer.status === 200, `status ${answer.status}`)
  assert((await answer.json()).user === 'alice', 'not alice')
  const stream = new Stream()
  for await (const _ of (await fetch(`${API}/v1/events`, { headers })).body) stream.part()
  stream.check()
  const body = new ReadableStream({
    start (controller) {
      for (let n = 0; n < 20; n++) controller.enqueue(new Uint8Array(50000).fill(n))
      controller.close()
    }
  })
  const upload = await fetch(`${API}/v1/upload`, { method: 'POST', headers, body, duplex: 'half' })
  assert((await upload.json()).size === 1000000, 'the upload is short')
})
