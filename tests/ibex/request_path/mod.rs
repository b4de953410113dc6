//! (tests of request_path)
