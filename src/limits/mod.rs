//! What a tenant may use at once: request and token rates, open streams, bytes in flight. Rates and streams are counted in this process or, where
//! replicas share a Redis, for all of them together.

mod inflight;
mod rates;
mod shared;
mod slots;

pub use inflight::{BytesHeld, InFlight, OverCap};
pub use rates::{Figures, Level, Limited, RateHeaders, Rates, Refusal, SOURCE, Subject, Taken};
pub use shared::OnOutage;
pub use slots::{SlotHeld, Slots};
