//! From a request that is over to its spans: one for the request, one for each stage under it, and one for the provider's call, named as the
//! semantic conventions for HTTP and for generative AI name them. Only numbers, identifiers and fixed words go in.

use jiff::Timestamp;
use tokio::time::Instant;

use super::proto::{AnyValue, ERROR, KeyValue, Kind, Span, Status, Value};
use crate::request::Stage;
use crate::telemetry::ended::{Ended, RequestEnd};
use crate::telemetry::metrics::StreamEnd;
use crate::telemetry::trace::SpanId;
use crate::telemetry::trail::{CallFacts, ContextFacts, OTHER_METHOD};

/// A traced request, and the time of day at its end.
#[derive(Debug)]
pub(super) struct Traced {
    pub(super) ended: Ended,
    pub(super) at: Timestamp,
}

/// How many spans a request makes.
pub(super) fn count(ended: &Ended) -> u64 {
    let stages = ended.trail.stages(ended.at).count() as u64;
    1 + stages + u64::from(ended.trail.began(Stage::Handoff).is_some())
}

/// Attributes that are known.
#[derive(Default)]
struct Attributes(Vec<KeyValue>);

impl Attributes {
    fn with(mut self, key: &str, value: Option<impl Into<Value>>) -> Self {
        if let Some(value) = value {
            self.0.push(KeyValue {
                key: key.to_owned(),
                value: Some(AnyValue {
                    value: Some(value.into()),
                }),
            });
        }
        self
    }
}

impl Traced {
    /// The spans.
    pub(super) fn spans(&self) -> Vec<Span> {
        let Some((own, call)) = self.ended.meta.trace.spans() else {
            return Vec::new();
        };
        let Ended { trail, at, .. } = &self.ended;
        let mut spans = vec![self.request(own)];
        for (stage, began, ended) in trail.stages(*at) {
            let attributes = match (stage, &trail.context) {
                (Stage::Context, Some(context)) => of_context(context),
                _ => Attributes::default(),
            };
            let failed = ended == *at && self.is_refused();
            let span = self.span((SpanId::new(), Some(own)), stage.name(), (began, ended));
            spans.push(Span {
                kind: Kind::Internal.into(),
                attributes: attributes.0,
                status: failed.then_some(Status { code: ERROR }),
                ..span
            });
        }
        spans.extend(self.call((call, own)));
        spans
    }

    fn is_refused(&self) -> bool {
        self.ended.end == RequestEnd::Refused
    }

    /// Nanoseconds since 1970.
    fn unix(&self, at: Instant) -> u64 {
        let before = self.ended.at.saturating_duration_since(at).as_nanos();
        let end = u128::try_from(self.at.as_nanosecond()).unwrap_or(0);
        u64::try_from(end.saturating_sub(before)).unwrap_or(0)
    }

    fn span(
        &self,
        (id, parent): (SpanId, Option<SpanId>),
        name: &str,
        (began, ended): (Instant, Instant),
    ) -> Span {
        Span {
            trace_id: self.ended.meta.trace.id().as_bytes().to_vec(),
            span_id: id.as_bytes().to_vec(),
            parent_span_id: parent.map(|p| p.as_bytes().to_vec()).unwrap_or_default(),
            name: name.to_owned(),
            start_time_unix_nano: self.unix(began),
            end_time_unix_nano: self.unix(ended),
            ..Span::default()
        }
    }

    fn request(&self, id: SpanId) -> Span {
        let Ended {
            meta,
            trail,
            status,
            end,
            ..
        } = &self.ended;
        let who = trail.who();
        let text = |id: String| Value::Text(id);
        let broken = u64::from(*status) >= 500;
        let code = trail.code.map(|code| code.as_str());
        let attributes = Attributes::default()
            .with("http.request.method", Some(meta.method))
            .with("http.route", Some(meta.route))
            .with("http.response.status_code", Some(u64::from(*status)))
            .with("url.scheme", Some("http"))
            .with("error.type", code.filter(|_| broken))
            .with("ibex.code", code)
            .with("ibex.request_id", Some(meta.id.as_str()))
            .with("ibex.outcome", Some(end.as_str()))
            .with("ibex.stage", trail.current().map(Stage::name))
            .with("ibex.org.id", who.map(|w| text(w.org.to_string())))
            .with("ibex.agent.id", who.map(|w| text(w.agent.to_string())));
        let name = [shown(meta.method), " ", meta.route].concat();
        let span = self.span(
            (id, meta.trace.parent()),
            &name,
            (meta.started, self.ended.at),
        );
        Span {
            kind: Kind::Server.into(),
            attributes: attributes.0,
            status: broken.then_some(Status { code: ERROR }),
            ..span
        }
    }

