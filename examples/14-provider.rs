//! A provider of your own: anything that turns a request into a reply.

#![allow(clippy::print_stdout)]

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use toolcrib::agent::{
    Agent, Delta, Message, Provider, ProviderError, Reply, Request, Said, StopReason,
};
use toolcrib::{Crib, Settings};

/// Answers with what it was told, backwards.
struct Mirror;

impl Provider for Mirror {
    fn name(&self) -> &str {
        "mirror"
    }

    fn stream(&self, request: Request) -> BoxStream<'static, Result<Delta, ProviderError>> {
        let heard = request.messages.iter().rev().find_map(|message| match &**message {
            Message::User { content } => content.first().map(|part| part.described()),
            _ => None,
        });
        let Some(heard) = heard else {
            let error = ProviderError::Rejected("there is nothing to mirror".into());
            return stream::iter([Err(error)]).boxed();
        };
        let text: String = heard.chars().rev().collect();
        let reply = Reply {
            content: vec![Said::Text { text: text.clone() }],
            stop: StopReason::End,
            usage: Default::default(),
        };
        let letters: Vec<_> = text.chars().map(|c| Ok(Delta::Text(c.to_string()))).collect();
        stream::iter(letters).chain(stream::iter([Ok(Delta::Finished(reply))])).boxed()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let crib = Crib::builder(Settings::default()).build().await?;
    let agent = Agent::builder(Mirror, "mirror", crib).build();
    println!("{}", agent.chat().send("live on time").await.text);
    Ok(())
}
