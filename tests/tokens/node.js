// macaroons.js with the tokens of tests/tokens: one case on standard input, what came of it on standard output.
const { createHmac } = require('crypto')
const { MacaroonsBuilder, MacaroonsVerifier } = require('macaroons.js')

const hmac = (key, ...parts) => parts.reduce((mac, part) => mac.update(part), createHmac('sha256', key)).digest()
const sessionKey = (key, session) => hmac('macaroons-key-generator', hmac(key, 'macaroon', session, '\x01'))

const one = JSON.parse(require('fs').readFileSync(0, 'utf8'))
const key = sessionKey(Buffer.from(one.key, 'hex'), one.session)
const theirs = MacaroonsBuilder.deserialize(one.token)
const verified = (satisfied, key) => {
  const verifier = new MacaroonsVerifier(theirs)
  satisfied.forEach(caveat => verifier.satisfyExact(caveat))
  return verifier.isValid(key)
}
const own = new MacaroonsBuilder('', key, Buffer.from(one.identifier, 'hex').toString())
one.caveats.forEach(caveat => own.add_first_party_caveat(caveat))
process.stdout.write(JSON.stringify({
  version: require('macaroons.js/package.json').version,
  verified: verified(one.caveats, key),
  by_another_key: verified(one.caveats, Buffer.alloc(32, 7)),
  without_a_caveat: verified(one.caveats.slice(1), key),
  minted: own.getMacaroon().serialize(),
  narrowed: MacaroonsBuilder.modify(theirs).add_first_party_caveat(one.added).getMacaroon().serialize(),
}))
