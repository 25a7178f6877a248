// The certified `oidc-provider` as a process of its own. The arguments: a JSON object with `port`, `keys` (a private
// JWK set), `resources` (audiences that it issues tokens for), `ttl` (seconds of an access token), `opaque`, `bridges`
// (clients that sign people in themselves) and `assertions` (for whom identity assertions are given, by `audience`).
import { importJWK, SignJWT } from "jose";
import Provider, { errors } from "oidc-provider";

const { port, keys, resources, ttl, opaque, bridges = {}, assertions = {} } = JSON.parse(process.argv[2]);
const EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange";
const ID_JAG = "urn:ietf:params:oauth:token-type:id-jag";
const ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token";
const ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token";
const issuer = `http://127.0.0.1:${port}`;
const people = { ann: "ann@example.com", bob: "bob@example.com", eve: "eve@elsewhere.example" };

const provider = new Provider(issuer, {
  jwks: { keys },
  cookies: { keys: ["a secret of the tests"] },
  clients: [
    { client_id: "bridge", client_secret: "bridge-secret", grant_types: ["client_credentials"], redirect_uris: [], response_types: [] },
    { client_id: "page", token_endpoint_auth_method: "none", redirect_uris: ["http://127.0.0.1:18907/callback"], grant_types: ["authorization_code", "refresh_token"] },
    ...Object.entries(bridges).map(([id, redirect]) => ({
      client_id: id, client_secret: `${id}-secret`, redirect_uris: [redirect], grant_types: ["authorization_code", "refresh_token", EXCHANGE],
    })),
  ],
  scopes: ["openid", "offline_access", "tools"],
  claims: { openid: ["sub"], email: ["email", "email_verified"], groups: ["groups"] },
  conformIdTokenClaims: false,
  issueRefreshToken: async (_, client, code) => client.grantTypeAllowed("refresh_token") && (code.scopes.has("offline_access") || client.clientId in bridges),
  ttl: { AccessToken: ttl, ClientCredentials: ttl },
  async findAccount(_, id) {
    return { accountId: id, claims: async () => ({ sub: id, email: people[id], email_verified: true, groups: [`${id}s`] }) };
  },
  extraTokenClaims: (_, token) => (token.accountId ? { email: people[token.accountId], email_verified: true, groups: [`${token.accountId}s`] } : {}),
  features: {
    devInteractions: { enabled: true },
    registration: { enabled: true },
    introspection: { enabled: true, allowedPolicy: () => true },
    revocation: { enabled: true },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: (_, client) => (client.clientId in bridges ? undefined : resources[0]),
      useGrantedResource: () => true,
      getResourceServerInfo(_, indicator) {
        if (!resources.includes(indicator)) throw new Error("unknown resource");
        return { scope: "tools", audience: indicator, accessTokenTTL: ttl, accessTokenFormat: opaque ? "opaque" : "jwt", jwt: { sign: { alg: keys[0].alg } } };
      },
    },
  },
});

// It knows no token exchange (RFC 8693), neither for an access token of a server nor for an identity assertion (ID-JAG):
// this is the grant, as the RFC and the draft have it. What is spoiled of assertions is spoiled by the entry of the
// audience: `aud`, `ttl` and `jti` replace what would be right.
async function exchange(ctx) {
  const { client, params } = ctx.oidc;
  if (params.subject_token_type === ACCESS_TOKEN) return exchangeAccessToken(ctx);
  if (params.requested_token_type !== ID_JAG || params.subject_token_type !== ID_TOKEN) throw new errors.InvalidRequest("ID-JAG alone");
  let subject;
  try {
    subject = (await provider.IdToken.validate(params.subject_token, client)).payload;
  } catch {
    throw new errors.InvalidGrant("the subject token is not valid");
  }
  const now = Math.floor(Date.now() / 1000);
  if (subject.exp < now) throw new errors.InvalidGrant("the subject token has expired");
  const entry = assertions[params.audience];
  if (entry === undefined) throw new errors.InvalidTarget("nobody is vouched for there");
  const { email, email_verified, groups } = subject;
  const claims = { email, email_verified, groups, client_id: entry.client_id, resource: params.resource, ...(params.scope ? { scope: params.scope } : {}) };
  const [key] = keys;
  ctx.body = {
    issued_token_type: ID_JAG,
    access_token: await new SignJWT(claims)
      .setProtectedHeader({ alg: key.alg, kid: key.kid, typ: "oauth-id-jag+jwt" })
      .setIssuer(issuer).setSubject(subject.sub).setAudience(entry.aud ?? params.audience)
      .setJti(entry.jti ?? crypto.randomUUID()).setIssuedAt(now).setExpirationTime(now + (entry.ttl ?? 60))
      .sign(await importJWK(key)),
    token_type: "N_A",
    expires_in: entry.ttl ?? 60,
  };
}
// Whose subject token came from a refresh token is in the group `renewed`, so that a server behind can see it.
async function exchangeAccessToken(ctx) {
  const { client, params } = ctx.oidc;
  const subject = await provider.AccessToken.find(params.subject_token);
  if (subject === undefined || subject.clientId !== client.clientId) throw new errors.InvalidGrant("the subject token is not valid");
  if (!resources.includes(params.resource)) throw new errors.InvalidTarget("unknown resource");
  const now = Math.floor(Date.now() / 1000);
  const groups = [`${subject.accountId}s`, ...(subject.gty.includes("refresh_token") ? ["renewed"] : [])];
  const [key] = keys;
  ctx.body = {
    issued_token_type: ACCESS_TOKEN,
    access_token: await new SignJWT({ client_id: client.clientId, groups })
      .setProtectedHeader({ alg: key.alg, kid: key.kid, typ: "at+jwt" })
      .setIssuer(issuer).setSubject(subject.accountId).setAudience(params.resource)
      .setJti(crypto.randomUUID()).setIssuedAt(now).setExpirationTime(now + 600)
      .sign(await importJWK(key)),
    token_type: "Bearer",
    expires_in: 600,
  };
}
provider.registerGrantType(EXCHANGE, exchange, ["audience", "resource", "scope", "requested_token_type", "subject_token", "subject_token_type"]);

provider.listen(port, "127.0.0.1", () => console.log("ready"));
