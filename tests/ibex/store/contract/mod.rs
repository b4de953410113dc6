//! What every engine of the store must do. Each test takes a backend, and runs once for each of them.

pub(crate) mod engine;
pub(crate) mod identity;
pub(crate) mod directives;
pub(crate) mod memories;
pub(crate) mod duplicates;
pub(crate) mod embeddings;
pub(crate) mod refinery;
pub(crate) mod review;
pub(crate) mod ledger;
pub(crate) mod forget;
pub(crate) mod fences;
pub(crate) mod sessions;
pub(crate) mod working_states;
pub(crate) mod feed;

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

use ibex::ids::MemoryId;
use ibex::memory::Memory;

use super::fixtures::Engine;

/// An engine with nothing in it, and what a test must see or do behind the store's back.
#[async_trait]
pub(crate) trait Backend: Send + Sync {
    /// A handle of its own over the same data, as another process would have.
    async fn open(&self) -> Arc<dyn Engine>;
    /// As if so many writes had happened: the next one gets the revision after this.
    async fn skip_to_revision(&self, revision: i64);
    /// How many rows a table has.
    async fn rows(&self, table: &str) -> i64;
    /// Whether the row of a memory that was forgotten at that time and revision holds nothing but its identity, status and hash, those
    /// two, and columns that tell nothing.
    async fn is_tombstone(&self, written: &Memory, at: Timestamp, revision: i64) -> bool;
    /// When the memory was last used.
    async fn retrieved_at(&self, id: MemoryId) -> Option<Timestamp>;
    /// Begins a write that raises every fence, as another process would, and holds all that writers wait for.
    async fn raise_fences(&self, revision: i64) -> Box<dyn Uncommitted>;
}

/// A transaction that waits for its end.
#[async_trait]
pub(crate) trait Uncommitted: Send {
    /// Commits it.
    async fn commit(self: Box<Self>);
}

