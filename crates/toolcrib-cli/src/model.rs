//! Which model is asked, and through whose API: by the command line, else `[agent]` in the
//! configuration, else what the environment has a key for, else what runs on this machine.

mod local;
mod proxy;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use toolcrib::agent::providers::{
    Access, AccessError, Anthropic, Ollama, OpenAiChat, OpenAiResponses,
};
use toolcrib::agent::{Provider, Scripted};
use toolcrib::tokens::{Model, Models, Provider as Maker};

use crate::config::{AgentEntry, Environment, ProviderName};
use crate::output::Misuse;
pub(crate) use local::Local;

/// The model that is none, and needs nothing.
const SCRIPTED: &str = "scripted";

/// How long the model that is none pauses between words, for whoever watches.
const PACE: Duration = Duration::from_millis(8);

/// What is asked where no model is named.
const ANTHROPIC_MODEL: &str = "claude-sonnet-5-5";
const OPENAI_MODEL: &str = "gpt-6.1-sol";
/// Newer models take no tools through Chat Completions.
const OPENAI_CHAT_MODEL: &str = "gpt-4.1";

const NOTHING: &str = "\
there is no model to ask. Any one of these will do:
  ANTHROPIC_API_KEY                Anthropic's models
  OPENAI_API_KEY                   OpenAI's
  OPENAI_BASE_URL                  whatever speaks OpenAI's form: vLLM, LM Studio, OpenRouter
  ollama serve, llama-server       a model on this machine, at their usual ports
  --provider, --model, --base-url  or the same under [agent] in toolcrib.toml
`--model scripted` needs none of them: it does what you type, such as `search weather`.";

/// What was said about the model to ask.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) provider: Option<ProviderName>,
    pub(crate) model: Option<String>,
    pub(crate) base_url: Option<String>,
    pub(crate) key_env: Option<String>,
}

impl Wanted {
    /// What is left unsaid is what somebody else says, unless they mean another provider.
    pub(crate) fn or(self, other: Self, models: &Models) -> Self {
        if self.means_another_than(&other, models) {
            return self;
        }
        Self {
            provider: self.provider.or(other.provider),
            model: self.model.or(other.model),
            base_url: self.base_url.or(other.base_url),
            key_env: self.key_env.or(other.key_env),
        }
    }

    /// Whether an address or a key that somebody else names is not for the provider meant here.
    fn means_another_than(&self, other: &Self, models: &Models) -> bool {
        let made = |wanted: &Self| wanted.model.as_deref().and_then(|name| maker(name, models));
        let at_address = other.base_url.as_ref().map(|_| ProviderName::OpenaiChat);
        match (self.provider, other.provider.or(at_address)) {
            (Some(ours), Some(theirs)) => ours != theirs,
            (Some(ours), None) => made(other).is_some_and(|theirs| !is_one_maker(ours, theirs)),
            // One behind an address may be called anything there.
            (None, _) if other.base_url.is_some() => false,
            (None, theirs) => match (made(self), theirs.or_else(|| made(other))) {
                (Some(ours), Some(theirs)) => !is_one_maker(ours, theirs),
                _ => false,
            },
        }
    }
}

impl From<&AgentEntry> for Wanted {
    fn from(entry: &AgentEntry) -> Self {
        Self {
            provider: entry.provider,
            model: entry.model.clone(),
            base_url: entry.base_url.clone(),
            key_env: entry.key_env.clone(),
        }
    }
}

/// A model that can be asked.
#[derive(Clone)]
pub(crate) struct Chosen {
    pub(crate) provider: Arc<dyn Provider>,
    /// Whose it is, in the words of `--provider`.
    pub(crate) label: String,
    pub(crate) model: String,
    /// What it is called where models on one's own machine are known as such.
    local_name: Option<String>,
}

impl Chosen {
    /// What the table knows about it.
    pub(crate) fn known<'m>(&self, models: &'m Models) -> Option<&'m Model> {
        models.find(&self.model).or_else(|| models.find(self.local_name.as_deref()?))
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.label == self.model {
            true => f.write_str(&self.model),
            false => write!(f, "{} ({})", self.model, self.label),
        }
    }
}

