//! What to ask, where and how.

use std::fmt;

use reqwest::Url;

/// A model behind an address.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointConfig {
    /// Where it is: what comes before `/embeddings` or `/api/embed`, or with it.
    pub url: String,
    /// The model's name there.
    pub model: String,
    /// Sent as `Authorization: Bearer …`.
    pub key: Option<String>,
    /// Which form requests take. Without it the address says: one that has a path, such as
    /// `https://api.openai.com/v1`, is OpenAI's, one that has none is Ollama's.
    pub format: Option<Format>,
    /// What the model wants before a text that is to be found.
    pub document_prefix: String,
    /// What it wants before what is looked for.
    pub query_prefix: String,
}

impl EndpointConfig {
    /// A model at an address, without a key.
    pub fn new(url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            model: model.into(),
            key: None,
            format: None,
            document_prefix: String::new(),
            query_prefix: String::new(),
        }
    }

    /// Where requests go, and in which form.
    pub(crate) fn target(&self) -> Result<(Url, Format), EndpointError> {
        let mut url: Url =
            self.url.trim().parse().map_err(|error| EndpointError::Url(format!("{error}")))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            let reason = "it does not start with http:// or https://";
            return Err(EndpointError::Url(reason.to_owned()));
        }
        let path = url.path().trim_end_matches('/').to_owned();
        let told = match path.as_str() {
            "" | "/api" => Format::Ollama,
            path if path.ends_with("/api/embed") => Format::Ollama,
            _ => Format::OpenAi,
        };
        let format = self.format.unwrap_or(told);
        let path = match format {
            Format::OpenAi if path.ends_with("/embeddings") => path,
            Format::OpenAi => format!("{path}/embeddings"),
            Format::Ollama if path.ends_with("/api/embed") => path,
            Format::Ollama => format!("{}/api/embed", path.trim_end_matches("/api")),
        };
        url.set_path(&path);
        Ok((url, format))
    }
}

impl fmt::Debug for EndpointConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.target().map(|(url, _)| without_secrets(&url));
        f.debug_struct("EndpointConfig")
            .field("url", &url.as_deref().unwrap_or("(no address)"))
            .field("model", &self.model)
            .field("key", &self.key.as_ref().map(|_| "(hidden)"))
            .finish_non_exhaustive()
    }
}

/// An address without a user, a password and a query.
pub(crate) fn without_secrets(url: &Url) -> String {
    let port = url.port().map_or(String::new(), |port| format!(":{port}"));
    format!("{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
}

/// The form of requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// `POST …/embeddings`, as OpenAI has it and most others do.
    OpenAi,
    /// `POST …/api/embed`, as Ollama has it.
    Ollama,
}

/// Why an endpoint can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The address is none.
    #[error("`url` is no address: {0}")]
    Url(String),
    /// The model has no name.
    #[error("`model` is empty")]
    Model,
    /// The key can't be sent.
    #[error("`key` has a character that can't be sent in a header")]
    Key,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_says_which_form_is_spoken() {
        for (url, target, format) in [
            ("http://localhost:11434", "http://localhost:11434/api/embed", Format::Ollama),
            ("http://localhost:11434/", "http://localhost:11434/api/embed", Format::Ollama),
            ("http://h/api", "http://h/api/embed", Format::Ollama),
            ("http://h/proxy/api/embed", "http://h/proxy/api/embed", Format::Ollama),
            ("https://api.openai.com/v1", "https://api.openai.com/v1/embeddings", Format::OpenAi),
            ("https://h/v1/embeddings/", "https://h/v1/embeddings", Format::OpenAi),
            ("https://h/openai/v1?v=2", "https://h/openai/v1/embeddings?v=2", Format::OpenAi),
        ] {
            let (found, form) = EndpointConfig::new(url, "m").target().unwrap();
            assert_eq!((found.as_str(), form), (target, format), "{url}");
        }
        let mut config = EndpointConfig::new("http://h:8080", "m");
        config.format = Some(Format::OpenAi);
        assert_eq!(config.target().unwrap().0.as_str(), "http://h:8080/embeddings");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for url in ["", "localhost:11434", "/v1", "ftp://h/v1", "http://"] {
            let refused = EndpointConfig::new(url, "m").target();
            assert!(matches!(refused, Err(EndpointError::Url(_))), "{url}: {refused:?}");
        }
    }

    #[test]
    fn nothing_secret_is_in_the_debug_form() {
        let mut config = EndpointConfig::new("https://me:hunter2@h:8/v1?k=hunter2", "m");
        config.key = Some("hunter2".to_owned());
        let shown = format!("{config:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("https://h:8/v1/embeddings"), "{shown}");
    }
}
