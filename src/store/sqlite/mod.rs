//! The embedded engine: SQLite in WAL mode, one writer thread that groups commits, a small pool of readers.