/// Chooses what to ask. `local` is what may run on this machine; `watched` says whether a person
/// sees the answers come.
pub(crate) async fn choose(
    wanted: Wanted,
    models: &Models,
    env: &Environment,
    local: &[Local],
    watched: bool,
) -> anyhow::Result<Chosen> {
    if wanted.model.as_deref() == Some(SCRIPTED) {
        let scripted = Scripted::demo().with_pace(if watched { PACE } else { Duration::ZERO });
        let [label, model] = [SCRIPTED; 2].map(str::to_owned);
        return Ok(Chosen { provider: Arc::new(scripted), label, model, local_name: None });
    }
    let said = wanted.provider.or_else(|| by_model(&wanted, models, env));
    let wanted = match said.or_else(|| by_environment(&wanted, env)) {
        provider @ Some(_) => Wanted { provider, ..wanted },
        None => local::find(wanted, local, env).await.ok_or_else(|| Misuse::new(NOTHING))?,
    };
    let Some(provider) = wanted.provider else { return Err(Misuse::new(NOTHING).into()) };
    let base_url = wanted.base_url.clone().or_else(|| base_url(provider, env));
    let mut access = Access::default();
    access.key = key(provider, &wanted, base_url.is_some(), env)?;
    access.proxy = proxy::of(base_url.as_deref().unwrap_or(home(provider)), env);
    access.base_url.clone_from(&base_url);
    let model = match wanted.model {
        Some(model) => model,
        None => default_model(provider, base_url.as_deref(), &access).await?,
    };
    let is_local = provider == ProviderName::Ollama || base_url.is_some_and(|it| on_loopback(&it));
    let local_name = is_local.then(|| format!("local/{model}"));
    let label = provider.to_string();
    let provider = open(provider, access).map_err(Misuse::new)?;
    Ok(Chosen { provider, label, model, local_name })
}

fn open(provider: ProviderName, access: Access) -> Result<Arc<dyn Provider>, AccessError> {
    Ok(match provider {
        ProviderName::Anthropic => Arc::new(Anthropic::open(access)?),
        ProviderName::Openai => Arc::new(OpenAiResponses::open(access)?),
        ProviderName::OpenaiChat => Arc::new(OpenAiChat::open(access)?),
        ProviderName::Ollama => Arc::new(Ollama::open(access)?),
    })
}

/// Whom to ask for a model, by its name. One behind an address may be called anything there.
fn by_model(wanted: &Wanted, models: &Models, env: &Environment) -> Option<ProviderName> {
    let name = wanted.model.as_deref().filter(|_| wanted.base_url.is_none())?;
    let made = maker(name, models);
    let has_key = wanted.key_env.is_some() || given(env, "ANTHROPIC_API_KEY").is_some();
    match made {
        Some(ProviderName::Anthropic) if has_key => made,
        _ if given(env, "OPENAI_BASE_URL").is_some() => Some(ProviderName::OpenaiChat),
        _ => made,
    }
}

/// Whether whoever is asked through one of the APIs makes what the other is for.
fn is_one_maker(one: ProviderName, other: ProviderName) -> bool {
    let is_openai = |it| matches!(it, ProviderName::Openai | ProviderName::OpenaiChat);
    one == other || (is_openai(one) && is_openai(other))
}

/// Where a provider is unless told otherwise.
fn home(provider: ProviderName) -> &'static str {
    match provider {
        ProviderName::Anthropic => Anthropic::HOME,
        ProviderName::Openai => OpenAiResponses::HOME,
        ProviderName::OpenaiChat => OpenAiChat::HOME,
        ProviderName::Ollama => Ollama::HOME,
    }
}

/// Who makes a model of this name. What has a route or a tag in its name is served by others.
fn maker(name: &str, models: &Models) -> Option<ProviderName> {
    match models.find(name).filter(|_| !name.contains(['/', ':']))?.provider {
        Maker::Anthropic => Some(ProviderName::Anthropic),
        Maker::Openai => Some(ProviderName::Openai),
        Maker::Gemini | Maker::Other => None,
    }
}

fn by_environment(wanted: &Wanted, env: &Environment) -> Option<ProviderName> {
    let is_set = |name| given(env, name).is_some();
    match () {
        // What speaks OpenAI's form speaks the older one of the two.
        () if wanted.base_url.is_some() => Some(ProviderName::OpenaiChat),
        () if is_set("ANTHROPIC_API_KEY") => Some(ProviderName::Anthropic),
        () if is_set("OPENAI_BASE_URL") => Some(ProviderName::OpenaiChat),
        () if is_set("OPENAI_API_KEY") => Some(ProviderName::Openai),
        () => None,
    }
}

/// The address that the environment names for a provider.
fn base_url(provider: ProviderName, env: &Environment) -> Option<String> {
    match provider {
        ProviderName::Anthropic => {
            // By convention without the version, unlike the others.
            let url = given(env, "ANTHROPIC_BASE_URL")?.trim_end_matches('/');
            Some(if url.ends_with("/v1") { url.to_owned() } else { format!("{url}/v1") })
        }
        ProviderName::Openai | ProviderName::OpenaiChat => {
            given(env, "OPENAI_BASE_URL").map(str::to_owned)
        }
        ProviderName::Ollama => given(env, "OLLAMA_HOST").map(local::ollama_at),
    }
}

