//! The words of a memory as the database keeps them: one number for each term, so that a search by words compares numbers.
//!
//! The program takes texts apart, for memories and questions alike, because the database's own ways know neither stems across languages nor
//! scripts that write words without spaces. A number is a hash over partition and term: the same term is another number elsewhere.

use sha2::{Digest, Sha256};

use crate::memory::PartitionKey;
use crate::memory::search::lexemes;
use crate::store::postgres::rows::user_column;

/// The numbers of a memory's text.
pub(in crate::store::postgres) fn words_of(partition: &PartitionKey, text: &str) -> Vec<i64> {
    numbers(partition, &lexemes(text))
}

/// The numbers of terms that [`lexemes`] gave.
pub(in crate::store::postgres) fn numbers(partition: &PartitionKey, terms: &[String]) -> Vec<i64> {
    // Lengths keep a user's name and a term apart.
    let user = user_column(partition.user.as_ref());
    let mut of_partition = Sha256::new();
    of_partition.update(partition.agent.as_bytes());
    of_partition.update(user.len().to_be_bytes());
    of_partition.update(user);
    let number = |term: &String| {
        let hash: [u8; 32] = of_partition.clone().chain_update(term).finalize().into();
        hash.first_chunk()
            .map_or(0, |first| i64::from_be_bytes(*first))
    };
    terms.iter().map(number).collect()
}
