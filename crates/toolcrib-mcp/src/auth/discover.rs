//! Who gives out the tokens that a server takes.

use reqwest::Url;
use serde::Deserialize;

use super::challenge::Challenge;
use super::fetch::{Fetch, origin};

/// What is known of a server that wants a login.
#[derive(Debug)]
pub(super) struct Found {
    /// What tokens are to be for, as the server itself writes it.
    pub(super) resource: String,
    /// The scopes that it knows.
    pub(super) scopes: Vec<String>,
    pub(super) authority: Authority,
}

/// What an authorization server says of itself (RFC 8414).
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Authority {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: String,
    pub(super) token_endpoint: String,
    pub(super) registration_endpoint: Option<String>,
    pub(super) revocation_endpoint: Option<String>,
    #[serde(default)]
    pub(super) scopes_supported: Vec<String>,
    #[serde(default)]
    pub(super) code_challenge_methods_supported: Vec<String>,
    pub(super) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    pub(super) client_id_metadata_document_supported: bool,
}

/// What a server says of the tokens it takes (RFC 9728).
#[derive(Deserialize)]
struct Resource {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

/// Finds out where to log in for a server.
pub(super) async fn find(
    fetch: &Fetch,
    server: &Url,
    challenge: &Challenge,
) -> Result<Found, String> {
    let Some(resource) = resource(fetch, server, challenge).await? else {
        // Before there was such a document, a server was its own authorization server.
        let own = origin(server);
        let authority = authority(fetch, &own).await.map_err(|_| {
            "it does not say where to log in: it may want another kind of credentials; set \
             `bearer_token` or `headers`"
                .to_owned()
        })?;
        return Ok(Found { resource: plain(server), scopes: Vec::new(), authority });
    };
    let issuer = resource.authorization_servers.first();
    let issuer = issuer.ok_or("its metadata names no authorization server")?;
    Ok(Found {
        authority: authority(fetch, issuer).await?,
        resource: resource.resource,
        scopes: resource.scopes_supported,
    })
}

async fn resource(
    fetch: &Fetch,
    server: &Url,
    challenge: &Challenge,
) -> Result<Option<Resource>, String> {
    let named = challenge.resource_metadata.as_deref().and_then(|url| url.parse::<Url>().ok());
    // A server's word on itself is at the server.
    let named = named.filter(|url| url.origin() == server.origin());
    let well_known = "/.well-known/oauth-protected-resource";
    let path = server.path().trim_end_matches('/');
    let own = [format!("{well_known}{path}"), well_known.to_owned()];
    let own = own.iter().filter_map(|path| server.join(path).ok());
    let mut asked: Vec<Url> = Vec::new();
    for url in named.into_iter().chain(own) {
        if asked.contains(&url) {
            continue;
        }
        if let Some(found) = fetch.document::<Resource>(&url).await? {
            if !covers(&found.resource, server) {
                let text = "its metadata is that of another server, so no token for it can be had";
                return Err(text.to_owned());
            }
            return Ok(Some(found));
        }
        asked.push(url);
    }
    Ok(None)
}

/// Whether a token for this resource is one for the server: it is the server, or what it is part
/// of.
fn covers(resource: &str, server: &Url) -> bool {
    let Ok(url) = resource.parse::<Url>() else { return false };
    let (whole, part) = (url.path().trim_end_matches('/'), server.path().trim_end_matches('/'));
    let is_within = part.strip_prefix(whole).is_some_and(|it| it.is_empty() || it.starts_with('/'));
    url.origin() == server.origin() && is_within && url.fragment().is_none()
}

/// The server's address as a token can be for it.
fn plain(server: &Url) -> String {
    let mut url = server.clone();
    url.set_query(None);
    url.set_fragment(None);
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

async fn authority(fetch: &Fetch, issuer: &str) -> Result<Authority, String> {
    let base = fetch.allow("its authorization server", issuer)?;
    let shown = origin(&base);
    let path = base.path().trim_end_matches('/');
    let mut places = vec![
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        places.push(format!("{path}/.well-known/openid-configuration"));
    }
    for place in places {
        let Ok(url) = base.join(&place) else { continue };
        if let Some(found) = fetch.document::<Authority>(&url).await? {
            return check(fetch, found, issuer, &shown);
        }
    }
    Err(format!("its authorization server {shown} has no metadata"))
}

/// What is used of it must be its own, safe to use, and able to prevent a stolen code from being
/// of use.
fn check(fetch: &Fetch, found: Authority, issuer: &str, shown: &str) -> Result<Authority, String> {
    // Without a path, an address with a slash is the same address.
    let bare = |text: &str| match text.strip_suffix('/') {
        Some(bare) if bare.matches('/').count() == 2 => bare.to_owned(),
        _ => text.to_owned(),
    };
    if bare(&found.issuer) != bare(issuer) {
        return Err(format!("the metadata of its authorization server {shown} is another's"));
    }
    if !found.code_challenge_methods_supported.iter().any(|method| method == "S256") {
        return Err(format!("its authorization server {shown} does not offer PKCE with S256"));
    }
    fetch.allow("its page to log in", &found.authorization_endpoint)?;
    fetch.allow("its token endpoint", &found.token_endpoint)?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_the_server_or_what_it_is_part_of() {
        let server: Url = "https://a.example/x/mcp".parse().unwrap();
        for resource in [
            "https://a.example/x/mcp",
            "https://a.example/x/mcp/",
            "https://a.example/x",
            "https://a.example/",
            "https://a.example",
            "https://A.example:443",
        ] {
            assert!(covers(resource, &server), "{resource}");
        }
        for resource in [
            "https://b.example/x/mcp",
            "http://a.example/x/mcp",
            "https://a.example:8443",
            "https://a.example/x/mc",
            "https://a.example/x/mcp/more",
            "https://a.example/x/mcp#part",
            "a.example",
        ] {
            assert!(!covers(resource, &server), "{resource}");
        }
    }

    #[test]
    fn metadata_must_be_of_whom_it_was_asked_for() {
        let fetch = Fetch::new(&"https://a.example/mcp".parse().unwrap());
        let authority = |issuer: &str, methods: &[&str], token: &str| Authority {
            issuer: issuer.to_owned(),
            authorization_endpoint: "https://login.example/authorize".to_owned(),
            token_endpoint: token.to_owned(),
            registration_endpoint: None,
            revocation_endpoint: None,
            scopes_supported: Vec::new(),
            code_challenge_methods_supported: methods.iter().map(|&it| it.to_owned()).collect(),
            token_endpoint_auth_methods_supported: None,
            authorization_response_iss_parameter_supported: false,
            client_id_metadata_document_supported: false,
        };
        let fault = |found, issuer| check(&fetch, found, issuer, "x").err();
        let fine = "https://login.example/token";
        let pkce: &[&str] = &["plain", "S256"];
        let (one, slash) = ("https://login.example", "https://login.example/");
        assert_eq!(fault(authority(one, pkce, fine), one), None);
        assert_eq!(fault(authority(slash, pkce, fine), one), None);
        let tenant = "https://login.example/t";
        assert!(fault(authority(one, pkce, fine), tenant).unwrap().ends_with("is another's"));
        assert!(fault(authority("https://login.example/t/", pkce, fine), tenant).is_some());
        for methods in [&[][..], &["plain"]] {
            assert!(fault(authority(one, methods, fine), one).unwrap().contains("PKCE"));
        }
        let inside = "http://169.254.169.254/token";
        assert!(fault(authority(one, pkce, inside), one).unwrap().contains("is not https"));
    }
}
