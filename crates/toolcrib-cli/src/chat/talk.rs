//! A conversation under way, its parents, and what the commands do to it.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use clap::builder::styling::Style;
use toolcrib::agent::{Agent, Chat, Compaction, End, Input, Reopened};
use toolcrib::tokens::{Cost, Usage};
use toolcrib::{Availability, ResumeReport, StrategyChoice, View};

use super::command::{Command, HELP};
use crate::agent::{AgentArgs, Workshop};
use crate::args::Context;
use crate::follow::{Counter, Desk, Doorkeeper, Followed, Screen, Signals, follow};
use crate::model::Chosen;
use crate::output::{self, Interrupted, Progress, Rows, counted, number, one_line, shortened};
use crate::sessions::{Resume, Shelf};

/// The most tools that are shown for a query.
const MOST_FOUND: usize = 10;

/// Whether the talk goes on.
pub(super) enum Next {
    Goes,
    Ends,
}

/// A conversation under way.
pub(super) struct Talk<'a> {
    args: &'a AgentArgs,
    workshop: &'a Workshop<'a>,
    context: &'a Context,
    chosen: Chosen,
    strategy: Option<StrategyChoice>,
    desk: Desk,
    counter: Counter,
    /// Where its conversations are kept.
    shelf: Shelf,
    agent: Agent,
    chat: Chat,
    /// Those it was forked from, the first one first.
    parents: Vec<Chat>,
    screen: Screen,
    /// What all conversations so far have taken: the model's name may change in between.
    cost: Cost,
    usage: Usage,
    requests: usize,
    /// Whether anything went wrong.
    pub(super) has_failed: bool,
}

impl<'a> Talk<'a> {
    pub(super) fn new(
        args: &'a AgentArgs,
        workshop: &'a Workshop<'a>,
        chosen: Chosen,
        context: &'a Context,
        (desk, counter): (Desk, Counter),
        shelf: Shelf,
    ) -> anyhow::Result<Self> {
        let agent = workshop.agent(&chosen, None, desk.clone())?;
        let chat = shelf.begin(&agent);
        Ok(Self {
            args,
            workshop,
            context,
            chosen,
            strategy: None,
            desk,
            counter,
            shelf,
            agent,
            chat,
            parents: Vec::new(),
            screen: Screen::new(context),
            cost: Cost::ZERO,
            usage: Usage::default(),
            requests: 0,
            has_failed: false,
        })
    }

    pub(super) fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    pub(super) fn depth(&self) -> usize {
        self.parents.len()
    }

    pub(super) fn tools(&self) -> usize {
        self.chat.conversation().view().len()
    }

    pub(super) fn chat(&self) -> &Chat {
        &self.chat
    }

    /// Goes on with a session.
    pub(super) async fn resume(&mut self, resume: &Resume) -> anyhow::Result<Reopened> {
        let (chat, reopened) = resume.reopen(&self.agent).await?;
        self.chat = chat;
        Ok(reopened)
    }

    /// Says something to the model, or nothing to let it go on, and follows the answer.
    pub(super) async fn say(
        &mut self,
        text: impl Into<Input>,
        doorkeeper: &mut Doorkeeper,
        signals: &mut Signals,
    ) -> anyhow::Result<Next> {
        let followed =
            follow(&mut self.chat, text, &mut self.screen, &mut self.counter, doorkeeper, signals)
                .await?;
        self.reckon();
        let Followed::Finished(answer) = followed else { return Err(Interrupted.into()) };
        match answer.end {
            End::Done => {}
            End::Cancelled if !doorkeeper.input.is_typed() => return Err(Interrupted.into()),
            End::Cancelled => self.context.note("Cancelled."),
            end => {
                output::complain(&end.to_string());
                self.has_failed = true;
            }
        }
        Ok(Next::Goes)
    }

