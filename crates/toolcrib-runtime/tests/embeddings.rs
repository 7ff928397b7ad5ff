//! An embedder that works, hangs, fails, lies and comes back, while searches go on.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::ThreadId;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};
use toolcrib_core::{Call, Group, Mode, Settings};
use toolcrib_runtime::{
    Crib, Embed, EmbedError, Embeddings, Function, HostTools, Outcome, Purpose, TextKey,
    VectorStore, function,
};

/// What the embedder does when it is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Mood {
    #[default]
    Works,
    Slow(Duration),
    Hangs,
    Fails,
    Panics,
    Forgets,
    Mixes,
    SaysNothing,
    IsNoNumber,
    /// Another model: its vectors point elsewhere.
    Changed,
}

#[derive(Default)]
struct Desk {
    mood: Mutex<Mood>,
    asked: Mutex<Vec<(Purpose, Vec<String>)>>,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
    /// Documents wait here for leave, if there is a gate.
    gate: Mutex<Option<Arc<Semaphore>>>,
}

impl Desk {
    fn is(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// The texts asked about for a purpose, request by request.
    fn asked(&self, purpose: Purpose) -> Vec<Vec<String>> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|(of, _)| *of == purpose).map(|(_, texts)| texts.clone()).collect()
    }
}

struct Fake(Arc<Desk>);

impl Embed for Fake {
    fn id(&self) -> &str {
        "fake"
    }

    fn embed(
        &self,
        purpose: Purpose,
        texts: Vec<String>,
    ) -> BoxFuture<'_, Result<Vec<Vec<f32>>, EmbedError>> {
        let desk = &self.0;
        desk.asked.lock().unwrap().push((purpose, texts.clone()));
        let mood = *desk.mood.lock().unwrap();
        assert_ne!(mood, Mood::Panics);
        Box::pin(async move {
            let at_once = desk.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            desk.most_at_once.fetch_max(at_once, Ordering::SeqCst);
            let gate = desk.gate.lock().unwrap().clone();
            if let Some(gate) = gate.filter(|_| purpose == Purpose::Document) {
                gate.acquire().await.unwrap().forget();
            }
            match mood {
                Mood::Slow(by) => sleep(by).await,
                Mood::Hangs => std::future::pending().await,
                _ => sleep(Duration::from_millis(1)).await,
            }
            desk.at_once.fetch_sub(1, Ordering::SeqCst);
            let mut rows: Vec<Vec<f32>> = texts.iter().map(|text| vector(text)).collect();
            match mood {
                Mood::Fails => return Err(EmbedError::Refused("not today".to_owned())),
                Mood::Forgets => drop(rows.pop()),
                Mood::Mixes => rows[0].push(1.0),
                Mood::SaysNothing => rows.iter_mut().for_each(Vec::clear),
                Mood::IsNoNumber => rows[0][0] = f32::NAN,
                Mood::Changed => rows.iter_mut().for_each(|row| row.reverse()),
                _ => {}
            }
            Ok(rows)
        })
    }
}

/// Tells texts apart: how often each of four letters occurs.
fn vector(text: &str) -> Vec<f32> {
    ['e', 'o', 't', 'w'].map(|letter| text.matches(letter).count() as f32 + 0.1).to_vec()
}

fn tool(name: &str) -> Function {
    function(name, "Does something.", |(): ()| async { "done" })
}

fn tools(id: &str, count: usize) -> HostTools {
    (0..count).fold(HostTools::new(id), |tools, at| tools.with(tool(&format!("{id}_{at}"))))
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.mode = Mode::Deferred;
    settings
}

async fn crib_with(desk: &Arc<Desk>, store: impl VectorStore, count: usize) -> Crib {
    let embeddings = Embeddings::new(Fake(desk.clone()), store);
    let builder = Crib::builder(settings()).toolset(tools("first", count));
    builder.embeddings(embeddings).build().await.unwrap()
}

async fn crib(desk: &Arc<Desk>) -> Crib {
    crib_with(desk, (), 3).await
}

