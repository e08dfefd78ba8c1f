// One line a client: `ok NAME`, or `FAIL NAME why`, and the exit code that goes with it.
export const API = process.env.BASE_API
export const WORDS = 'one two three four five six seven eight nine ten'

export async function verdict (name, check) {
  try {
    await check()
    console.log(`ok ${name}`)
  } catch (error) {
    const cause = error.cause ? ` (${error.cause.code ?? ''} ${error.cause.message ?? error.cause})` : ''
    console.log(`FAIL ${name} ${error.message}${cause}`.replace(/\s+/g, ' ').slice(0, 300))
    process.exitCode = 1
  }
}

export function assert (truth, why) {
  if (!truth) throw new Error(why)
}

// Notes when the parts of a stream come: one that was held back comes all at once.
export class Stream {
  times = []
  part () { this.times.push(performance.now()) }
  check () {
    assert(this.times.length >= 5, `${this.times.length} parts`)
    const took = this.times.at(-1) - this.times[0]
    assert(took > 150, `the whole stream came within ${took.toFixed(0)} ms: it was held back`)
  }
}
