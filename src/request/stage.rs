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
    ($($(#[$doc:meta])* $name:ident = $text:literal, $mode:ident;)*) => {
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
        }
    };
}

stages! {
    /// Declared length against the limit.
    BodyLimit = "body_limit", Closed;
    /// The credential.
    BearerToken = "bearer_token", Closed;
    /// Agent and user.
    AgentBinding = "agent_binding", Closed;
    /// One immutable policy snapshot for the whole request.
    PolicySnapshot = "policy_snapshot", Closed;
    /// Requests per minute.
    RequestRate = "request_rate", Closed;
    /// The body.
    Validate = "validate", Closed;
    /// Tokens per minute and open streams.
    TokenRate = "token_rate", Closed;
    /// Directive and session.
    Resolve = "resolve", Open;
    /// A repeated request.
    Idempotency = "idempotency", Open;
    /// Memories.
    Context = "context", Open;
    /// The provider call.
    Handoff = "handoff", Closed;
    /// The answer.
    Relay = "relay", Closed;
}
