// ws: text, a large binary message, and a clean close.
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import WebSocket from 'ws'
import { API, assert, verdict } from './verdict.mjs'
import { agent } from './proxy.mjs'

await verdict('ws', async () => {
  const headers = { authorization: `Bearer ${process.env.API_TOKEN}` }
  const socket = new WebSocket(`${API.replace('https:', 'wss:')}/v1/ws`, { headers, agent })
  await once(socket, 'open')
  socket.send('hello')
  assert(String((await once(socket, 'message'))[0]) === 'echo hello', 'no echo')
  const large = randomBytes(1000000)
  socket.send(large)
  assert(large.equals((await once(socket, 'message'))[0]), 'another message came back')
  socket.close(1000)
  assert((await once(socket, 'close'))[0] === 1000, 'not closed cleanly')
})