/// Waits until every tool has its vector.
async fn supplied(crib: &Crib) {
    let wait = async {
        while crib.catalog().view_all().dimensions().is_none() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(3_600), wait).await.expect("the vectors come");
}

async fn search(crib: &Crib, query: &str) -> Outcome {
    let chat = crib.conversation();
    let outcome = chat.call(Call::new("tool_search", json!({"query": query}))).await.unwrap();
    assert!(!outcome.result.is_error(), "{}", outcome.result.to_text());
    assert!(outcome.result.to_text().contains("first_0"), "{}", outcome.result.to_text());
    outcome
}

fn note(outcome: &Outcome) -> &str {
    outcome.effects.notes.first().map_or("", String::as_str)
}

#[tokio::test(start_paused = true)]
async fn tools_are_embedded_in_batches_and_queries_once() {
    let desk = Arc::new(Desk::default());
    let crib = crib_with(&desk, (), 150).await;
    crib.add(tools("second", 3)).await;
    supplied(&crib).await;
    let documents = desk.asked(Purpose::Document);
    assert!(documents.iter().all(|batch| batch.len() <= 64));
    let mut texts: Vec<String> = documents.concat();
    texts.sort();
    texts.dedup();
    assert_eq!((texts.len(), documents.concat().len()), (153, 153), "each once");
    assert_eq!(desk.most_at_once.load(Ordering::SeqCst), 1);

    for _ in 0..3 {
        let outcome = search(&crib, "first_0 does +something").await;
        assert_eq!(note(&outcome), "");
    }
    assert_eq!(desk.asked(Purpose::Query), [["first_0 does something"]]);
}

