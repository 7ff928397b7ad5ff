// An authorization server, and what stands before an MCP server: a guard that takes its tokens alone, and one that lets
// everything through and writes it down.
//
// Called with the address of the server behind. Prints one line of JSON: where each of them is. What a test wants of them is
// said to /control, and what they saw is answered.

import { createServer, request as ask } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const load = (name) => import(pathToFileURL(createRequire(`${process.env.PACKAGES}/`).resolve(name)));
const { default: Provider } = await load("oidc-provider");
const { createRemoteJWKSet, exportJWK, generateKeyPair, jwtVerify } = await load("jose");

const BEHIND = new URL(process.argv[2]);
const SCOPES = ["read", "mcp", "mcp:text", "mcp:all"];
const ways = { lifetime: 3600, audience: null, format: "jwt", clock: 0 };
const seen = { registered: 0, logins: 0, renewed: 0, refused: 0, revoked: 0, calls: 0, keys: 0, tokens: [], passed: [] };
const grants = new Set();

// The token endpoint can live in the past, and give tokens that have expired.
const now = Date.now;
let shift = 0;
Date.now = () => now() + shift * 1000;

const listen = (server) => new Promise((done) => server.listen(0, "127.0.0.1", () => done(server.address().port)));
const answer = (response, status, body, headers = {}) => {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(body));
};
const newKey = async (kid) => {
  const { privateKey } = await generateKeyPair("RS256", { extractable: true });
  return { ...(await exportJWK(privateKey)), use: "sig", alg: "RS256", kid };
};

const provide = (issuer, keys) => {
  const provider = new Provider(issuer, {
    jwks: { keys },
    cookies: { keys: ["one", "two"] },
    scopes: ["openid", "offline_access", ...SCOPES],
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    issueRefreshToken: (_, client) => client.grantTypeAllowed("refresh_token"),
    rotateRefreshToken: () => true,
    pkce: { required: () => true },
    ttl: { AuthorizationCode: 60, Grant: 3600, Interaction: 60, RefreshToken: 3600, Session: 3600 },
    features: {
      devInteractions: { enabled: false },
      registration: { enabled: true },
      revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        useGrantedResource: () => true,
        getResourceServerInfo: (_, resource) => ({
          scope: SCOPES.join(" "),
          audience: ways.audience ?? resource,
          accessTokenTTL: ways.lifetime,
          accessTokenFormat: ways.format,
          jwt: { sign: { alg: "RS256" } },
        }),
      },
    },
  });
  provider.on("registration_create.success", () => (seen.registered += 1));
  provider.on("grant.success", (context) => {
    seen[context.oidc.params.grant_type === "refresh_token" ? "renewed" : "logins"] += 1;
    seen.tokens.push(...["access_token", "refresh_token"].map((name) => context.body[name]).filter(Boolean));
  });
  provider.on("grant.error", () => (seen.refused += 1));
  provider.on("grant.revoked", () => (seen.revoked += 1));
  provider.on("refresh_token.destroyed", () => (seen.revoked += 1));
  return provider;
};

// A person who says yes to whatever is asked.
const agree = async (provider, request, response) => {
  const { prompt, params, session } = await provider.interactionDetails(request, response);
  if (prompt.name === "login") {
    return provider.interactionFinished(request, response, { login: { accountId: "ada" } });
  }
  const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  if (prompt.details.missingOIDCScope) grant.addOIDCScope(prompt.details.missingOIDCScope.join(" "));
  for (const [resource, scopes] of Object.entries(prompt.details.missingResourceScopes ?? {})) {
    grant.addResourceScope(resource, scopes.join(" "));
  }
  const grantId = await grant.save();
  grants.add(grantId);
  return provider.interactionFinished(request, response, { consent: { grantId } }, { mergeWithLastSubmission: true });
};

