// Node 20 knows no proxy variables: what a program must do itself, by HTTPS_PROXY (CONNECT) or ALL_PROXY (SOCKS5).
// With neither set, as in `gateway exec`, nothing is done.
import { HttpsProxyAgent } from 'https-proxy-agent'
import { SocksProxyAgent } from 'socks-proxy-agent'
import { Pool, ProxyAgent, Socks5ProxyAgent, setGlobalDispatcher } from 'undici'

const { HTTPS_PROXY: connect, ALL_PROXY: socks } = process.env
const socks5 = socks?.replace('socks5h:', 'socks5:')

// For undici, and for `fetch`, which takes undici's global dispatcher.
export function dispatcher (base, options = {}) {
  // By a tunnel it is the agent's TLS that offers HTTP/2.
  if (connect) return new ProxyAgent({ uri: connect, requestTls: { allowH2: options.allowH2 }, ...options })
  if (socks) return new Socks5ProxyAgent(socks5, { requestTls: { ALPNProtocols: [options.allowH2 ? 'h2' : 'http/1.1'] }, ...options })
  return base && new Pool(base, options)
}

// For `https.request`, and so for `ws`.
export const agent = connect ? new HttpsProxyAgent(connect) : socks ? new SocksProxyAgent(socks) : undefined

const global = dispatcher()
if (global) setGlobalDispatcher(global)
