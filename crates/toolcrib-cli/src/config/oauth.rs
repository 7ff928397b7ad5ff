//! `[servers.NAME.oauth]`: how to log in at a server.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolcrib::mcp::OAuth;

use super::expand::Expansion;
use super::secret::Secret;

/// How to log in at a server that wants it. Nothing of it is needed where clients are registered
/// when they ask. In `issuer`, `client_id`, `client_secret` and `client_metadata_url`, `${VAR}` stands for
/// environment variables.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OAuthEntry {
    /// The authorization server to log in at, by its issuer. Another one that the server names is
    /// refused. Needed with `client_secret`.
    pub(crate) issuer: Option<String>,
    /// The client that was registered for toolcrib at the authorization server.
    pub(crate) client_id: Option<String>,
    /// Its secret, if it has one.
    pub(crate) client_secret: Option<Secret>,
    /// The https address of a client metadata document, for authorization servers that read one.
    pub(crate) client_metadata_url: Option<String>,
    /// What to ask for besides what the server wants.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) scopes: Vec<String>,
    /// The port on this machine that a browser brings the answer to. Any that is free unless
    /// given.
    #[schemars(range(min = 1))]
    pub(crate) redirect_port: Option<u16>,
}

impl OAuthEntry {
    /// The first thing wrong with it.
    pub(super) fn fault(&self) -> Option<String> {
        let is_document = |url: &str| url.starts_with("https://") || url.starts_with("${");
        if self.client_secret.is_some() && self.client_id.is_none() {
            return Some("`client_secret` goes with `client_id`, which is not there".to_owned());
        }
        if self.client_secret.is_some() && self.issuer.is_none() {
            let text = "`client_secret` goes with `issuer`, which is not there: add `issuer`, the \
                        authorization server that gave the secret, so that no other is sent it";
            return Some(text.to_owned());
        }
        if self.client_metadata_url.as_deref().is_some_and(|url| !is_document(url)) {
            return Some("`client_metadata_url` must start with https://".to_owned());
        }
        if self.redirect_port == Some(0) {
            return Some("`redirect_port` must be from 1 to 65535".to_owned());
        }
        let is_scope = |scope: &String| {
            let is_letter = |c: char| ('!'..='~').contains(&c) && !['"', '\\'].contains(&c);
            !scope.is_empty() && scope.chars().all(is_letter)
        };
        let odd = self.scopes.iter().find(|scope| !is_scope(scope));
        odd.map(|scope| format!("`{scope}` can't be a scope"))
    }

    pub(super) fn expand(&self, with: &Expansion<'_>) -> Result<OAuth, String> {
        let expand = |text: &Option<String>| text.as_deref().map(|it| with.expand(it)).transpose();
        let secret = self.client_secret.as_ref().map(Secret::expose);
        Ok(OAuth {
            issuer: expand(&self.issuer)?,
            client_id: expand(&self.client_id)?,
            client_secret: secret.map(|secret| with.expand(secret)).transpose()?,
            client_metadata_url: expand(&self.client_metadata_url)?,
            scopes: self.scopes.clone(),
            redirect_port: self.redirect_port,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_not_work_is_said() {
        let fault = |text: &str| toml::from_str::<OAuthEntry>(text).unwrap().fault();
        let agreed = "client_id = 'a'\nclient_secret = '${B}'\n";
        let issuer = "issuer = 'https://a.example'\nscopes = ['a:b/c']";
        assert_eq!(fault(&format!("{agreed}{issuer}")), None);
        assert_eq!(fault("client_id = 'a'"), None);
        for (text, part) in [
            ("client_secret = 'a'", "goes with `client_id`"),
            (agreed, "goes with `issuer`"),
            ("client_metadata_url = 'http://a/b'", "https://"),
            ("redirect_port = 0", "from 1 to 65535"),
            ("scopes = ['a b']", "`a b` can't be a scope"),
        ] {
            assert!(fault(text).unwrap().contains(part), "{text}");
        }
    }
}
