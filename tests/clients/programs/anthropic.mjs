// The Anthropic SDK for Node: a message, and one that streams.
import Anthropic from '@anthropic-ai/sdk'
import { API, Stream, WORDS, assert, verdict } from './verdict.mjs'
import './proxy.mjs'

await verdict('anthropic-node', async () => {
  const client = new Anthropic({ baseURL: API, maxRetries: 0, timeout: 20000 })
  const asked = { model: 'claude-lab', max_tokens: 100, messages: [{ role: 'user', content: WORDS }] }
  const whole = await client.messages.create(asked)
  assert(whole.content[0].text === WORDS, 'other words')
  const stream = new Stream()
  let text = ''
  for await (const event of client.messages.stream(asked)) {
    if (event.type === 'content_block_delta') {
      stream.part()
      text += event.delta.text
    }
  }
  assert(text === WORDS, text)
  stream.check()
})
