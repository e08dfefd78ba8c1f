// The OpenAI SDK for Node: a chat completion, and one that streams.
import OpenAI from 'openai'
import { API, Stream, WORDS, assert, verdict } from './verdict.mjs'
import './proxy.mjs'

await verdict('openai-node', async () => {
  const client = new OpenAI({ baseURL: `${API}/v1`, maxRetries: 0, timeout: 20000 })
  const asked = { model: 'gpt-lab', messages: [{ role: 'user', content: WORDS }] }
  const whole = await client.chat.completions.create(asked)
  assert(whole.choices[0].message.content === WORDS, 'other words')
  const stream = new Stream()
  let text = ''
  for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) {
    stream.part()
    text += chunk.choices[0].delta.content ?? ''
  }
  assert(text === WORDS, text)
  stream.check()
})