    fn reckon(&mut self) {
        let model = self.chosen.known(&self.workshop.models);
        for usage in self.screen.spent.drain(..) {
            self.requests += 1;
            self.usage.read += usage.read;
            self.usage.written += usage.written;
            self.usage.uncached += usage.uncached;
            self.usage.output += usage.output;
            let unknown = Cost { input_equivalents: usage.prompt() as f64, dollars: None };
            self.cost = self.cost + model.map_or(unknown, |model| usage.cost(model));
        }
    }

    pub(super) async fn obey(
        &mut self,
        command: Command,
        signals: &mut Signals,
    ) -> anyhow::Result<Next> {
        match command {
            Command::Help => output::text(HELP)?,
            Command::Tools(None) => output::text(&self.list())?,
            Command::Tools(Some(query)) => match self.find(&query) {
                Ok(found) => output::text(&found)?,
                Err(reason) => self.fail(&reason),
            },
            Command::Load(names) => {
                self.load(&names)?;
                self.save().await;
            }
            Command::Unload(names) => {
                self.unload(&names)?;
                self.save().await;
            }
            Command::Stats => match self.stats() {
                Ok(stats) => output::text(&stats)?,
                Err(error) => self.fail(&error.to_string()),
            },
            Command::Cost => output::text(&format!("{}\n", self.chat.spent()))?,
            Command::Compact => self.compact(signals).await?,
            Command::Strategy(None) => output::text(&format!("{}\n", self.describe_strategy()))?,
            Command::Strategy(Some(strategy)) => {
                let agent = self.workshop.agent(&self.chosen, Some(strategy), self.desk.clone());
                match agent {
                    Ok(agent) => {
                        (self.strategy, self.agent) = (Some(strategy), agent);
                        self.begin()?;
                    }
                    Err(error) => self.fail(&format!("{error:#}")),
                }
            }
            Command::Model(None) => output::text(&format!("{}\n", self.chosen))?,
            Command::Model(Some(name)) => self.change_model(&name).await?,
            Command::Rename(title) => self.rename(&title).await?,
            Command::Fork => {
                let fork = self.shelf.fork(&self.chat);
                self.parents.push(std::mem::replace(&mut self.chat, fork));
                output::text("This is a copy of the conversation; /back returns from it.\n")?;
            }
            Command::Back => match self.parents.pop() {
                Some(parent) => {
                    let copy = std::mem::replace(&mut self.chat, parent);
                    let kept = copy.session_id().map(|id| format!(", which is kept as {id}"));
                    let kept = kept.unwrap_or_default();
                    output::text(&format!(
                        "Back, as if nothing had been said in the copy{kept}.\n"
                    ))?;
                }
                None => self.fail("this is no copy: /fork makes one"),
            },
            Command::Clear => self.begin()?,
            Command::Quit => return Ok(Next::Ends),
        }
        Ok(Next::Goes)
    }

    fn fail(&mut self, reason: &str) {
        output::complain(reason);
        self.has_failed = true;
    }

    /// Begins a new conversation. One that has begun keeps its strategy.
    fn begin(&mut self) -> anyhow::Result<()> {
        self.parents.clear();
        self.screen.chosen = None;
        self.chat = self.shelf.begin(&self.agent);
        output::text(&format!("A new conversation. {}\n", self.describe_strategy()))
    }

    fn describe_strategy(&self) -> String {
        match self.chat.conversation().session().strategy() {
            Some(strategy) => {
                let kept = "which a conversation keeps; another begins a new one.";
                let why = self.screen.chosen.as_ref().map(|why| format!(" Chosen: {why}."));
                format!("Strategy {strategy}, {kept}{}", why.unwrap_or_default())
            }
            None => match self.agent.crib().engine().settings().strategy {
                StrategyChoice::Auto => "Strategy auto: settled by the first message.".to_owned(),
                strategy => format!("Strategy {strategy}."),
            },
        }
    }

