//! `toolcrib prompt`: exactly what a model would see at its first request.

use std::fmt::Write as _;

use clap::ValueEnum;
use serde::Serialize;
use serde_json::value::RawValue;
use toolcrib::tokens::{TokenCount, Tokenizer};
use toolcrib::{Dialect, Engine, Session, View};

use crate::args::{Context, EngineArgs, unknown_model};
use crate::output::{self, BOLD, Misuse, number, printable, saved};
use crate::sources::{ToolArgs, load_view};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolcrib prompt                              preset crib, on your servers or a sample
  toolcrib prompt --preset stubs --mode deferred
  toolcrib prompt --provider openai --model gpt-5.6-sol
  toolcrib prompt --tools servers/ --json | jq .tokens

Counts marked ~ are estimates, for models whose vocabulary is not public.")]
pub(crate) struct PromptArgs {
    #[command(flatten)]
    source: ToolArgs,
    /// The form of the tool definitions
    #[arg(long, default_value = "neutral")]
    provider: Provider,
    /// Count tokens as this model does, and use its window and class [default: o200k_base]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    #[command(flatten)]
    engine: EngineArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Provider {
    /// {name, description, input_schema}, the schema as its author wrote it
    Neutral,
    /// Anthropic Messages
    Anthropic,
    /// OpenAI Chat Completions
    Openai,
    /// OpenAI Responses
    OpenaiResponses,
    /// Gemini function declarations
    Gemini,
    /// Ollama, which takes OpenAI's form
    Ollama,
}

impl Provider {
    fn dialect(self) -> Dialect {
        match self {
            Self::Neutral => Dialect::Neutral,
            Self::Anthropic => Dialect::Anthropic,
            Self::Openai | Self::Ollama => Dialect::OpenaiChat,
            Self::OpenaiResponses => Dialect::OpenaiResponses,
            Self::Gemini => Dialect::Gemini,
        }
    }
}

pub(crate) fn run(args: &PromptArgs, context: &Context) -> anyhow::Result<()> {
    let config = &context.config;
    let models = config.models()?;
    let model = args.model.as_deref().and_then(|name| models.find(name));
    if let (Some(name), None) = (&args.model, model) {
        context.warn(&unknown_model(&models, name, ", so tokens are estimated"));
    }
    let options = model.map_or_else(|| args.engine.clone(), |it| args.engine.for_model(it, config));
    let tokenizer =
        args.model.as_deref().map_or(Tokenizer::O200K, |name| Tokenizer::for_model(&models, name));
    let engine = options.engine(config)?;
    let view = load_view(&args.source, context)?;
    let prompt = Prompt::new(&engine, &view, args.provider.dialect(), &tokenizer)?;
    if context.json {
        return output::json(&prompt);
    }
    output::text(&prompt.describe(view.len(), args.model.as_deref()))
}

#[derive(Serialize)]
struct Prompt {
    system_section: String,
    tools: Vec<Box<RawValue>>,
    tokens: Tokens,
    #[serde(skip)]
    each: Vec<TokenCount>,
}

#[derive(Serialize)]
struct Tokens {
    #[serde(serialize_with = "plain")]
    system: TokenCount,
    #[serde(serialize_with = "plain")]
    tools: TokenCount,
    #[serde(serialize_with = "plain")]
    total: TokenCount,
    #[serde(serialize_with = "plain")]
    full: TokenCount,
    #[serde(skip_serializing_if = "is_true")]
    exact: bool,
}

fn plain<S: serde::Serializer>(count: &TokenCount, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(count.tokens)
}

fn is_true(flag: &bool) -> bool {
    *flag
}

impl Prompt {
    fn new(
        engine: &Engine,
        view: &View,
        dialect: Dialect,
        tokenizer: &Tokenizer,
    ) -> anyhow::Result<Self> {
        let mut session = Session::new();
        engine.begin_turn(&mut session, view);
        let first = engine.prepare(&mut session, view).map_err(Misuse::new)?;
        let tools: Vec<Box<RawValue>> =
            first.tools.iter().map(|tool| tool.render(dialect).to_owned()).collect();
        let each: Vec<TokenCount> = tools.iter().map(|tool| tokenizer.count(tool.get())).collect();
        let system = tokenizer.count(&first.system_section);
        let sent: TokenCount = each.iter().copied().sum();
        let all = view.tools().map(|tool| tool.definition().render(dialect));
        let full: TokenCount = all.map(|tool| tokenizer.count(tool.get())).sum();
        let total = system + sent;
        let exact = total.exact;
        Ok(Self {
            system_section: first.system_section.to_string(),
            tools,
            tokens: Tokens { system, tools: sent, total, full, exact },
            each,
        })
    }