fn key(
    provider: ProviderName,
    wanted: &Wanted,
    has_address: bool,
    env: &Environment,
) -> anyhow::Result<Option<String>> {
    if let Some(name) = &wanted.key_env {
        let text =
            format!("environment variable `{name}`, which `agent.key_env` names, is not set");
        return Ok(Some(given(env, name).ok_or_else(|| Misuse::new(text))?.to_owned()));
    }
    let usual = match provider {
        ProviderName::Anthropic => "ANTHROPIC_API_KEY",
        ProviderName::Openai | ProviderName::OpenaiChat => "OPENAI_API_KEY",
        ProviderName::Ollama => "OLLAMA_API_KEY",
    };
    let key = given(env, usual);
    if key.is_none() && !has_address && provider != ProviderName::Ollama {
        let text = format!(
            "{provider} needs a key: set {usual}, or name another variable as `key_env` under \
             [agent] in toolcrib.toml; `--model scripted` needs none"
        );
        return Err(Misuse::new(text).into());
    }
    Ok(key.map(str::to_owned))
}

async fn default_model(
    provider: ProviderName,
    base_url: Option<&str>,
    access: &Access,
) -> anyhow::Result<String> {
    let (place, list) = match (provider, base_url) {
        (ProviderName::Anthropic, _) => return Ok(ANTHROPIC_MODEL.to_owned()),
        (ProviderName::Openai, _) => return Ok(OPENAI_MODEL.to_owned()),
        (ProviderName::OpenaiChat, None) => return Ok(OPENAI_CHAT_MODEL.to_owned()),
        (ProviderName::OpenaiChat, Some(url)) => (url, "models"),
        (ProviderName::Ollama, url) => (url.unwrap_or(Ollama::HOME), "api/tags"),
    };
    let (key, proxy) = (access.key.as_deref(), access.proxy.as_deref());
    let listed = local::first_model(place, list, key, proxy, local::PATIENT).await;
    listed.map_err(|reason| {
        let text = format!("no model is named, and {reason}; give --model the name of one");
        Misuse::new(text).into()
    })
}

fn given<'e>(env: &'e Environment, name: &str) -> Option<&'e str> {
    env.get(name).map(str::trim).filter(|value| !value.is_empty())
}

