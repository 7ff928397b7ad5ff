//! Models that run on this machine, found by asking at the usual ports.

use std::time::Duration;

use serde_json::Value;
use toolcrib::agent::providers::Ollama;

use super::{Wanted, given, proxy};
use crate::config::{Environment, ProviderName, mask_url};

/// Where llama.cpp's server listens unless told otherwise.
const LLAMA_CPP: &str = "http://127.0.0.1:8080/v1";

/// How long something on this machine may take to say that it is there.
const SOON: Duration = Duration::from_millis(400);

/// How long something that is known to be there may take to list its models.
pub(super) const PATIENT: Duration = Duration::from_secs(10);

/// The longest list that is read, in bytes.
const LONGEST: usize = 1 << 20;

/// Something that may run on this machine.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    provider: ProviderName,
    url: String,
    list: &'static str,
}

impl Local {
    /// What may be there, in the order of asking.
    pub(crate) fn usual(env: &Environment) -> [Self; 2] {
        let ollama = given(env, "OLLAMA_HOST").map_or(Ollama::HOME.to_owned(), ollama_at);
        [
            Self { provider: ProviderName::Ollama, url: ollama, list: "api/tags" },
            Self { provider: ProviderName::OpenaiChat, url: LLAMA_CPP.to_owned(), list: "models" },
        ]
    }
}

/// The address in what `OLLAMA_HOST` may say: `host`, `host:port`, `:port` or an address.
pub(super) fn ollama_at(host: &str) -> String {
    if host.contains("://") {
        return host.to_owned();
    }
    let host = host.trim_end_matches('/');
    // Where it listens at every address, it is asked at this one.
    let host = match host.strip_prefix("0.0.0.0").unwrap_or(host) {
        rest if rest.is_empty() || rest.starts_with(':') => format!("127.0.0.1{rest}"),
        host => host.to_owned(),
    };
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    format!("http://{host}{}", if has_port { "" } else { ":11434" })
}

/// The first that answers with models, and its first model unless one is named.
pub(super) async fn find(wanted: Wanted, local: &[Local], env: &Environment) -> Option<Wanted> {
    for Local { provider, url, list } in local {
        let proxy = proxy::of(url, env);
        if let Ok(first) = first_model(url, list, None, proxy.as_deref(), SOON).await {
            return Some(Wanted {
                provider: Some(*provider),
                model: wanted.model.or(Some(first)),
                base_url: Some(url.clone()),
                key_env: wanted.key_env,
            });
        }
    }
    None
}

/// The first model that is listed at an address; or why there is none.
pub(super) async fn first_model(
    base: &str,
    list: &str,
    key: Option<&str>,
    proxy: Option<&str>,
    limit: Duration,
) -> Result<String, String> {
    let url = format!("{}/{list}", base.trim_end_matches('/'));
    let ask = async {
        // The environment was read once, and not by the client.
        let client = reqwest::Client::builder().no_proxy();
        let mut client = client.redirect(reqwest::redirect::Policy::none());
        if let Some(proxy) = proxy {
            client = client.proxy(reqwest::Proxy::all(proxy)?);
        }
        let mut request = client.build()?.get(&url);
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        let mut answer = request.send().await?.error_for_status()?;
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await? {
            body.extend_from_slice(&piece);
            if body.len() > LONGEST {
                break;
            }
        }
        Ok::<_, reqwest::Error>(body)
    };
    let no = |why: String| format!("{} lists none: {why}", mask_url(&url));
    let body = match tokio::time::timeout(limit, ask).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => return Err(no(reason(&error))),
        Err(_) => return Err(no("it does not answer".to_owned())),
    };
    first_in(&body).ok_or_else(|| no("it has none, or none that can be read".to_owned()))
}

/// OpenAI's form has `data[].id`, Ollama's `models[].name`; some have both.
fn first_in(body: &[u8]) -> Option<String> {
    let list: Value = serde_json::from_slice(body).ok()?;
    let first = |of: &str, name: &str| list[of][0][name].as_str().map(str::to_owned);
    first("data", "id").or_else(|| first("models", "name"))
}

/// The innermost cause: it says what happened, and those around it where.
fn reason(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    match error.status() {
        Some(status) => format!("it answers {status}"),
        None => cause.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Something that answers every request with this, and where it is.
    async fn listening(body: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let length = body.len();
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
                let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
            }
        });
        format!("http://{address}")
    }

    #[tokio::test]
    async fn what_answers_with_models_is_found_and_what_is_not_there_is_passed_over() {
        let ollama = listening(r#"{"models": [{"name": "qwen3:8b"}, {"name": "other"}]}"#).await;
        let web = listening("<html>").await;
        let of = |url: &str| Local {
            provider: ProviderName::Ollama,
            url: url.to_owned(),
            list: "api/tags",
        };
        let nowhere = of("http://127.0.0.1:1");
        let places = [nowhere.clone(), of(&web), of(&ollama)];
        let env = Environment::default();
        let found = find(Wanted::default(), &places, &env).await.unwrap();
        assert_eq!(found.model.as_deref(), Some("qwen3:8b"));
        assert_eq!((found.provider, found.base_url), (Some(ProviderName::Ollama), Some(ollama)));
        assert!(find(Wanted::default(), &[nowhere, of(&web)], &env).await.is_none());
    }

    #[tokio::test]
    async fn a_list_is_asked_for_through_the_proxy_that_is_named_only() {
        let proxy = listening(r#"{"data": [{"id": "a"}]}"#).await;
        let first = |proxy| first_model("http://api.invalid/v1", "models", None, proxy, SOON);
        assert_eq!(first(Some(&proxy)).await.as_deref(), Ok("a"));
        assert!(first(None).await.is_err());
    }

    #[test]
    fn ollama_is_where_its_variable_says() {
        for (host, url) in [
            ("box", "http://box:11434"),
            ("box:1", "http://box:1"),
            (":1", "http://127.0.0.1:1"),
            ("0.0.0.0", "http://127.0.0.1:11434"),
            ("0.0.0.0:1/", "http://127.0.0.1:1"),
            ("[::1]", "http://[::1]:11434"),
            ("https://box/ollama", "https://box/ollama"),
        ] {
            assert_eq!(ollama_at(host), url, "{host}");
        }
    }

    #[test]
    fn the_first_model_is_read_in_either_form() {
        assert_eq!(first_in(br#"{"data": [{"id": "a"}]}"#).as_deref(), Some("a"));
        assert_eq!(first_in(br#"{"models": [{"name": "b"}]}"#).as_deref(), Some("b"));
        for none in ["", "{}", "[]", r#"{"data": []}"#, r#"{"models": null}"#] {
            assert_eq!(first_in(none.as_bytes()), None, "{none}");
        }
    }
}