#[tokio::test(start_paused = true)]
async fn a_search_before_the_vectors_are_there_waits_for_nothing() {
    let desk = Arc::new(Desk::default());
    desk.is(Mood::Hangs);
    let crib = crib(&desk).await;
    let began = Instant::now();
    let outcome = search(&crib, "first_0").await;
    assert_eq!((note(&outcome), began.elapsed()), ("", Duration::ZERO));
    assert_eq!(desk.asked(Purpose::Query), [[""; 0]; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_embedder_that_hangs_costs_its_limit_once_in_a_while() {
    let desk = Arc::new(Desk::default());
    let crib = crib(&desk).await;
    supplied(&crib).await;
    desk.is(Mood::Hangs);
    let took = async |query: &str| {
        let began = Instant::now();
        let outcome = search(&crib, query).await;
        (began.elapsed(), note(&outcome).to_owned())
    };
    let why = "ranked without the embedder's vectors: it did not answer within 1.5s";
    assert_eq!(took("first_0 a").await, (Duration::from_millis(1_500), why.to_owned()));
    let why = "ranked without the embedder's vectors: it is not asked again yet, since it did not \
               answer within 1.5s";
    assert_eq!(took("first_0 b").await, (Duration::ZERO, why.to_owned()));
    assert_eq!(desk.asked(Purpose::Query).len(), 1);

    sleep(Duration::from_secs(5)).await;
    assert_eq!(took("first_0 c").await.0, Duration::from_millis(1_500));
    // Longer each time.
    sleep(Duration::from_secs(5)).await;
    assert_eq!(took("first_0 d").await.0, Duration::ZERO);
    sleep(Duration::from_secs(5)).await;
    desk.is(Mood::Works);
    assert_eq!(took("first_0 e").await.1, "");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_too_late_serves_the_next_who_asks() {
    let desk = Arc::new(Desk::default());
    let crib = crib(&desk).await;
    supplied(&crib).await;
    desk.is(Mood::Slow(Duration::from_secs(3)));
    assert!(note(&search(&crib, "first_0").await).contains("within 1.5s"));
    sleep(Duration::from_secs(2)).await;
    // Still resting, but this one is known by now.
    assert_eq!(note(&search(&crib, "first_0").await), "");
    assert!(note(&search(&crib, "first_0 other").await).contains("not asked again yet"));
    assert_eq!(desk.asked(Purpose::Query).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_the_embedder_does_wrong_costs_no_search() {
    for (mood, why) in [
        (Mood::Fails, "it refused: not today"),
        (Mood::Panics, "it broke"),
        (Mood::Forgets, "its answer makes no sense: 0 vectors for 1 texts"),
        (Mood::SaysNothing, "its answer makes no sense: vectors of 0 dimensions"),
        (Mood::IsNoNumber, "a vector with components that are no numbers"),
        (Mood::Mixes, "the query's has 5 dimensions, the tools' 4"),
    ] {
        let desk = Arc::new(Desk::default());
        let crib = crib(&desk).await;
        supplied(&crib).await;
        desk.is(mood);
        let outcome = search(&crib, "first_0").await;
        assert!(note(&outcome).ends_with(why), "{mood:?}: {}", note(&outcome));
    }
}

#[tokio::test(start_paused = true)]
async fn vectors_that_make_no_sense_are_not_taken() {
    for mood in [Mood::Forgets, Mood::Mixes, Mood::SaysNothing, Mood::IsNoNumber, Mood::Panics] {
        let desk = Arc::new(Desk::default());
        desk.is(mood);
        let crib = crib(&desk).await;
        sleep(Duration::from_secs(4)).await;
        assert_eq!(desk.asked(Purpose::Document).len(), 1, "{mood:?}");
        assert_eq!(crib.catalog().unembedded().len(), 1, "{mood:?}");
        desk.is(Mood::Works);
        supplied(&crib).await;
    }
}

#[tokio::test(start_paused = true)]
async fn tools_wait_for_an_embedder_that_is_down_and_the_log_says_so_once() {
    let told = Told::here();
    let desk = Arc::new(Desk::default());
    desk.is(Mood::Fails);
    let crib = crib(&desk).await;
    sleep(Duration::from_secs(100)).await;
    // At 0, 5, 15, 35 and 75 seconds.
    assert_eq!(desk.asked(Purpose::Document).len(), 5);
    assert_eq!(told.lines(), ["WARN the embedder fails: tools are still without its vectors"]);
    desk.is(Mood::Works);
    supplied(&crib).await;
    search(&crib, "first_0").await;
    assert_eq!(told.lines()[1..], ["INFO the embedder answers again"]);
}

#[tokio::test(start_paused = true)]
async fn a_catalog_that_changes_while_it_is_embedded_is_embedded_in_the_end() {
    let desk = Arc::new(Desk::default());
    let gate = Arc::new(Semaphore::new(0));
    *desk.gate.lock().unwrap() = Some(gate.clone());
    let crib = crib_with(&desk, (), 3).await;
    while desk.asked(Purpose::Document).is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    crib.remove(&"first".into());
    crib.add(tools("first", 2)).await;
    crib.add(tools("second", 2)).await;
    gate.add_permits(100);
    supplied(&crib).await;
    let documents = desk.asked(Purpose::Document);
    let sizes: Vec<usize> = documents.iter().map(Vec::len).collect();
    assert_eq!(sizes, [3, 4], "{documents:?}");
}

/// Keeps vectors in memory.
#[derive(Default)]
struct Kept(Mutex<HashMap<(String, TextKey), Vec<f32>>>);

impl VectorStore for Kept {
    fn vectors(&self, embedder: &str, keys: &[TextKey]) -> Vec<Option<Vec<f32>>> {
        let kept = self.0.lock().unwrap();
        keys.iter().map(|key| kept.get(&(embedder.to_owned(), *key)).cloned()).collect()
    }

    fn put_vectors(&self, embedder: &str, vectors: Vec<(TextKey, Vec<f32>)>) {
        let rows = vectors.into_iter().map(|(key, row)| ((embedder.to_owned(), key), row));
        self.0.lock().unwrap().extend(rows);
    }

    fn forget_vectors(&self, embedder: &str) {
        self.0.lock().unwrap().retain(|(of, _), _| of != embedder);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_is_not_embedded_again_unless_the_model_has_changed() {
    let store = Arc::new(Kept::default());
    let begin = async |mood| {
        let desk = Arc::new(Desk::default());
        desk.is(mood);
        let crib = crib_with(&desk, store.clone(), 5).await;
        supplied(&crib).await;
        let sizes: Vec<usize> = desk.asked(Purpose::Document).iter().map(Vec::len).collect();
        sizes
    };
    assert_eq!(begin(Mood::Works).await, [5]);
    assert_eq!(begin(Mood::Works).await, [1], "one, to compare");
    store.put_vectors("fake", vec![(TextKey::of("gone"), vec![1.0])]);
    assert_eq!(begin(Mood::Changed).await, [1, 5]);
    assert_eq!(store.0.lock().unwrap().len(), 5, "nothing of the old model is left");
    assert_eq!(begin(Mood::Changed).await, [1]);
}

#[tokio::test(start_paused = true)]
async fn groups_that_are_complete_are_supplied_before_one_that_fails() {
    let desk = Arc::new(Desk::default());
    let embeddings = Embeddings::new(Fake(desk.clone()), ());
    let builder = Crib::builder(settings()).toolset(tools("a", 64)).toolset(tools("b", 1));
    let crib = builder.build().await.unwrap();
    let told = Mutex::new(Vec::new());
    let progress = |done, all| {
        told.lock().unwrap().push((done, all));
        if done > 0 {
            desk.is(Mood::Fails);
        }
    };
    let result = embeddings.supply(&crib.catalog().unembedded(), progress).await;
    assert_eq!(result, Err(EmbedError::Refused("not today".to_owned())));
    assert_eq!(*told.lock().unwrap(), [(0, 65), (64, 65)]);
    let waiting = crib.catalog().unembedded();
    assert_eq!((waiting.len(), waiting[0].group().as_str()), (1, "b"));
}

#[tokio::test(start_paused = true)]
async fn what_a_loader_brings_is_embedded_as_well() {
    let desk = Arc::new(Desk::default());
    let crib = Crib::builder(settings())
        .toolset(tools("first", 3))
        .group(Group::new("crm").with_tool_names(["merge"]), || async {
            Ok::<_, String>(HostTools::new("crm").with(tool("merge")))
        })
        .embeddings(Embeddings::new(Fake(desk.clone()), ()))
        .build()
        .await
        .unwrap();
    supplied(&crib).await;
    let chat = crib.conversation();
    chat.call(Call::new("load_tools", json!({"group_id": "crm"}))).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert!(chat.session().unembedded().is_empty());
    let outcome = chat.call(Call::new("tool_search", json!({"query": "first_0"}))).await.unwrap();
    assert_eq!(note(&outcome), "");
    assert_eq!(desk.asked(Purpose::Query), [["first_0"]]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_a_crib_that_is_gone() {
    for mood in [Mood::Works, Mood::Fails] {
        let desk = Arc::new(Desk::default());
        desk.is(mood);
        let crib = crib(&desk).await;
        sleep(Duration::from_secs(1)).await;
        let left: Weak<Desk> = Arc::downgrade(&desk);
        drop((crib, desk));
        sleep(Duration::from_secs(10)).await;
        assert_eq!(left.strong_count(), 0, "{mood:?}");
    }
}

/// The messages of one test that a person would see.
#[derive(Clone)]
struct Told(ThreadId, Arc<Mutex<Vec<String>>>);

impl Told {
    /// For all threads, as what one of them hears may depend on who else has heard it before.
    fn here() -> Self {
        let told = Self(std::thread::current().id(), Arc::default());
        tracing::subscriber::set_global_default(told.clone()).unwrap();
        tracing::callsite::rebuild_interest_cache();
        told
    }

    fn lines(&self) -> Vec<String> {
        self.1.lock().unwrap().clone()
    }
}

impl tracing::Subscriber for Told {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO && metadata.target().contains("embeddings")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        if std::thread::current().id() != self.0 {
            return;
        }
        struct Message(String);
        impl tracing::field::Visit for Message {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        self.1.lock().unwrap().push(format!("{} {}", event.metadata().level(), message.0));
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