fn on_loopback(url: &str) -> bool {
    let host = reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    host.is_some_and(|host| {
        let host = host.trim_matches(['[', ']']);
        host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn choose_in(wanted: Wanted, env: Environment) -> anyhow::Result<Chosen> {
        choose(wanted, &Models::embedded(), &env, &[], false).await
    }

    fn model(name: &str) -> Wanted {
        Wanted { model: Some(name.to_owned()), ..Wanted::default() }
    }

    #[tokio::test]
    async fn the_environment_decides_where_nothing_is_said() {
        const A: (&str, &str) = ("ANTHROPIC_API_KEY", "k");
        const O: (&str, &str) = ("OPENAI_API_KEY", "k");
        for (env, expected) in [
            (Environment::from([A, O]), "claude-sonnet-5-5 (anthropic)"),
            (Environment::from([O]), "gpt-6.1-sol (openai)"),
            (Environment::from([("ANTHROPIC_API_KEY", " "), O]), "gpt-6.1-sol (openai)"),
        ] {
            assert_eq!(choose_in(Wanted::default(), env).await.unwrap().to_string(), expected);
        }
        let env = || Environment::from([O, ("OPENAI_BASE_URL", "http://localhost:1/v1")]);
        let chosen = choose_in(model("m"), env()).await.unwrap();
        assert_eq!(chosen.to_string(), "m (openai-chat)");
        assert_eq!(chosen.known(&Models::embedded()).unwrap().name, "local");
        let error = choose_in(Wanted::default(), env()).await.err().unwrap().to_string();
        assert!(error.contains("no model is named") && error.contains("localhost:1"), "{error}");
    }

    #[tokio::test]
    async fn a_model_is_asked_through_its_makers_api() {
        let env = || Environment::from([("ANTHROPIC_API_KEY", "k"), ("OPENAI_API_KEY", "k")]);
        for (name, expected) in [
            ("gpt-5.6-sol", "gpt-5.6-sol (openai)"),
            ("claude-opus-5-5", "claude-opus-5-5 (anthropic)"),
            ("scripted", "scripted"),
        ] {
            assert_eq!(choose_in(model(name), env()).await.unwrap().to_string(), expected);
        }
        let wanted = Wanted { provider: Some(ProviderName::OpenaiChat), ..model("gpt-4o") };
        assert_eq!(choose_in(wanted, env()).await.unwrap().to_string(), "gpt-4o (openai-chat)");
        let wanted =
            Wanted { base_url: Some("http://host/v1".to_owned()), ..model("claude-opus-5-5") };
        let chosen = choose_in(wanted, Environment::default()).await.unwrap();
        assert_eq!(chosen.to_string(), "claude-opus-5-5 (openai-chat)");
    }

    #[tokio::test]
    async fn what_is_missing_is_named() {
        let nothing = Environment::default;
        let error = choose_in(Wanted::default(), nothing()).await.err().unwrap().to_string();
        assert!(error.contains("ANTHROPIC_API_KEY") && error.contains("--model scripted"));
        let error = choose_in(model("gpt-4o"), nothing()).await.err().unwrap().to_string();
        assert!(error.starts_with("openai needs a key: set OPENAI_API_KEY"), "{error}");
        let wanted = Wanted { key_env: Some("MINE".to_owned()), ..model("gpt-4o") };
        let error = choose_in(wanted, nothing()).await.err().unwrap().to_string();
        assert!(error.contains("`MINE`"), "{error}");
        let wanted = Wanted { base_url: Some("nowhere".to_owned()), ..model("m") };
        let error = choose_in(wanted, nothing()).await.err().unwrap().to_string();
        assert!(error.contains("`nowhere` is not the address of an API"), "{error}");
    }

    #[test]
    fn what_is_configured_for_another_provider_is_left_out() {
        let models = Models::embedded();
        let of = |provider, model: &str, base_url: Option<&str>| Wanted {
            provider,
            model: (!model.is_empty()).then(|| model.to_owned()),
            base_url: base_url.map(str::to_owned),
            key_env: None,
        };
        let (chat, anthropic) = (ProviderName::OpenaiChat, ProviderName::Anthropic);
        let local = of(Some(chat), "m", Some("http://h/v1"));
        for (said, is_kept) in [
            (of(None, "", None), true),
            (of(Some(chat), "", None), true),
            (of(None, "claude-opus-5-5", None), true),
            (of(Some(anthropic), "", None), false),
        ] {
            assert_eq!(
                said.clone().or(local.clone(), &models).base_url.is_some(),
                is_kept,
                "{said:?}"
            );
        }
        let cloud = of(Some(anthropic), "claude-opus-5-5", None);
        for (model, provider) in
            [("claude-haiku-5-5", Some(anthropic)), ("gpt-4o", None), ("qwen3:8b", Some(anthropic))]
        {
            assert_eq!(
                of(None, model, None).or(cloud.clone(), &models).provider,
                provider,
                "{model}"
            );
        }
        let openai = of(None, "gpt-4o", None).or(of(Some(chat), "", None), &models);
        assert_eq!(openai.provider, Some(chat));
    }

    #[test]
    fn whoever_is_configured_is_known_by_an_address_or_a_model_too() {
        let models = Models::embedded();
        let said = |provider| Wanted { provider: Some(provider), ..Wanted::default() };
        let address = || Wanted { base_url: Some("http://h/v1".to_owned()), ..Wanted::default() };
        let (chat, openai) = (ProviderName::OpenaiChat, ProviderName::Openai);
        for (provider, is_kept) in
            [(ProviderName::Anthropic, false), (ProviderName::Ollama, false), (chat, true)]
        {
            let wanted = said(provider).or(address(), &models);
            assert_eq!(wanted.base_url.is_some(), is_kept, "{provider}");
        }
        for (name, provider, is_kept) in [
            ("claude-opus-5-5", openai, false),
            ("claude-opus-5-5", ProviderName::Anthropic, true),
            ("gpt-4o", chat, true),
            ("gpt-4o", ProviderName::Anthropic, false),
            ("qwen3:8b", ProviderName::Ollama, true),
        ] {
            let configured = Wanted { key_env: Some("MINE".to_owned()), ..model(name) };
            let wanted = said(provider).or(configured, &models);
            assert_eq!((wanted.model.is_some(), wanted.key_env.is_some()), (is_kept, is_kept));
        }
        let configured = Wanted { key_env: Some("MINE".to_owned()), ..model("claude-opus-5-5") };
        assert_eq!(model("gpt-4o").or(configured, &models).key_env, None);
    }

    #[tokio::test]
    async fn a_models_name_comes_before_an_address_in_the_environment() {
        const URL: (&str, &str) = ("OPENAI_BASE_URL", "http://host/v1");
        let both = || Environment::from([URL, ("ANTHROPIC_API_KEY", "k")]);
        for (name, env, expected) in [
            ("claude-opus-5-5", both(), "claude-opus-5-5 (anthropic)"),
            ("gpt-4o", both(), "gpt-4o (openai-chat)"),
            ("m", both(), "m (openai-chat)"),
            ("claude-opus-5-5", Environment::from([URL]), "claude-opus-5-5 (openai-chat)"),
        ] {
            assert_eq!(choose_in(model(name), env).await.unwrap().to_string(), expected);
        }
    }
}
