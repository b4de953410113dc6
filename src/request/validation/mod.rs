//! Read and validate: fields, limits, tool pairs, model rule.
