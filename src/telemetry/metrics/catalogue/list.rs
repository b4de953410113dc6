//! Every metric: name, how it counts, unit, labels, meaning.

use super::{Kind, Spec, Unit, sets};

macro_rules! catalogue {
    ($($id:ident = $kind:ident $name:literal $unit:ident [$($label:ident),*] $help:literal $($traced:ident)?;)*) => {
        $(
            pub(in crate::telemetry::metrics) const $id: Spec = Spec {
                name: $name,
                kind: Kind::$kind,
                unit: Unit::$unit,
                labels: &[$(sets::$label),*],
                help: $help,
                exemplars: catalogue!(@ $($traced)?),
            };
        )*

        /// Every metric, in the order of the documents.
        pub const ALL: &[&Spec] = &[$(&$id),*];
    };
    (@ exemplars) => { true };
    (@) => { false };
}

catalogue! {
    REQUESTS = Counter "ibex_requests" Things [ROUTE, STATUS] "Requests answered, by route and status code; 499 is a client that left before";
    REQUEST_SECONDS = Histogram "ibex_request_duration_seconds" Seconds [ROUTE] "Time from the request's head to the answer's head, by route" exemplars;
    IN_FLIGHT = Gauge "ibex_requests_in_flight" Things [] "Requests whose answer's head has not been written yet";
    REFUSALS = Counter "ibex_refusals" Things [STAGE_OR_NONE, CODE] "Requests refused, by stage and error code";
    STAGE_SECONDS = Histogram "ibex_stage_seconds" Seconds [STAGE, STAGE_END] "Time in a stage of the request path; its count is how often the stage ended so";
    OVERHEAD = Histogram "ibex_request_overhead_seconds" Seconds [] "Time that a request spends here before its provider is called, the way of its body included" exemplars;
    RATE_LIMITED = Counter "ibex_rate_limited" Things [LIMITED, LIMIT_LEVEL] "Requests over a limit, by what is limited and at which level";
    STREAM_SLOTS = Gauge "ibex_stream_slots" Things [] "Slots of open streams that are taken, over all levels";
    FLIGHTS_WAITING = Gauge "ibex_session_flights_waiting" Things [] "Requests that wait for another one of their session, which computes the same";
    BYTES_IN_FLIGHT = Gauge "ibex_request_bytes_in_flight" Bytes [] "Bytes of request bodies held now";

    CONTEXT = Counter "ibex_context" Things [CONTEXT, LEVEL] "Context assemblies, by status and degradation level";
    CONTEXT_BRANCHES = Counter "ibex_context_branches" Things [BRANCH, BRANCH_OUTCOME] "Retrieval branches, by outcome";
    CONTEXT_BRANCH_SECONDS = Histogram "ibex_context_branch_seconds" Seconds [BRANCH] "Time of a retrieval branch";
    CONTEXT_SECONDS = Histogram "ibex_context_assembly_seconds" Seconds [] "Time of a whole context assembly";
    CONTEXT_PACKS = Counter "ibex_context_packs" Things [PACK_PATH] "Packer runs, by path";
    CONTEXT_CANDIDATES = Counter "ibex_context_candidates" Things [CANDIDATE] "Memories that were considered, by what became of them";
    CONTEXT_GATE = Counter "ibex_context_gate" Things [GATE] "Decisions of the recall gate over a request's candidates";
    CONTEXT_INJECTED = Counter "ibex_context_memories_injected" Things [] "Memories injected for the first time in their session";
    CONTEXT_TOKENS = Counter "ibex_context_tokens_injected" Tokens [] "Tokens injected, what is sent again included";
    QUERY_EMBEDDINGS = Counter "ibex_query_embeddings" Things [EMBEDDED] "Questions that were embedded, by outcome";
    FENCE_STRIPS = Counter "ibex_session_fence_strips" Things [] "Requests that went out without memories, because the store could not tell what was forgotten";
    SESSION_EPOCHS = Counter "ibex_session_epochs_rotated" Things [ROTATION] "Frozen prefixes that were replaced, by reason";
    SESSION_EVENTS = Counter "ibex_session_events" Things [SESSION_EVENT] "Requests whose history was trimmed, branched, or whose client changed its system text or tools";
    PREFIX_BROKEN = Counter "ibex_session_prefix_broken" Things [] "Requests that did not send again what was sent before; anything but 0 is a defect";
    SENT_BYTES = Counter "ibex_session_sent_bytes" Bytes [] "Bytes of chat requests that went to providers in the stable layout";
    STABLE_BYTES = Counter "ibex_session_stable_bytes" Bytes [] "Of those, bytes that repeat the session's last request from its beginning: what a prompt cache can serve";
    RECORDS_LOST = Counter "ibex_session_records_lost" Things [] "Session records that could not be stored";
    SESSION_LANES = Gauge "ibex_session_lanes" Things [] "Frozen lanes in memory";
    SESSION_LANE_BYTES = Gauge "ibex_session_lane_bytes" Bytes [] "Bytes of frozen lanes in memory";
    CHAT_IDEMPOTENCY = Counter "ibex_chat_idempotency" Things [IDEMPOTENCY] "Chat requests with an Idempotency-Key, by what became of the key";

    PROVIDER_REQUESTS = Counter "ibex_provider_requests" Things [PROVIDER, MODEL, CALL_RESULT] "Provider calls, by result";
    PROVIDER_RESPONSES = Counter "ibex_provider_responses" Things [PROVIDER, STATUS_CLASS] "Answer heads of providers, by class of their status";
    PROVIDER_FIRST_BYTE = Histogram "ibex_provider_first_byte_seconds" Seconds [PROVIDER, MODEL] "Time from the handoff to the provider's answer head, or to the failure of the call" exemplars;
    PROVIDER_FIRST_CHUNK = Histogram "ibex_provider_first_chunk_seconds" Seconds [PROVIDER, MODEL] "Time from the handoff to the first bytes of the answer's body";
    PROVIDER_SECONDS = Histogram "ibex_provider_duration_seconds" Seconds [PROVIDER, MODEL] "Time from the handoff to the end of the answer" exemplars;
    TOKENS = Counter "ibex_tokens" Tokens [PROVIDER, MODEL, DIRECTION] "Tokens that providers reported, by direction; cached ones are among the input";
    TOKEN_ESTIMATE = Histogram "ibex_token_estimate_ratio" Ratio [FAMILY] "Prompt tokens a provider reported over tokens estimated, by tokenizer family";
    TAPS_LOST = Counter "ibex_usage_taps_lost" Things [] "Answers whose usage could not be read";
    ANSWERS = Counter "ibex_answers" Things [ANSWER_END] "Answers relayed, by how they ended";
    ANSWERS_OPEN = Gauge "ibex_answers_open" Things [] "Answers being relayed now";

    STORE_SECONDS = Histogram "ibex_store_seconds" Seconds [OPERATION] "Time of an operation of the durable store";
    STORE_ERRORS = Counter "ibex_store_errors" Things [OPERATION, STORE_ERROR] "Operations of the durable store that failed, by how; missing, conflict and revoked are answers, not faults";
    BREAKER_OPEN = Gauge "ibex_breaker_open" Things [BREAKER] "1 while a dependency that kept failing is left alone";
    BREAKER_OPENED = Counter "ibex_breaker_opened" Things [BREAKER] "How often it came to that";
    REDIS_CALLS = Counter "ibex_redis_calls" Things [REDIS_CALL, REDIS_OUTCOME] "Calls to Redis, by what was asked and how it ended";
    REDIS_SECONDS = Histogram "ibex_redis_call_seconds" Seconds [REDIS_CALL] "Time of a call to Redis, waiting for a connection included";
    RATE_LOCAL = Counter "ibex_rate_limit_local" Things [] "Answers about rates that this replica gave by itself, because Redis could not be asked";
    REDIS_LISTENING = Gauge "ibex_redis_listening" Things [] "1 while announcements of other replicas are heard";
    FEED_READS = Counter "ibex_feed_reads" Things [FEED] "Looks at the change feed, by result";
    FEED_AGE = Gauge "ibex_feed_age_seconds" Seconds [] "Time since the last look at the change feed that succeeded: how old a revocation by another process may be here";
    FEED_REVISION = Gauge "ibex_feed_revision" Things [] "The store's revision up to which every cache knows of every change";

    INDEX_BYTES = Gauge "ibex_index_bytes" Bytes [] "Bytes that the partitions in the index hold";
    INDEX_PARTITIONS = Gauge "ibex_index_partitions" Things [] "Partitions in the index, those being loaded included";
    INDEX_EVICTIONS = Counter "ibex_index_evictions" Things [] "Partitions that left the index because it was over its budget";
    INDEX_LOADS = Counter "ibex_index_loads" Things [LOAD_END] "Loads of a partition from the store, by how they ended";
    INDEX_LOAD_SECONDS = Histogram "ibex_index_load_seconds" Seconds [] "Time of a load, waiting for its turn included";
    TO_EMBED = Gauge "ibex_memories_to_embed" Things [] "Memories that lack a vector of the configured embedder; above 0 after a change of it";

    MEMORY_WRITES = Counter "ibex_memory_writes" Things [WRITE] "Memory writes, by outcome";
    NEAR_DEDUP = Counter "ibex_memory_near_dedup" Things [COMPARED] "New memories that were compared with what is there, and that were not in time";
    PII = Counter "ibex_memory_pii_findings" Things [PII_KIND, PII_RESULT] "Personal data and secrets found in new memories, by kind and what became of them";
    CONFLICTS = Counter "ibex_memory_conflicts" Things [CONFLICT] "What new memories meant for others";
    CLASSIFIER_CALLS = Counter "ibex_memory_classifier_calls" Things [CLASSIFIER] "Questions to the model about two memories";
    CAPTURE_TURNS = Counter "ibex_capture_turns" Things [CAPTURE] "Turns of agents that capture, by what became of them";

    QUEUE_DEPTH = Gauge "ibex_queue_depth" Things [QUEUE] "What waits in this process to be worked on";
    TRACE_SPANS = Counter "ibex_trace_spans" Things [SPANS] "Spans that the collector took, that it refused or did not take in time, and that found no room in the queue";
    LOG_LINES_LOST = Counter "ibex_log_lines_lost" Things [] "Log lines that were dropped because standard error was not read in time, or that could not be written";

    CONFIG_CURRENT = Gauge "ibex_config_current" Things [] "1 while the configuration in force is the one that was read last; 0 after a reload that found faults, or keys that wait for a restart";
    BUILD = Gauge "ibex_build_info" Things [VERSION, ONNX] "Always 1; its labels say what runs";
    UPTIME = Gauge "ibex_uptime_seconds" Seconds [] "Time since the process was ready to listen";
    PROCESS_START = Gauge "process_start_time_seconds" Seconds [] "When the process began, in seconds since 1970";
    PROCESS_CPU = Counter "process_cpu_seconds" Seconds [] "Processor time used";
    PROCESS_RESIDENT = Gauge "process_resident_memory_bytes" Bytes [] "Memory that is resident";
    PROCESS_VIRTUAL = Gauge "process_virtual_memory_bytes" Bytes [] "Memory that is mapped";
    PROCESS_FDS = Gauge "process_open_fds" Things [] "File descriptors in use";
    PROCESS_MAX_FDS = Gauge "process_max_fds" Things [] "File descriptors that may be in use";
    PROCESS_THREADS = Gauge "process_threads" Things [] "Threads";
}
