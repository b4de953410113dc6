//! Which provider serves which model.

use std::sync::Arc;

use globset::GlobMatcher;
use http::{HeaderName, HeaderValue, Uri, header};

use crate::config::{AuthStyle, Config, ModelConfig};
use crate::policy::compile_glob;
use crate::session::Lane;

use super::catalogue::ModelProfile;
use super::endpoint::Endpoint;
use crate::telemetry::{CallFigures, CallMetrics};

/// A provider or model entry that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct InvalidProvider {
    key: String,
    reason: String,
}

/// One provider, ready to be called.
#[derive(Debug)]
pub struct Provider {
    name: String,
    endpoint: Endpoint,
    chat: Uri,
    key: Option<(HeaderName, HeaderValue)>,
}

impl Provider {
    fn new(name: &str, config: &crate::config::ProviderConfig) -> Result<Self, InvalidProvider> {
        let fail = |key: &str, reason: String| InvalidProvider {
            key: format!("providers.{name}.{key}"),
            reason,
        };
        let endpoint =
            Endpoint::parse(&config.base_url).map_err(|e| fail("base_url", e.to_string()))?;
        let chat = endpoint
            .uri("/chat/completions")
            .map_err(|e| fail("base_url", e.to_string()))?;
        let secret = |text: String| {
            let mut value = HeaderValue::try_from(text)
                .map_err(|_| fail("api_key", "not a valid header value".to_owned()))?;
            value.set_sensitive(true);
            Ok(value)
        };
        let given = config.api_key.as_deref().filter(|k| !k.is_empty());
        let key = match (config.auth, given) {
            (AuthStyle::None, _) => None,
            (AuthStyle::Bearer, Some(key)) => {
                Some((header::AUTHORIZATION, secret(format!("Bearer {key}"))?))
            }
            (AuthStyle::ApiKey, Some(key)) => {
                Some((HeaderName::from_static("api-key"), secret(key.to_owned())?))
            }
            (AuthStyle::Bearer | AuthStyle::ApiKey, None) => {
                return Err(fail(
                    "api_key",
                    "unset; set it, or auth = \"none\" for a provider that takes no key".to_owned(),
                ));
            }
        };
        Ok(Self {
            name: name.to_owned(),
            endpoint,
            chat,
            key,
        })
    }

    /// The configured name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The URL of the chat operation, joined once.
    #[must_use]
    pub fn chat_uri(&self) -> &Uri {
        &self.chat
    }

    /// The base URL.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The header that carries our key.
    #[must_use]
    pub fn key_header(&self) -> Option<&(HeaderName, HeaderValue)> {
        self.key.as_ref()
    }
}

/// Where a request for a model goes.
#[derive(Debug, Clone)]
pub struct Route {
    /// The provider.
    pub provider: Arc<Provider>,
    /// The model name to send instead of the client's.
    pub upstream_model: Option<Arc<str>>,
    /// What is known of the model.
    pub profile: ModelProfile,
    /// Provider and model as they are called: what frozen state belongs to.
    pub lane: Lane,
    /// What calls of this route are counted in.
    pub figures: Arc<CallFigures>,
}

#[derive(Debug)]
struct Entry {
    pattern: GlobMatcher,
    config: ModelConfig,
    provider: Option<Arc<Provider>>,
    upstream_model: Option<Arc<str>>,
    figures: Option<Arc<CallFigures>>,
}

/// Every provider and model entry.
#[derive(Debug)]
pub struct Registry {
    entries: Vec<Entry>,
    default: Option<(Arc<Provider>, Arc<CallFigures>)>,
    default_window: u32,
}

impl Registry {
    /// Builds the registry of a configuration.
    ///
    /// # Errors
    /// When an entry cannot be used; the error names its key.
    pub fn new(config: &Config) -> Result<Self, InvalidProvider> {
        Self::counted(config, &CallMetrics::default())
    }

    /// The same, whose calls are counted in `metrics`.
    ///
    /// # Errors
    /// When an entry cannot be used; the error names its key.
    pub fn counted(config: &Config, metrics: &CallMetrics) -> Result<Self, InvalidProvider> {
        let providers: Vec<(bool, Arc<Provider>)> = config
            .providers
            .iter()
            .map(|(name, p)| Ok((p.default, Arc::new(Provider::new(name, p)?))))
            .collect::<Result<_, _>>()?;
        let default = match providers.as_slice() {
            [(_, only)] => Some(Arc::clone(only)),
            many => many
                .iter()
                .find(|(default, _)| *default)
                .map(|(_, p)| Arc::clone(p)),
        };
        let find = |name: &str| {
            providers
                .iter()
                .find(|(_, p)| p.name() == name)
                .map(|(_, p)| Arc::clone(p))
        };
        let mut entries = Vec::with_capacity(config.models.len());
        for (i, model) in config.models.iter().enumerate() {
            let fail = |key: &str, reason: String| InvalidProvider {
                key: format!("models[{i}].{key}"),
                reason,
            };
            let pattern =
                compile_glob(&model.pattern).map_err(|e| fail("pattern", e.to_string()))?;
            let provider =
                match &model.provider {
                    Some(name) => Some(find(name).ok_or_else(|| {
                        fail("provider", format!("no provider is named {name:?}"))
                    })?),
                    None => None,
                };
            let upstream_model = model.upstream_model.as_deref().map(Arc::from);
            let served = provider.as_ref().or(default.as_ref());
            let figures = served.map(|p| Arc::new(metrics.route(p.name(), Some(&model.pattern))));
            entries.push(Entry {
                pattern,
                config: model.clone(),
                provider,
                upstream_model,
                figures,
            });
        }
        let default = default.map(|provider| {
            let figures = Arc::new(metrics.route(provider.name(), None));
            (provider, figures)
        });
        Ok(Self {
            entries,
            default,
            default_window: config.context.default_context_window,
        })
    }

    /// Where `model` goes; `None` when no provider serves it.
    #[must_use]
    pub fn route(&self, model: &str) -> Option<Route> {
        let entry = self.entry(model);
        let (default, other) = self.default.as_ref().map(|(p, f)| (p, f)).unzip();
        let provider = entry.and_then(|e| e.provider.as_ref()).or(default)?;
        let figures = entry.and_then(|e| e.figures.as_ref()).or(other)?;
        let upstream_model = entry.and_then(|e| e.upstream_model.clone());
        Some(Route {
            lane: Lane::new(provider.name(), upstream_model.as_deref().unwrap_or(model)),
            provider: Arc::clone(provider),
            figures: Arc::clone(figures),
            upstream_model,
            profile: ModelProfile::of(model, entry.map(|e| &e.config), self.default_window),
        })
    }

    /// What is known of `model`, whether or not a provider serves it.
    #[must_use]
    pub fn profile(&self, model: &str) -> ModelProfile {
        let configured = self.entry(model).map(|e| &e.config);
        ModelProfile::of(model, configured, self.default_window)
    }

    fn entry(&self, model: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.pattern.is_match(model))
    }

    /// The provider for requests that name no model.
    #[must_use]
    pub fn default_provider(&self) -> Option<&Arc<Provider>> {
        self.default.as_ref().map(|(provider, _)| provider)
    }

    /// The provider for requests that name no model, and what its calls are counted in.
    #[must_use]
    pub fn default_call(&self) -> Option<(Arc<Provider>, Arc<CallFigures>)> {
        self.default.clone()
    }
}