    /// Goes on with another model. What was said stays, and so does what is loaded.
    async fn change_model(&mut self, name: &str) -> anyhow::Result<()> {
        match self.move_to(name).await {
            Ok(report) => {
                output::text(&format!("From here on {} answers.\n", self.chosen))?;
                report.notes.iter().for_each(|note| self.context.note(note));
                for (name, reason) in report.missing {
                    output::warn(&format!("`{name}` is no longer loaded: {reason}"));
                }
            }
            Err(error) => self.fail(&format!("{error:#}")),
        }
        Ok(())
    }

    /// Goes on with an agent with another model in all conversations, the newest last; says what
    /// is different for the newest.
    async fn move_to(&mut self, name: &str) -> anyhow::Result<ResumeReport> {
        let chosen = self.args.choose(Some(name), self.context).await?;
        let agent = self.workshop.agent(&chosen, self.strategy, self.desk.clone())?;
        let mut report = ResumeReport::default();
        for chat in self.parents.iter_mut().chain([&mut self.chat]) {
            report = chat.move_to(&agent).await?;
        }
        (self.chosen, self.agent) = (chosen, agent);
        Ok(report)
    }

    /// Puts a summary in place of the older part. Ctrl-C leaves it as it was.
    async fn compact(&mut self, signals: &mut Signals) -> anyhow::Result<()> {
        let cancel = self.chat.cancellation();
        let progress = Progress::new(!self.context.quiet);
        progress.say("the model is writing a summary");
        let done = {
            let compact = self.chat.compact();
            tokio::pin!(compact);
            loop {
                tokio::select! {
                    done = &mut compact => break done,
                    _ = signals.next() => cancel.cancel(),
                }
            }
        };
        drop(progress);
        match done {
            Ok(Some(Compaction { before, after, .. })) => {
                let before = counted(before, "message");
                output::text(&format!("{before} have become {}.\n", number(after as u64)))?;
            }
            Ok(None) => output::text("There is nothing yet that a summary would shorten.\n")?,
            Err(End::Cancelled) => self.context.note("Cancelled."),
            Err(end) => self.fail(&end.to_string()),
        }
        Ok(())
    }

    async fn rename(&mut self, title: &str) -> anyhow::Result<()> {
        let Some(id) = self.chat.session_id() else {
            self.fail("nothing of this conversation is kept, so it has no title");
            return Ok(());
        };
        match self.shelf.rename(id, title).await {
            Ok(title) => output::text(&format!("This is called `{}` now.\n", one_line(&title)))?,
            Err(error) => self.fail(&error.to_string()),
        }
        Ok(())
    }

    fn loaded(&self) -> HashSet<Arc<str>> {
        self.chat.conversation().session().loaded_tools().cloned().collect()
    }

    fn list(&self) -> String {
        let view = self.chat.conversation().view();
        let loaded = self.loaded();
        let mut table = Rows::new(&["SERVER", "TOOLS>", "LOADED>", ""]);
        for (group, tools) in view.by_origin() {
            let held = tools.iter().filter(|tool| loaded.contains(tool.exposed())).count();
            let state = match view.catalog().availability(group) {
                Availability::Ready => String::new(),
                Availability::Starting => "starting".to_owned(),
                Availability::Down(reason) => format!("down: {reason}"),
            };
            let [count, held] = [tools.len(), held].map(|count| number(count as u64));
            table.add(Style::new(), [group.to_string(), count, held, state]);
        }
        let mut text = table.to_string();
        let mut names: Vec<&str> = loaded.iter().map(|name| &**name).collect();
        names.sort_unstable();
        if !names.is_empty() {
            let _ = writeln!(text, "\nloaded: {}", one_line(&names.join(", ")));
        }
        text.push_str("\n`/tools QUERY` finds tools, `/load NAME` loads one.\n");
        text
    }

