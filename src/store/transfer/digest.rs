//! Counts and digests of tables: what both sides of a move must agree on.
//!
//! A table's digest is the sum of its rows' SHA-256, each taken as four numbers that wrap around. Engines hand rows out in different
//! orders, and a sum has none. It finds what is lost, doubled or changed; it is no defence against somebody who makes up rows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Batch, Row};

/// A table's count and digest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// Rows.
    pub rows: u64,
    /// The sum of their hashes.
    pub digest: [u64; 4],
}

impl Sum {
    /// Adds a row.
    pub fn add(&mut self, row: &Row) {
        let mut bytes = Vec::with_capacity(256);
        row.iter().for_each(|cell| cell.canonical(&mut bytes));
        let hash = Sha256::digest(&bytes);
        let words = hash.as_chunks::<8>().0;
        for (sum, word) in self.digest.iter_mut().zip(words) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*word));
        }
        self.rows += 1;
    }
}

/// The sums of all tables, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums(BTreeMap<String, Sum>);

impl Sums {
    /// Adds the rows of a batch.
    pub fn add(&mut self, batch: &Batch) {
        let sum = self.0.entry(batch.table.name.to_owned()).or_default();
        batch.rows.iter().for_each(|row| sum.add(row));
    }

    /// All rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.0.values().map(|sum| sum.rows).sum()
    }

    /// The tables with their sums.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Sum)> {
        self.0.iter().map(|(name, sum)| (name.as_str(), *sum))
    }

    /// The tables in which `other` is otherwise.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let names = self.0.keys().chain(other.0.keys());
        let mut names: Vec<&String> = names.collect();
        names.sort_unstable();
        names.dedup();
        let of = |sums: &Self, name: &str| sums.0.get(name).copied().unwrap_or_default();
        names
            .into_iter()
            .filter(|name| of(self, name) != of(other, name))
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Batch, Cell, table};
    use super::Sums;
    use crate::ids::OrgId;

    fn sums(rows: &[&str]) -> Sums {
        let mut sums = Sums::default();
        for row in rows {
            sums.add(&Batch {
                org: OrgId::from_bytes([1; 16]),
                table: table("orgs").unwrap(),
                rows: vec![vec![Cell::Text((*row).to_owned()), Cell::Null]],
            });
        }
        sums
    }

    #[test]
    fn the_order_of_rows_does_not_count_and_everything_else_does() {
        let two = sums(&["a", "b"]);
        assert_eq!(two, sums(&["b", "a"]));
        assert_eq!(two.rows(), 2);
        for other in [&["a"][..], &["a", "b", "b"], &["a", "c"], &[]] {
            assert_eq!(two.differences(&sums(other)), ["orgs"], "{other:?}");
        }
        assert!(two.differences(&two).is_empty());
    }
}
