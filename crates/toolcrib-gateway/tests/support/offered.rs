//! What an odd server offers beside tools.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use toolcrib_runtime::{
    AskError, Eras, Following, Health, News, Offers, Party, Question, RpcError, Server,
};

/// A number and a list as no careful writer would spell them.
pub const VENDOR: &str = r#""x-vendor":{"n":12345678901234567890123,"e":1.50e3,"l":[ ]}"#;

/// The part of an odd server that is no tool. It answers every question with what it was asked.
pub struct Offered {
    name: &'static str,
    offers: Mutex<Arc<Offers>>,
    pub news: broadcast::Sender<News>,
    /// Every question: its method, and its parameters as they came.
    pub asked: Mutex<Vec<(String, String)>>,
    /// What is followed.
    pub followed: Arc<Mutex<Vec<String>>>,
    /// The clients that have followed anything, by number.
    followers: Mutex<BTreeSet<u64>>,
    /// What clients told it: who, and the method.
    pub told: Mutex<Vec<(u64, String)>>,
    /// How it is doing.
    pub health: Mutex<Health>,
    pub runs: AtomicBool,
    pub starts: AtomicUsize,
}

pub fn raw(text: impl Into<String>) -> Arc<RawValue> {
    RawValue::from_string(text.into()).unwrap().into()
}

impl Offered {
    pub fn new(name: &'static str, capabilities: Value) -> Arc<Self> {
        let offers = Offers {
            capabilities: Some(raw(capabilities.to_string())),
            instructions: Some("How to use it. ".repeat(300).into()),
            eras: Eras { sessions: Some(true), stateless: Some(true) },
            ..Offers::default()
        };
        Arc::new(Self {
            name,
            offers: Mutex::new(Arc::new(offers)),
            news: broadcast::Sender::new(100),
            asked: Mutex::default(),
            followed: Arc::default(),
            followers: Mutex::default(),
            told: Mutex::default(),
            health: Mutex::default(),
            runs: AtomicBool::new(false),
            starts: AtomicUsize::default(),
        })
    }

    /// Everything a server may have.
    pub fn full(name: &'static str) -> Arc<Self> {
        let all = Self::new(
            name,
            json!({"tools": {}, "resources": {"subscribe": true}, "prompts": {}, "completions": {},
                "logging": {}, "experimental": {"x": 1}}),
        );
        all.change(|offers| {
            let entry = |key: &str, value: &str| {
                raw(format!(r#"{{"{key}":"{value}","name":"n",{VENDOR}}}"#))
            };
            offers.resources =
                vec![entry("uri", &format!("{name}://b")), entry("uri", "same://a"), raw("7")];
            offers.templates = vec![entry("uriTemplate", &format!("{name}://t/{{id}}"))];
            offers.prompts = vec![
                raw(format!(r#"{{"name":"review","arguments":[],{VENDOR}}}"#)),
                raw(r#"{"name":"a b"}"#),
            ];
        });
        all
    }

    /// Changes what is offered.
    pub fn change(&self, change: impl FnOnce(&mut Offers)) {
        let mut offers = self.offers.lock().unwrap();
        let mut changed = Offers::clone(&offers);
        change(&mut changed);
        changed.version += 1;
        *offers = Arc::new(changed);
    }

    /// The clients that have followed anything, by number.
    pub fn followers(&self) -> Vec<u64> {
        self.followers.lock().unwrap().iter().copied().collect()
    }

    /// Tells all who have followed anything that a resource has changed.
    pub fn updated(&self, uri: &str) {
        let whom = self.followers().into();
        self.news.send(News::Updated { uri: uri.into(), whom }).unwrap();
    }

    /// The last question.
    pub fn last(&self) -> (String, String) {
        self.asked.lock().unwrap().last().cloned().expect("a question")
    }

    fn answer(&self, question: &Question) -> Result<String, RpcError> {
        let params = question.params.as_ref().map_or("null", |raw| raw.get());
        // Numbers that are too large for it are somebody else's affair.
        let read: Value = serde_json::from_str(params).unwrap_or_default();
        let uri = read["uri"].as_str().unwrap_or_default();
        Ok(match &*question.method {
            "resources/read" if uri.starts_with("gone:") => {
                return Err(RpcError::new(-32002, "not here").with_data(&json!({"uri": uri})));
            }
            "resources/read" => {
                let content = format!(r#"{{"uri":{uri:?},"text":"of {}","e":1e2}}"#, self.name);
                format!(r#"{{ "contents":[{content}],{VENDOR} }}"#)
            }
            "tasks/get" => format!(r#"{{"taskId":{},"status":"working"}}"#, read["taskId"]),
            "vendor/refuse" => {
                return Err(RpcError::new(-32077, "never").with_data(&json!({"why": [1]})));
            }
            _ => {
                let meta = question.caller.meta().map_or("null", RawValue::get);
                format!(r#"{{ "asked":{params},"meta":{meta},{VENDOR} }}"#)
            }
        })
    }
}

impl Server for Offered {
    fn offers(&self) -> Arc<Offers> {
        self.offers.lock().unwrap().clone()
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Box<RawValue>, AskError>> {
        Box::pin(async move {
            self.starts.fetch_add(1, Ordering::SeqCst);
            let params = question.params.as_ref().map_or("", |raw| raw.get());
            self.asked.lock().unwrap().push((question.method.to_string(), params.to_owned()));
            tokio::task::yield_now().await;
            if &*question.method == "vendor/dead" {
                return Err(AskError::Unreachable("it is gone".to_owned()));
            }
            if params.contains("asks the client") {
                let listener = question.caller.listener().expect("somebody to ask").clone();
                let params = raw(r#"{"message":"Which?","requestedSchema":{"type":"object"}}"#);
                let answer = listener.ask("elicitation/create", Some(&params)).await;
                let answer = answer.map_err(AskError::Refused)?;
                let answer = format!(r#"{{"messages":[],"answer":{answer}}}"#);
                return Ok(RawValue::from_string(answer).unwrap());
            }
            let answer = self.answer(&question).map_err(AskError::Refused)?;
            Ok(RawValue::from_string(answer).unwrap())
        })
    }

    fn follow<'a>(
        &'a self,
        uri: &str,
        party: Option<&'a Arc<Party>>,
    ) -> BoxFuture<'a, Result<Following, AskError>> {
        let uri = uri.to_owned();
        self.followers.lock().unwrap().insert(party.map_or(0, |party| party.id()));
        Box::pin(async move {
            if uri.starts_with("gone:") {
                let error = RpcError::new(-32002, "not here").with_data(&json!({"uri": uri}));
                return Err(AskError::Refused(error));
            }
            self.followed.lock().unwrap().push(uri.clone());
            let followed = self.followed.clone();
            Ok(Following::new(move || {
                let mut followed = followed.lock().unwrap();
                let at = followed.iter().position(|it| *it == uri).unwrap();
                followed.remove(at);
            }))
        })
    }

    fn news(&self) -> broadcast::Receiver<News> {
        self.news.subscribe()
    }

    fn tell(&self, party: &Party, method: &str, _: Option<&RawValue>) {
        self.told.lock().unwrap().push((party.id(), method.to_owned()));
    }

    fn health(&self) -> Health {
        let mut health = self.health.lock().unwrap().clone();
        health.connections += usize::from(self.runs.load(Ordering::SeqCst));
        health
    }
}