    fn describe(&self, known: usize, model: Option<&str>) -> String {
        let Tokens { system, tools, total, full, .. } = self.tokens;
        let mut text = format!("{BOLD}── system section: {system} tokens{BOLD:#}\n\n");
        match &*self.system_section {
            "" => text.push_str("(none)\n"),
            section => {
                let _ = writeln!(text, "{}", printable(section.trim_end()));
            }
        }
        for (tool, count) in self.tools.iter().zip(&self.each) {
            let _ = writeln!(text, "\n{BOLD}── tool: {count} tokens{BOLD:#}\n");
            let _ = writeln!(text, "{}", printable(&indented(tool.get())));
        }
        let counted = model.map_or_else(|| "o200k_base".to_owned(), printable);
        let _ = writeln!(text, "\n{BOLD}── tokens, as {counted} counts{BOLD:#}\n");
        let width = full.to_string().len().max(total.to_string().len());
        let sent = self.tools.len();
        let _ = writeln!(text, "  system  {system:>width$}");
        let _ = writeln!(text, "  tools   {tools:>width$}  {sent} sent");
        let _ = writeln!(text, "  total   {total:>width$}");
        let all = number(known as u64);
        let _ = write!(text, "  full    {full:>width$}  all {all} definitions");
        if total.tokens <= full.tokens && full.tokens > 0 {
            let _ = write!(text, "; {:.1} % saved", saved(total.tokens, full.tokens));
        }
        text.push('\n');
        text
    }
}

/// JSON text with line breaks and indentation. It works on the text, because numbers that pass
/// through a parser don't all come out as they were.
fn indented(json: &str) -> String {
    let mut text = String::with_capacity(json.len() * 2);
    let mut depth = 0;
    let (mut quoted, mut escaped) = (false, false);
    let mut chars = json.chars().peekable();
    let line = |text: &mut String, depth: usize| {
        text.push('\n');
        text.push_str(&"  ".repeat(depth));
    };
    while let Some(c) = chars.next() {
        if quoted {
            quoted = escaped || c != '"';
            escaped = !escaped && c == '\\';
            text.push(c);
            continue;
        }
        match c {
            '{' | '[' => {
                text.push(c);
                while chars.next_if(|next| next.is_ascii_whitespace()).is_some() {}
                if let Some(end) = chars.next_if(|next| matches!(next, '}' | ']')) {
                    text.push(end);
                } else {
                    depth += 1;
                    line(&mut text, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut text, depth);
                text.push(c);
            }
            ',' => {
                text.push(c);
                line(&mut text, depth);
            }
            ':' => text.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => {
                quoted = c == '"';
                text.push(c);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indentation_changes_nothing_but_white_space() {
        let json = r#"{"a":[],"b": { },"c":[1,{"d":"x\"{,:[\\"}],"e":100000000000000000000000001}"#;
        let expected = r#"{
  "a": [],
  "b": {},
  "c": [
    1,
    {
      "d": "x\"{,:[\\"
    }
  ],
  "e": 100000000000000000000000001
}"#;
        assert_eq!(indented(json), expected);
    }
}
