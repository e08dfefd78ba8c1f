// A real authorization server: oidc.mjs PORT ISSUER KEY CERTIFICATE, beside the package.
import fs from 'node:fs'; import https from 'node:https'; import { createRequire } from 'node:module'
const [port, issuer, key, cert, packages] = process.argv.slice(2)
const { default: Provider } = await import(createRequire(packages + '/').resolve('oidc-provider'))
const redirect_uris = ['https://client.test/callback'], secret = 'a-secret-of-the-machine-of-40-characters-'
const grant_types = ['authorization_code', 'refresh_token', 'client_credentials', 'urn:ietf:params:oauth:grant-type:device_code']
const provider = new Provider(issuer, {
  clients: [{ client_id: 'app', redirect_uris, grant_types: grant_types.filter(one => one !== 'client_credentials'), token_endpoint_auth_method: 'none' },
    { client_id: 'machine', client_secret: secret, redirect_uris: [], response_types: [], grant_types: ['client_credentials'], token_endpoint_auth_method: 'client_secret_post' }],
  features: { devInteractions: { enabled: true }, deviceFlow: { enabled: true }, clientCredentials: { enabled: true }, revocation: { enabled: true } },
  rotateRefreshToken: true, issueRefreshToken: async () => true, pkce: { required: () => true }, scopes: ['openid', 'offline_access'],
  ttl: { AccessToken: 5, ClientCredentials: 60, RefreshToken: 3600, Grant: 3600, Session: 3600, IdToken: 60, Interaction: 600, DeviceCode: 600 },
  findAccount: async (_, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
})
for (const name of ['grant.success', 'grant.revoked', 'grant.error'])
  provider.on(name, (ctx, error) => console.log(JSON.stringify({ name, kind: ctx.oidc?.params?.grant_type, error: error?.error_detail ?? error?.message })))
for (const name of ['access_token.saved', 'client_credentials.saved', 'refresh_token.saved'])
  provider.on(name, token => console.log(JSON.stringify({ name, token: token.jti })))
provider.proxy = true
https.createServer({ key: fs.readFileSync(key), cert: fs.readFileSync(cert) }, provider.callback()).listen(Number(port), '127.0.0.1', () => console.log('ready'))
