//! What is known of a server: its list, the eras it speaks, what else it offers.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::value::RawValue;
use tokio::time::Instant;
use toolcrib_runtime::{Eras, Manifest, News, Offers};
use toolcrib_wire::{Era, Fields};

use super::call::Hints;
use super::lanes::LaneKey;
use super::{Inner, State};
use crate::config::ServerConfig;
use crate::list::Rest;

/// For how long it is believed that a server can't do without sessions.
const BELIEVED: Duration = Duration::from_secs(7 * 24 * 3600);

/// What is known of a server's eras before it is asked.
pub(super) fn eras(config: &ServerConfig, manifest: Option<&Manifest>, now: SystemTime) -> Eras {
    if let Some(era) = config.era {
        return Eras {
            sessions: Some(era == Era::Sessions),
            stateless: Some(era == Era::Stateless),
        };
    }
    let Some(manifest) = manifest else { return Eras::default() };
    let mut eras = manifest.eras;
    let age = manifest.eras_at.and_then(|at| now.duration_since(at).ok());
    if eras.stateless == Some(false) && age.is_none_or(|age| age > BELIEVED) {
        eras.stateless = None;
    }
    eras
}

impl State {
    /// Takes over what is known, and counts a change of what is offered beside tools.
    pub(super) fn remember(&mut self, manifest: Arc<Manifest>, is_change: bool) {
        let version = self.offers.version + u64::from(is_change);
        self.offers = Arc::new(offers(&manifest, version));
        self.manifest = Some(manifest);
    }
}

/// What is offered beside tools.
pub(super) fn offers(manifest: &Manifest, version: u64) -> Offers {
    let all = |raw: &[Box<RawValue>]| raw.iter().map(|it| Arc::from(it.clone())).collect();
    Offers {
        capabilities: manifest.capabilities.clone().map(Arc::from),
        instructions: manifest.instructions.as_deref().map(Arc::from),
        eras: manifest.eras,
        resources: all(&manifest.resources),
        templates: all(&manifest.resource_templates),
        prompts: all(&manifest.prompts),
        version,
    }
}

impl Inner {
    /// Numbers the lists as they are asked for.
    pub(super) fn number_list(&self) -> u64 {
        let mut state = self.lock();
        state.asked += 1;
        state.asked_at = Some(Instant::now());
        state.asked
    }

    /// Remembers a list, unless one that was asked for later is known, and tells of it if it is
    /// news.
    pub(super) fn keep(&self, mut manifest: Manifest, number: u64) -> bool {
        let hints = Arc::new(Hints::of(&manifest));
        let mut state = self.lock();
        if number < state.kept {
            return false;
        }
        if let Some(known) = &state.manifest {
            // What is not part of this list stays as it is known.
            manifest.resources = known.resources.clone();
            manifest.resource_templates = known.resource_templates.clone();
            manifest.prompts = known.prompts.clone();
            if version(known) != version(&manifest) && self.config.era.is_none() {
                state.eras.stateless = state.eras.stateless.filter(|does| *does);
            }
        }
        manifest.eras = state.eras;
        manifest.eras_at = state.eras_at;
        let manifest = Arc::new(manifest);
        let is_news = state.manifest.as_ref().is_none_or(|known| differ(known, &manifest));
        state.kept = number;
        state.remember(manifest.clone(), is_news);
        state.hints = hints;
        drop(state);
        self.shared.store.put(&self.key(), Manifest::clone(&manifest));
        if is_news {
            self.changed();
        }
        is_news
    }

    /// Notes that a connection came about in an era.
    pub(super) fn learn_era(&self, state: &mut State, key: LaneKey, era: Era) {
        let mut eras = state.eras;
        match (key, era) {
            // There, the other was tried first.
            (LaneKey::Main, Era::Stateless) => {
                eras = Eras { sessions: Some(false), stateless: Some(true) };
            }
            (_, Era::Stateless) => eras.stateless = Some(true),
            (_, Era::Sessions) => eras.sessions = Some(true),
        }
        if self.config.era.is_none() {
            self.note_eras(state, eras);
            self.keep_eras(state);
        }
    }

    /// Notes that it doesn't speak so. What is not certain is believed only as long as this runs.
    pub(super) fn rule_out(&self, state: &mut State, era: Era, is_certain: bool) {
        let mut eras = state.eras;
        match era {
            Era::Stateless => eras.stateless = Some(false),
            Era::Sessions => eras.sessions = Some(false),
        }
        self.note_eras(state, eras);
        if !is_certain {
            state.eras_at = None;
        }
        // It may be that it can't do anything at present: that is no reason to remember it.
        if state.lanes.any_open().is_some() {
            self.keep_eras(state);
        }
    }

    fn note_eras(&self, state: &mut State, eras: Eras) {
        if eras.stateless != state.eras.stateless {
            state.eras_at = Some(SystemTime::now());
        }
        state.eras = eras;
    }

    fn keep_eras(&self, state: &mut State) {
        let known = state.manifest.clone().filter(|known| known.eras != state.eras);
        if let Some(known) = known {
            let mut manifest = Manifest::clone(&known);
            manifest.eras = state.eras;
            manifest.eras_at = state.eras_at;
            state.remember(Arc::new(manifest.clone()), true);
            self.shared.store.put(&self.key(), manifest);
        }
    }

    /// Remembers what is offered beside tools, and tells of it if it is news.
    pub(super) fn keep_offers(&self, rest: Rest) -> bool {
        let mut state = self.lock();
        let Some(known) = state.manifest.clone() else { return false };
        let mut manifest = Manifest::clone(&known);
        // A list that could not be had stays as it is known.
        for (kept, listed) in [
            (&mut manifest.resources, rest.resources),
            (&mut manifest.resource_templates, rest.templates),
            (&mut manifest.prompts, rest.prompts),
        ] {
            if let Some(listed) = listed {
                *kept = listed;
            }
        }
        let resources = !same(&known.resources, &manifest.resources)
            || !same(&known.resource_templates, &manifest.resource_templates);
        let prompts = !same(&known.prompts, &manifest.prompts);
        if !resources && !prompts {
            return false;
        }
        state.remember(Arc::new(manifest.clone()), true);
        drop(state);
        self.shared.store.put(&self.key(), manifest);
        for news in [resources.then_some(News::Resources), prompts.then_some(News::Prompts)] {
            self.tell_news(news);
        }
        true
    }
}

fn same(one: &[Box<RawValue>], other: &[Box<RawValue>]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.get() == other.get())
}

fn version(manifest: &Manifest) -> Option<String> {
    let info = manifest.server_info.as_ref()?;
    Fields::parse(info.get())?.read("version")
}

/// Whether two lists differ in anything that is shown.
fn differ(one: &Manifest, other: &Manifest) -> bool {
    let raw = |raw: &Option<Box<RawValue>>| raw.as_ref().map(|raw| raw.get().to_owned());
    !same(&one.tools, &other.tools)
        || one.instructions != other.instructions
        || raw(&one.server_info) != raw(&other.server_info)
        || raw(&one.capabilities) != raw(&other.capabilities)
}
