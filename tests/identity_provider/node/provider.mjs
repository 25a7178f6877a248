// The certified `oidc-provider` as a process of its own. The arguments: a JSON object with `port`, `keys` (a private
// JWK set), `resources` (audiences that it issues tokens for), `ttl` (seconds of an access token), `opaque`.
import Provider from "oidc-provider";

const { port, keys, resources, ttl, opaque } = JSON.parse(process.argv[2]);
const issuer = `http://127.0.0.1:${port}`;
const people = { ann: "ann@example.com", bob: "bob@example.com", eve: "eve@elsewhere.example" };

const provider = new Provider(issuer, {
  jwks: { keys },
  cookies: { keys: ["a secret of the tests"] },
  clients: [
    { client_id: "bridge", client_secret: "bridge-secret", grant_types: ["client_credentials"], redirect_uris: [], response_types: [] },
    { client_id: "page", token_endpoint_auth_method: "none", redirect_uris: ["http://127.0.0.1:18907/callback"], grant_types: ["authorization_code", "refresh_token"] },
  ],
  scopes: ["openid", "offline_access", "tools"],
  claims: { openid: ["sub"], email: ["email", "email_verified"] },
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
      defaultResource: () => resources[0],
      useGrantedResource: () => true,
      getResourceServerInfo(_, indicator) {
        if (!resources.includes(indicator)) throw new Error("unknown resource");
        return { scope: "tools", audience: indicator, accessTokenTTL: ttl, accessTokenFormat: opaque ? "opaque" : "jwt", jwt: { sign: { alg: keys[0].alg } } };
      },
    },
  },
});
provider.listen(port, "127.0.0.1", () => console.log("ready"));
