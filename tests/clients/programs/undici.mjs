// undici: HTTP/1.1 with pipelining, and HTTP/2.
import { dispatcher } from './proxy.mjs'
import { API, assert, verdict } from './verdict.mjs'

const http2 = process.argv[2] === 'h2'
await verdict(http2 ? 'undici-h2' : 'undici-h1', async () => {
  const pool = dispatcher(API, { allowH2: http2, connections: 2, pipelining: 4 })
  const headers = { authorization: `Bearer ${process.env.API_TOKEN}` }
  const answers = await Promise.all(Array.from({ length: 40 }, async () => {
    const answer = await pool.request({ origin: API, path: '/v1/whoami', method: 'GET', headers })
    assert(answer.statusCode === 200, `status ${answer.statusCode}`)
    return answer.body.json()
  }))
  assert(answers.every(answer => answer.user === 'alice'), 'not alice')
  await pool.close()
})
