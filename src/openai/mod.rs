//! Wire types of the OpenAI API: the lossless request, the edits made to it, and the event tap. Nothing here knows tenants or memories.

pub mod json;
pub mod chat;
pub mod edits;
pub mod passthrough;
pub mod inflate;
pub mod sse;
mod tap;

pub use chat::ChatRequest;
pub use edits::RewrittenBody;
pub use passthrough::Passthrough;
pub use sse::TapReport;
pub use tap::{Tap, is_model_name, named_model};
