//! Working state: what an agent holds in mind during a session, typed and bounded. Written by a call, never parsed from prose.
