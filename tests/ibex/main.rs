//! The integration tests: one binary, its modules mirror the product.
