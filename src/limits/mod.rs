//! What a tenant may use at once: request and token rates, open streams, bytes in flight. All in process.

mod inflight;
mod rates;
mod slots;

pub use inflight::{BytesHeld, InFlight, OverCap};
pub use rates::{Figures, Level, Limited, RateHeaders, Rates, Subject};
pub use slots::{SlotHeld, Slots};