    /// The provider's call: from the handoff to the end of the answer.
    fn call(&self, (id, parent): (SpanId, SpanId)) -> Option<Span> {
        let Ended {
            meta, trail, usage, ..
        } = &self.ended;
        let began = trail.began(Stage::Handoff)?;
        let call = trail.call.as_ref()?;
        let operation = operation(meta.route);
        let error = self.call_error();
        let first = self.ended.to_first_chunk().filter(|_| call.stream);
        let answered = trail.began(Stage::Relay).is_some();
        let attributes = Attributes::default()
            .with("gen_ai.operation.name", operation)
            .with("gen_ai.provider.name", Some(call.provider.name()))
            .with("gen_ai.request.model", call.model())
            .with("gen_ai.response.model", self.ended.model.as_deref())
            .with("gen_ai.request.stream", Some(call.stream))
            .with("gen_ai.usage.input_tokens", usage.map(|u| u.prompt_tokens))
            .with(
                "gen_ai.usage.output_tokens",
                usage.map(|u| u.completion_tokens),
            )
            .with(
                "gen_ai.usage.cache_read.input_tokens",
                usage.map(|u| u.cached_tokens),
            )
            .with(
                "gen_ai.response.time_to_first_chunk",
                first.map(|t| t.as_secs_f64()),
            )
            .with("http.request.method", Some(meta.method))
            .with(
                "http.response.status_code",
                answered.then_some(u64::from(self.ended.status)),
            )
            .with("error.type", error.as_deref());
        let attributes = of_server(attributes, call);
        let name = match (operation, call.model()) {
            (Some(operation), Some(model)) => [operation, " ", model].concat(),
            (Some(operation), None) => operation.to_owned(),
            (None, _) => shown(meta.method).to_owned(),
        };
        let span = self.span((id, Some(parent)), &name, (began, self.ended.at));
        Some(Span {
            kind: Kind::Client.into(),
            attributes: attributes.0,
            status: error.is_some().then_some(Status { code: ERROR }),
            ..span
        })
    }

    fn call_error(&self) -> Option<String> {
        let Ended {
            trail, status, end, ..
        } = &self.ended;
        match end {
            RequestEnd::Refused => trail.code.map(|code| code.as_str().to_owned()),
            RequestEnd::ClientGone | RequestEnd::Relayed(StreamEnd::ClientGone) => {
                Some("client_gone".to_owned())
            }
            RequestEnd::Answered | RequestEnd::Relayed(StreamEnd::Complete) if *status >= 400 => {
                Some(status.to_string())
            }
            RequestEnd::Answered | RequestEnd::Relayed(StreamEnd::Complete) => None,
            RequestEnd::Relayed(broken) => Some(broken.as_str().to_owned()),
        }
    }
}

/// A method in a span's name; the conventions have a word for those that are not told.
fn shown(method: &'static str) -> &'static str {
    if method == OTHER_METHOD {
        "HTTP"
    } else {
        method
    }
}

/// What the conventions call the operation of a route.
fn operation(route: &str) -> Option<&'static str> {
    match route {
        "/v1/chat/completions" | "/v1/responses" => Some("chat"),
        "/v1/completions" => Some("text_completion"),
        "/v1/embeddings" => Some("embeddings"),
        _ => None,
    }
}

fn of_server(attributes: Attributes, call: &CallFacts) -> Attributes {
    let uri = call.provider.chat_uri();
    let default = if uri.scheme_str() == Some("https") {
        443
    } else {
        80
    };
    let port = uri.port_u16().unwrap_or(default);
    attributes
        .with("server.address", uri.host())
        .with("server.port", Some(u64::from(port)))
}

fn of_context(context: &ContextFacts) -> Attributes {
    Attributes::default()
        .with("ibex.context.status", Some(context.status.as_str()))
        .with(
            "ibex.context.degradation",
            context.level.map(|l| l.as_str()),
        )
        .with("ibex.context.reason", context.reason.as_deref())
        .with("ibex.context.tokens", Some(u64::from(context.tokens)))
        .with("ibex.session.epoch", Some(u64::from(context.epoch)))
        .with("ibex.memories.considered", Some(context.considered as u64))
        .with("ibex.memories.packed", Some(context.packed as u64))
        .with("ibex.sent_bytes", Some(context.sent_bytes))
        .with("ibex.stable_bytes", Some(context.stable_bytes))
}