/// The whole contract for the backend of this type. A test that is not listed is reported as unused.
macro_rules! store_contract {
    ($backend:ty) => {
        crate::store::contract::each_test! {
            $backend;
            engine {
                every_acknowledged_write_of_a_crowd_is_there_after_a_restart,
                a_closed_store_refuses_everything,
            }
            identity {
                organisations_are_kept_and_listed_oldest_first,
                an_agent_is_invisible_to_another_organisation,
                what_an_agent_captures_is_kept_and_told,
                tokens_come_back_whole_and_keep_their_first_revocation,
                a_token_cannot_be_bound_to_another_organisations_agent,
            }
            directives {
                versions_count_up_per_agent_and_wait_for_promotion,
                rollback_returns_to_what_was_active_before,
                unknown_versions_and_foreign_agents_are_refused,
                the_active_version_survives_a_restart,
                a_revoked_version_is_out_of_use_for_good,
                an_agent_without_a_version_left_gets_a_new_one,
                a_rollback_after_a_revocation_never_stays_where_it_is,
                one_version_is_read_and_revoked_by_its_own_agent_only,
            }
            memories {
                a_memory_comes_back_as_it_was_written,
                a_batch_with_a_fault_stores_nothing,
                no_read_reaches_another_partition,
                no_write_reaches_another_partition,
                pages_go_newest_first_through_all_partitions,
                lists_filter_by_status_and_by_any_label,
                lists_match_all_that_is_asked,
                a_current_reading_holds_what_is_valid_then,
                a_partition_is_read_page_by_page_with_vectors_and_without_what_is_not_active,
                use_counts_add_up_without_a_change_of_the_row,
            }
            duplicates {
                a_duplicate_bumps_the_first_row_also_inside_one_batch,
                only_active_rows_of_the_same_partition_are_duplicates,
                forty_identical_inserts_at_once_store_one_row,
            }
            embeddings {
                what_lacks_a_vector_is_found_page_by_page,
                a_new_vector_changes_nothing_else_and_is_in_the_feed,
                a_vector_without_numbers_says_that_there_is_none_to_be_had,
            }
            refinery {
                what_a_new_memory_replaces_ends_where_it_begins_and_is_named_by_it,
                what_ends_later_is_active_until_then,
                a_verdict_about_a_text_that_is_not_there_is_void,
                relations_are_noted_once_and_seen_from_both_ends,
                the_same_text_for_another_time_takes_the_place_of_the_one_that_is_over,
                a_quarantined_memory_tells_why_until_it_is_released,
                a_changed_text_is_a_forgotten_one,
                a_change_without_a_new_text_forgets_nothing,
                a_change_of_what_changed_meanwhile_is_stale,
                a_change_into_the_text_of_another_is_not_made,
                votes_count_for_active_memories_of_the_partitions,
                mates_of_a_slot_come_with_the_newest_start_first,
            }
            review {
                an_open_question_is_settled_once,
                what_began_together_ends_when_it_is_decided,
                a_decision_that_replaces_nothing_leaves_both_as_they_are,
                a_question_about_a_memory_that_is_gone_is_void,
                questions_are_listed_newest_first_page_by_page,
                dead_letters_are_told_newest_first_and_go_when_they_are_old,
                an_agents_partitions_with_something_to_look_at_are_known,
            }
            ledger {
                a_keyed_write_leaves_an_outcome_for_each_member,
                a_used_key_refuses_the_whole_write,
                of_two_writes_with_one_key_at_once_one_is_done,
                a_key_is_free_again_after_its_time,
                a_member_without_a_row_fails_the_write,
                old_keys_are_deleted,
            }
            forget {
                a_forgotten_memory_is_found_by_no_read,
                a_tombstone_keeps_identity_hash_and_revision_only,
            }
            fences {
                a_fence_is_the_revision_of_the_last_forgetting_of_its_partition,
                another_handle_sees_a_forgetting_at_once,
                a_fence_is_told_while_the_write_lock_is_held,
                fences_outlive_the_process_and_a_closed_store_tells_none,
                more_partitions_than_are_kept_are_all_told,
                memories_by_id_are_those_of_the_partitions_that_are_not_forgotten,
            }
            sessions {
                a_lane_is_read_back_as_it_was_recorded_also_after_a_restart,
                sessions_are_in_no_change_feed,
                the_same_id_in_another_scope_is_another_session,
                an_agent_of_another_organisation_is_nobody,
                an_unknown_agent_has_no_sessions_and_a_refused_batch_leaves_nothing,
                opening_and_settling_twice_is_like_once,
                what_was_recorded_first_stays,
                turns_before_a_dropping_epoch_count_no_more_but_are_seen,
                a_view_holds_the_newest_turns_only,
                calls_of_a_turn_are_summed,
                numbers_that_no_provider_can_mean_break_no_batch,
                records_of_an_unknown_lane_are_passed_over,
                a_session_ends_once_and_is_active_again_when_it_is_used_again,
                old_sessions_are_deleted_with_all_that_is_theirs,
                versions_of_a_working_state_that_no_turn_tells_of_are_not_kept_for_ever,
                a_forgotten_memory_leaves_the_lanes_turns_and_takes_their_digest_along,
                a_turn_whose_block_was_dropped_takes_the_one_of_a_later_nonce,
            }
            working_states {
                versions_count_from_one_in_each_session_and_are_kept,
                a_state_creates_its_session_and_an_opening_finds_it,
                a_state_notes_how_many_turns_were_settled,
            }
            feed {
                writes_of_identities_have_one_entry_each,
                writes_of_directives_and_memories_have_one_entry_each,
                a_refused_write_leaves_no_entry,
                another_handle_hears_of_a_write_once,
                a_reader_that_fell_behind_the_feed_is_told_to_start_anew,
            }
        }
    };
}

macro_rules! each_test {
    ($backend:ty; $($topic:ident { $($name:ident,)* })*) => {
        $(
            mod $topic {
                $(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn $name() {
                        let backend = <$backend>::new();
                        $crate::store::contract::$topic::$name(&backend).await;
                    }
                )*
            }
        )*
    };
}

pub(crate) use {each_test, store_contract};
