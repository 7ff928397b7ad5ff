//! Who this program is to an authorization server: what was agreed with it before, what is
//! published, or what it registers when asked.

use serde::Deserialize;
use serde_json::json;

use super::discover::Authority;
use super::fetch::Fetch;
use super::kept::{Client, Method, Registered};
use super::token::said;
use super::vault::Vault;
use crate::config::OAuth;

/// What it calls itself.
const NAME: &str = "toolcrib";

/// A client that answers may be sent to at `redirect_uri`.
pub(super) async fn client(
    fetch: &Fetch,
    vault: &Vault,
    config: &OAuth,
    authority: &Authority,
    redirect_uri: &str,
    scopes: &[String],
) -> Result<Client, String> {
    if let Some(issuer) = config.issuer.as_ref().filter(|issuer| **issuer != authority.issuer) {
        return Err(format!(
            "it sends people to the authorization server {}, but `oauth.issuer` is {issuer}",
            authority.issuer
        ));
    }
    if config.client_secret.is_some() && config.issuer.is_none() {
        return Err(
            "its `client_secret` would go wherever the server says: set `oauth.issuer` to \
                    the authorization server that gave the secret"
                .to_owned(),
        );
    }
    if let Some(id) = &config.client_id {
        let secret = config.client_secret.clone();
        let method = method(authority, secret.is_some(), None);
        return Ok(Client { id: id.clone(), secret, method });
    }
    if let Some(url) = &config.client_metadata_url
        && authority.client_id_metadata_document_supported
    {
        return Ok(Client { id: url.clone(), secret: None, method: Method::None });
    }
    let known = vault.registered(&authority.issuer).await?;
    let fits = |known: &Registered| known.redirect_uri == redirect_uri && !known.has_ended();
    if let Some(known) = known.filter(fits) {
        return Ok(known.client);
    }
    let Some(endpoint) = &authority.registration_endpoint else {
        return Err(format!(
            "its authorization server {} registers nobody by itself: register a client there, for \
             {redirect_uri}, and set `client_id` (and `redirect_port`) under `oauth`",
            authority.issuer
        ));
    };
    let endpoint = fetch.allow("its registration endpoint", endpoint)?;
    let wanted = method(authority, true, Some(Method::None));
    let mut about = json!({
        "client_name": NAME,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": wanted,
        "application_type": "native",
    });
    if !scopes.is_empty() {
        about["scope"] = scopes.join(" ").into();
    }
    let answer = fetch.post_json(&endpoint, &about).await?;
    if !answer.status.is_success() {
        let said = said(&answer);
        return Err(format!("its authorization server did not register this program: {said}"));
    }
    let registered: Answer = serde_json::from_slice(&answer.body)
        .map_err(|_| "its authorization server's registration can't be read".to_owned())?;
    let given = registered.token_endpoint_auth_method.as_deref().and_then(known_method);
    let method = method(authority, registered.client_secret.is_some(), given.or(Some(wanted)));
    let client = Client { id: registered.client_id, secret: registered.client_secret, method };
    let ends = registered.client_secret_expires_at.filter(|end| *end > 0);
    let kept = Registered {
        client: client.clone(),
        redirect_uri: redirect_uri.to_owned(),
        ends: ends.map(|seconds| seconds.saturating_mul(1000)),
    };
    vault.keep_registered(&authority.issuer, &kept).await?;
    Ok(client)
}

#[derive(Deserialize)]
struct Answer {
    client_id: String,
    client_secret: Option<String>,
    client_secret_expires_at: Option<u64>,
    token_endpoint_auth_method: Option<String>,
}

/// How a client proves who it is: as it was told or would rather, if the authorization server
/// takes that.
fn method(authority: &Authority, has_secret: bool, rather: Option<Method>) -> Method {
    if !has_secret {
        return Method::None;
    }
    let taken: Vec<Method> = match &authority.token_endpoint_auth_methods_supported {
        Some(methods) => methods.iter().filter_map(|method| known_method(method)).collect(),
        // What holds if nothing is said.
        None => vec![Method::ClientSecretBasic],
    };
    let mut order = rather.into_iter().chain([
        Method::ClientSecretBasic,
        Method::ClientSecretPost,
        Method::None,
    ]);
    order.find(|method| taken.contains(method)).unwrap_or(Method::ClientSecretBasic)
}

fn known_method(name: &str) -> Option<Method> {
    serde_json::from_value(name.into()).ok()
}
