//! Where an API is.

use reqwest::Url;

use super::AccessError;

/// The address of an API.
pub(super) fn parse_base(given: &str) -> Result<Url, AccessError> {
    let url = without_secrets(given);
    parse(given).map_err(|reason| AccessError::Url { url, reason })
}

/// The address of a proxy.
pub(super) fn parse_proxy(given: &str) -> Result<Url, AccessError> {
    let url = without_secrets(given);
    parse(given).map_err(|reason| AccessError::Proxy { url, reason })
}

fn parse(given: &str) -> Result<Url, String> {
    let mut url: Url = given.parse().map_err(|error| format!("{error}"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("it does not start with http:// or https://".to_owned());
    }
    url.set_fragment(None);
    Ok(url)
}

/// An address as it was given, without a user, a password and a query.
pub(super) fn without_secrets(given: &str) -> String {
    let given = given.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) =
        given.split_once("://").map_or(("", given), |(scheme, rest)| (scheme, rest));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    if scheme.is_empty() { rest.to_owned() } else { format!("{scheme}://{rest}") }
}

/// The address of a method. What the base ends with and the method begins with stands there once,
/// and the base's query stays.
pub(super) fn joined(base: &Url, method: &str) -> Url {
    let base_path = base.path().trim_end_matches('/');
    let starts = method.match_indices('/').map(|(at, _)| at).chain([method.len()]);
    let shared =
        starts.filter(|at| base_path.ends_with(&format!("/{}", &method[..*at]))).max().unwrap_or(0);
    let rest = method[shared..].trim_start_matches('/');
    let mut url = base.clone();
    url.set_path(format!("{base_path}/{rest}").trim_end_matches('/'));
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_appended_to_the_base() {
        let join =
            |base: &str, method: &str| joined(&parse_base(base).unwrap(), method).to_string();
        for (base, method, url) in [
            ("https://h", "v1/messages", "https://h/v1/messages"),
            ("https://h/v1/", "v1/messages", "https://h/v1/messages"),
            ("https://h/v1/messages", "v1/messages", "https://h/v1/messages"),
            ("https://h/v1", "chat/completions", "https://h/v1/chat/completions"),
            ("https://h/my-v1", "v1/messages", "https://h/my-v1/v1/messages"),
            ("http://h:1/a%20b/api", "api/chat", "http://h:1/a%20b/api/chat"),
            ("https://h/d?api-version=1#x", "responses", "https://h/d/responses?api-version=1"),
        ] {
            assert_eq!(join(base, method), url, "{base}");
        }
    }

    #[test]
    fn what_is_no_address_is_told_without_its_secrets() {
        let told = |base: &str| parse_base(base).unwrap_err().to_string();
        assert_eq!(
            told("localhost:11434"),
            "`localhost:11434` is not the address of an API: it does not start with http:// or \
             https://"
        );
        for base in ["ftp://user:hidden@h/?k=hidden", "http://user:hidden@", "hidden@", "http://"] {
            assert!(!told(base).contains("hidden"), "{}", told(base));
        }
    }
}
