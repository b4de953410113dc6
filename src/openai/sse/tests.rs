//! The taps against streams cut anywhere.