// Issues tokens in the name of an issuer, its own unless told, with the keys it is given.
const authority = async (keys, name) => {
  let handle;
  const server = createServer((request, response) => handle(request, response));
  const place = `http://localhost:${await listen(server)}`;
  const issuer = name ?? place;
  const it = {
    place,
    issuer,
    use: (keys) => {
      it.provider = provide(issuer, keys);
      const callback = it.provider.callback();
      handle = (request, response) => {
        const failed = (error) => answer(response, 500, { error: String(error) });
        if (request.url.startsWith("/interaction/")) return agree(it.provider, request, response).catch(failed);
        if (request.url.startsWith("/control")) return control(request, response).catch(failed);
        if (request.url === "/jwks") seen.keys += 1;
        shift = request.url === "/token" ? ways.clock : 0;
        return callback(request, response);
      };
    },
  };
  it.use(keys);
  return it;
};

const first = await newKey("first");
const main = await authority([first]);
const { issuer } = main;

// Others whose tokens look like the issuer's: with neither its name nor its key, with its key, with its name.
const impostors = {
  stranger: async () => authority([await newKey("strange")]),
  kin: async () => authority([first]),
  namesake: async () => authority([await newKey("first")], issuer),
};

// Ends every login, as an administrator would.
const revoke = async () => {
  for (const id of grants) {
    await main.provider.RefreshToken.revokeByGrantId(id);
    await (await main.provider.Grant.find(id))?.destroy();
  }
  grants.clear();
};

const control = async (request, response) => {
  const { searchParams } = new URL(request.url, issuer);
  for (const name of ["lifetime", "clock"]) if (searchParams.has(name)) ways[name] = Number(searchParams.get(name));
  if (searchParams.has("audience")) ways.audience = searchParams.get("audience") || null;
  if (searchParams.has("format")) ways.format = searchParams.get("format");
  if (searchParams.has("revoke")) await revoke();
  if (searchParams.has("rotate")) main.use([await newKey(searchParams.get("rotate"))]);
  if (searchParams.has("impostor")) seen.impostor = (await impostors[searchParams.get("impostor")]()).place;
  answer(response, 200, seen);
};

const passOn = (request, response, headers) => {
  const passed = ask({ host: BEHIND.hostname, port: BEHIND.port, path: BEHIND.pathname, method: request.method, headers });
  passed.on("response", (back) => response.writeHead(back.statusCode, back.headers) && back.pipe(response));
  passed.on("error", () => response.destroy());
  response.on("close", () => passed.destroy());
  request.pipe(passed);
};

const keys = createRemoteJWKSet(new URL(`${issuer}/jwks`));
const guarded = createServer((request, response) => guard(request, response));
const origin = `http://127.0.0.1:${await listen(guarded)}`;
const resource = `${origin}/mcp`;
const document = "/.well-known/oauth-protected-resource/mcp";
const guard = async (request, response) => {
  if (request.url === document) {
    return answer(response, 200, { resource, authorization_servers: [issuer], scopes_supported: ["read"] });
  }
  const token = /^Bearer (.+)$/.exec(request.headers.authorization ?? "")?.[1];
  try {
    await jwtVerify(token ?? "", keys, { issuer, audience: resource, clockTolerance: 0 });
  } catch {
    const wanted = `Bearer resource_metadata="${origin}${document}", scope="read"`;
    return answer(response, 401, { error: "invalid_token" }, { "www-authenticate": wanted });
  }
  const { authorization, host, ...headers } = request.headers;
  passOn(request, response, headers);
  seen.calls += 1;
};

const recorder = createServer((request, response) => {
  const { host, ...headers } = request.headers;
  const passed = { path: request.url, headers: request.rawHeaders, body: "" };
  seen.passed.push(passed);
  request.on("data", (chunk) => (passed.body += chunk));
  passOn(request, response, headers);
});
const recorded = `http://127.0.0.1:${await listen(recorder)}/mcp`;

console.log(JSON.stringify({ issuer, resource, recorded }));
