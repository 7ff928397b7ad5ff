//! An agent as another agent's tool.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use toolcrib_core::ToolName;
use toolcrib_runtime::{Function, function};

use crate::agent::{Agent, Parts};
use crate::event::End;

/// How deep agents may call each other.
const MOST_DEPTH: usize = 4;

tokio::task_local! {
    /// How many agents are calling each other at this point.
    static DEPTH: usize;
}

// What a sub-agent is given to do. Not a doc comment: that would reach the model.
#[derive(Deserialize, JsonSchema)]
struct Task {
    /// What to do, with everything one must know to do it: nothing else is passed on.
    task: String,
}

impl Agent {
    /// Makes a tool of the agent: each call is a conversation of its own, which ends with its
    /// answer. It has the agent's own policy and deferral; its loads, its messages and its
    /// permissions are its own, and nothing of them reaches whoever calls it.
    ///
    /// An agent never sees the tool that it is. What it takes is not part of the caller's
    /// [`Answer::usage`](crate::Answer::usage): an agent has [`Hooks::on_run_end`](crate::Hooks) to
    /// count it. An agent that is registered with the very crib it works with keeps that crib
    /// alive until it is removed from it.
    ///
    /// ```
    /// use toolcrib_agent::{Agent, Scripted, Turn};
    /// use toolcrib_core::{Policy, PolicyRules, Settings};
    /// use toolcrib_runtime::{Crib, function};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let crib = Crib::builder(Settings::default()).build().await?;
    /// let rules = PolicyRules { read_only: true, ..Default::default() };
    /// let reader = Agent::builder(Scripted::new([Turn::text("42.")]), "small", crib.clone())
    ///     .policy(Policy::new(rules)?)
    ///     .build();
    /// crib.register(reader.into_tool("look_up", "Finds something out, and changes nothing."))?;
    ///
    /// let call = Turn::call("look_up", serde_json::json!({"task": "What is six by seven?"}));
    /// let model = Scripted::new([call, Turn::text("It is 42.")]);
    /// let answer = Agent::builder(model, "large", crib).build().chat().send("6 * 7?").await;
    /// assert_eq!((answer.text.as_str(), answer.calls[0].name.as_str()), ("It is 42.", "look_up"));
    /// # Ok(()) }
    /// ```
    pub fn into_tool(self, name: &str, description: &str) -> Function {
        let policy = self.0.policy.without(&ToolName::host(name));
        let agent = Agent(Arc::new(Parts { policy, ..Parts::clone(&self.0) }));
        function(name, description, move |Task { task }: Task| {
            let agent = agent.clone();
            async move {
                let depth = DEPTH.try_with(|depth| *depth).unwrap_or(0);
                if depth == MOST_DEPTH {
                    return Err(format!("Agents call each other at most {MOST_DEPTH} deep."));
                }
                let answer =
                    DEPTH.scope(depth + 1, async move { agent.chat().send(task).await }).await;
                match answer.end {
                    End::Done => Ok(answer.text),
                    end if answer.text.is_empty() => Err(format!("It did not finish: {end}.")),
                    end => Err(format!("It did not finish: {end}. It said last: {}", answer.text)),
                }
            }
        })
    }
}
