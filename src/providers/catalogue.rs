//! What is known of models: window, greatest answer, tokenizer, system messages.

use crate::config::{ModelConfig, RecallPlace, SystemRole};
use crate::tokens::Family;

/// The capabilities of one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelProfile {
    /// Context window in tokens.
    pub context_window: u32,
    /// Greatest answer in tokens.
    pub max_output: u32,
    /// How its tokens are counted.
    pub family: Family,
    /// How many system messages its template takes.
    pub system_role: SystemRole,
    /// Where recalled memories stand.
    pub recall: RecallPlace,
}

/// A family of models by the start of their name, the longest prefix first where two overlap.
struct Known {
    prefix: &'static str,
    window: u32,
    max_output: u32,
    family: Family,
}

const fn known(prefix: &'static str, window: u32, max_output: u32, family: Family) -> Known {
    Known {
        prefix,
        window,
        max_output,
        family,
    }
}

/// Windows and answer limits as the vendors publish them; the first four rows are the seed catalogue's (contract, section 8).
const CATALOGUE: &[Known] = &[
    known("gpt-3.5-turbo", 16_385, 4_096, Family::Cl100kBase),
    known("gpt-4-turbo", 128_000, 4_096, Family::Cl100kBase),
    known("gpt-4o", 128_000, 16_384, Family::O200kBase),
    known("claude-", 200_000, 64_000, Family::Claude),
    known("chatgpt-4o", 128_000, 16_384, Family::O200kBase),
    known("gpt-4.1", 1_047_576, 32_768, Family::O200kBase),
    known("gpt-4-", 8_192, 4_096, Family::Cl100kBase),
    known("gpt-5", 400_000, 128_000, Family::O200kBase),
    known("o1", 200_000, 100_000, Family::O200kBase),
    known("o3", 200_000, 100_000, Family::O200kBase),
    known("o4", 200_000, 100_000, Family::O200kBase),
];

impl ModelProfile {
    /// What is known of `model`: configured fields first, then the built-in catalogue, then an unknown model's defaults.
    ///
    /// An answer can fill at most half of an unknown model's window.
    #[must_use]
    pub fn of(model: &str, configured: Option<&ModelConfig>, default_window: u32) -> Self {
        // A vendor prefix such as `openai/gpt-4o` does not change the model.
        let bare = model.rsplit('/').next().unwrap_or(model);
        let built_in = CATALOGUE
            .iter()
            .find(|k| bare.starts_with(k.prefix))
            .map(|k| Self {
                context_window: k.window,
                max_output: k.max_output,
                family: k.family,
                system_role: SystemRole::Multi,
                recall: match k.family {
                    // OpenAI's own models take any sequence of roles.
                    Family::O200kBase | Family::Cl100kBase => RecallPlace::Separate,
                    Family::Claude | Family::Unknown => RecallPlace::Inline,
                },
            });
        let mut profile = built_in.unwrap_or(Self {
            context_window: default_window,
            max_output: default_window / 2,
            family: Family::Unknown,
            system_role: SystemRole::Single,
            recall: RecallPlace::Inline,
        });
        if let Some(own) = configured {
            if let Some(window) = own.context_window {
                profile.context_window = window;
                profile.max_output = profile.max_output.min(window / 2);
            }
            profile.max_output = own.max_output_tokens.unwrap_or(profile.max_output);
            profile.family = own.tokenizer.unwrap_or(profile.family);
            profile.system_role = own.system_role.unwrap_or(profile.system_role);
            profile.recall = own.recall.unwrap_or(profile.recall);
        }
        profile
    }
}

#[cfg(test)]
mod tests {
    use super::ModelProfile;
    use crate::config::SystemRole;
    use crate::tokens::Family;

    #[test]
    fn known_models_are_recognised_with_and_without_a_vendor_prefix() {
        let plain = ModelProfile::of("gpt-4o-mini", None, 1_000);
        assert_eq!(
            (plain.context_window, plain.max_output, plain.family),
            (128_000, 16_384, Family::O200kBase)
        );
        assert_eq!(ModelProfile::of("openai/gpt-4o-mini", None, 1_000), plain);
        assert_eq!(
            ModelProfile::of("gpt-4-turbo", None, 1_000).context_window,
            128_000
        );
    }

    #[test]
    fn an_unknown_model_gets_the_cautious_defaults() {
        let unknown = ModelProfile::of("smollm2-135m", None, 2_048);
        assert_eq!(
            (unknown.context_window, unknown.family, unknown.system_role),
            (2_048, Family::Unknown, SystemRole::Single)
        );
    }
}
