//! The stages of the request path, named once: documents, spans, metrics, `Server-Timing` and the order test all take them from here.

/// Whether a stage that cannot do its work stops the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// The request is refused before any provider is called.
    Closed,
    /// The request goes on, and headers say what is missing.
    Open,
}

macro_rules! stages {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $mode:ident, $says:literal;)*) => {
        /// A stage of the request path.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Stage {
            $($(#[$doc])* $name,)*
        }

        impl Stage {
            /// Every stage, in the order in which a request meets them.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The name in metrics, headers and documents.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What a failure of the stage itself does.
            #[must_use]
            pub const fn on_failure(self) -> OnFailure {
                match self { $(Self::$name => OnFailure::$mode,)* }
            }

            /// One line for the documents.
            #[must_use]
            pub const fn says(self) -> &'static str {
                match self { $(Self::$name => $says,)* }
            }
        }
    };
}

stages! {
    /// Declared length against the limit.
    BodyLimit = "body_limit", Closed, "refuses a declared length over the limit, and encoded bodies";
    /// The credential.
    BearerToken = "bearer_token", Closed, "verifies the credential";
    /// Agent and user.
    AgentBinding = "agent_binding", Closed, "binds the request to an agent and, if there is one, a user";
    /// One immutable policy snapshot for the whole request.
    PolicySnapshot = "policy_snapshot", Closed, "takes the policy that holds for this request";
    /// Requests per minute.
    RequestRate = "request_rate", Closed, "counts the request at token, agent, organisation and global level";
    /// The body.
    Validate = "validate", Closed, "reads and parses the body, checks limits, tool pairs and the model rule";
    /// Tokens per minute and open streams.
    TokenRate = "token_rate", Closed, "counts the tokens asked for and takes a stream slot";
    /// Directive and session.
    Resolve = "resolve", Open, "looks up the directive's version and the session";
    /// Memories.
    Context = "context", Open, "assembles context under the deadline";
    /// The provider call.
    Handoff = "handoff", Closed, "sends the rewritten request to the provider";
    /// The answer.
    Relay = "relay", Closed, "passes the answer on as it comes";
}