    fn find(&self, query: &str) -> Result<String, String> {
        let view = self.chat.conversation().view();
        let page = view.search(query, MOST_FOUND).map_err(|error| error.to_string())?;
        if page.results.is_empty() {
            return Ok("Nothing. Try other words, fewer of them, or a /regex/.\n".to_owned());
        }
        let loaded = self.loaded();
        let widest = page.results.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        let room = output::columns().saturating_sub(widest + "  loaded  ".len());
        let mut table = Rows::new(&["TOOL", "", ""]);
        for row in &page.results {
            let tool = view.tool(&row.name);
            let about = tool.map(|tool| tool.spec().description()).unwrap_or_default();
            let mark = if loaded.contains(&row.name) { "loaded" } else { "" };
            table.add(Style::new(), [&*row.name, mark, &shortened(about, room.clamp(20, 72))]);
        }
        Ok(table.to_string())
    }

    /// Keeps what was changed by hand.
    async fn save(&mut self) {
        if let Err(end) = self.chat.save().await {
            self.fail(&end.to_string());
        }
    }

    fn load(&mut self, names: &[String]) -> anyhow::Result<()> {
        // What is asked for before the first request would be in it for good; settled, it is
        // loaded like anything later, and can be unloaded.
        if let Err(error) = self.chat.conversation().stats() {
            self.fail(&error.to_string());
            return Ok(());
        }
        let before = self.loaded();
        let missing = self.chat.conversation().preload(names);
        let now = self.loaded();
        let mut new: Vec<&str> = now.difference(&before).map(|name| &**name).collect();
        new.sort_unstable();
        match (new.is_empty(), missing.is_empty()) {
            (false, _) => output::text(&format!("Loaded: {}\n", one_line(&new.join(", "))))?,
            (true, true) => output::text("The model has them already.\n")?,
            (true, false) => {}
        }
        if !missing.is_empty() {
            let so = "`/tools QUERY` finds tools";
            self.fail(&format!("there is no tool {}; {so}", missing.join(", ")));
        }
        Ok(())
    }

    fn unload(&mut self, names: &[String]) -> anyhow::Result<()> {
        let view = self.chat.conversation().view();
        let exposed: Vec<Arc<str>> = names.iter().flat_map(|name| named(&view, name)).collect();
        let gone = self.chat.conversation().unload(&exposed);
        if gone.is_empty() {
            self.fail("none of these is loaded; `/tools` says what is");
            return Ok(());
        }
        output::text(&format!("Unloaded: {}\n", one_line(&gone.join(", "))))
    }

    fn stats(&self) -> anyhow::Result<String> {
        let stats = self.chat.conversation().stats()?;
        let sent = stats.tokens.active + stats.tokens.section;
        let how = match stats.deferred_mode {
            true => format!(
                "{} loaded, {} wait; {} tokens a request for tools, of {} in full",
                number(stats.loaded as u64),
                number(stats.deferred as u64),
                number(sent),
                number(stats.tokens.full)
            ),
            false => format!("every schema is sent: {} tokens a request", number(sent)),
        };
        let mut text = format!("model     {}\n", self.chosen);
        if let Some(id) = self.chat.session_id() {
            let _ = writeln!(text, "session   {id}");
        }
        if let Some(strategy) = self.chat.conversation().session().strategy() {
            let _ = writeln!(text, "strategy  {strategy}");
        }
        let _ = writeln!(text, "tools     {}: {how}", number(stats.total_registered as u64));
        let _ = writeln!(text, "messages  {}", number(self.chat.history().len() as u64));
        let Usage { read, written, uncached, output } = self.usage;
        let _ = writeln!(
            text,
            "taken     {}: {} tokens read from the cache, {} written to it, {} uncached, {} answered",
            counted(self.requests, "request"),
            number(read),
            number(written),
            number(uncached),
            number(output)
        );
        if let Some(dollars) = self.cost.dollars.filter(|_| self.requests > 0) {
            let _ = writeln!(text, "cost      ${dollars:.4}");
        }
        Ok(text)
    }
}

/// The tools that a name stands for, in whichever form it was written.
fn named(view: &View, name: &str) -> Vec<Arc<str>> {
    let page = view.search(&format!("select:{name}"), MOST_FOUND);
    page.map(|page| page.results.into_iter().map(|row| row.name).collect()).unwrap_or_default()
}
