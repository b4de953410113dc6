//! Injected slowness and failure, on paused time: every limit is met exactly, nothing is waited for in vain, and the directive goes out
//! whenever it is known.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ibex::app::{App, Seams};
use ibex::auth::{Principal, operator_principal};
use ibex::config::Config;
use ibex::ids::{AgentId, OrgId, UserId};
use ibex::memory::PartitionKey;
use ibex::memory::search::Hit;
use ibex::openai::ChatRequest;
use ibex::providers::ModelProfile;
use ibex::request::context::assemble::{Assembled, View};
use ibex::request::context::plan::{ContextStatus, Level, Outcome};
use ibex::request::context::{Subject, run};
use ibex::request::resolution::directive::{Active, Lookup};
use ibex::seams::{Clock, SystemClock, SystemEntropy};
use ibex::session::Lane;
use ibex::store::keys::ServerKeys;
use ibex::store::sqlite::SqliteStore;
use ibex::store::{Agent, AgentStatus, CaptureScope, IdentityStore, Org, OrgStatus};
use jiff::Timestamp;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::support::in_assembled;

use super::fakes::{Act, FakeBranch, FakeDirective, FakeEmbedder, block, directive, hit, memory};

/// What every assembly of these tests asks.
const BODY: &str =
    r#"{"model": "gpt-4o", "messages": [{"role": "user", "content": "Where is the spare key?"}]}"#;

/// How the parts behave.
#[derive(Clone)]
struct Parts {
    embedder: Act,
    directive: Act,
    known: Active,
    hot: Act,
    cold: Act,
    clock: Mood,
}

impl Parts {
    /// All of them answer at once, and there is a directive.
    fn sound() -> Self {
        Self {
            embedder: Act::Answer,
            directive: Act::Answer,
            known: directive("Be brief."),
            hot: Act::Answer,
            cold: Act::Answer,
            clock: Mood::Sound,
        }
    }
}

/// How the clock behaves when assembly asks for the time: the one seam inside the pure part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Sound,
    Panics,
    Slow,
}

struct MoodyClock(AtomicU8);

impl MoodyClock {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU8::new(0)))
    }

    fn set(&self, mood: Mood) {
        self.0.store(mood as u8, Ordering::Relaxed);
    }
}

impl fmt::Debug for MoodyClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MoodyClock")
    }
}

impl Clock for MoodyClock {
    fn now(&self) -> Timestamp {
        match self.0.load(Ordering::Relaxed) {
            1 => panic!("assembly panics"),
            2 => block(Duration::from_millis(100)),
            _ => {}
        }
        SystemClock.now()
    }
}

/// An application of stand-ins and somebody who asks.
struct Bench {
    app: App,
    who: Principal,
    hot: Arc<FakeBranch>,
    cold: Arc<FakeBranch>,
    clock: Arc<MoodyClock>,
    _folder: TempDir,
}

impl Bench {
    async fn new(parts: &Parts) -> Self {
        Self::with(parts, |_| Vec::new()).await
    }

    /// One whose branches find these besides a memory of their own.
    async fn with(parts: &Parts, also: impl Fn(&PartitionKey) -> Vec<Hit>) -> Self {
        let folder = TempDir::new().unwrap();
        let mut config = Config::default();
        in_assembled(&mut config);
        config.store.path = folder.path().join("ibex.db");
        let store = Arc::new(SqliteStore::open(&config.store.path, &config.store).unwrap());
        let keys = ServerKeys::load_or_create(&config.store.path, &config.keys, &SystemEntropy);
        let (org, agent) = (OrgId::new(), AgentId::new());
        let user: UserId = "ann".parse().unwrap();
        let created_at = SystemClock.now();
        let name = "test".to_owned();
        let status = OrgStatus::Active;
        let row = Org {
            id: org,
            name: name.clone(),
            status,
            created_at,
        };
        store.create_org(row).await.unwrap();
        let status = AgentStatus::Active;
        let row = Agent {
            id: agent,
            org,
            name,
            status,
            capture: CaptureScope::Off,
            created_at,
        };
        store.create_agent(row).await.unwrap();
        let who = operator_principal(&*store, org, agent, Some(user.clone()))
            .await
            .unwrap();
        let own = PartitionKey {
            org,
            agent,
            user: Some(user),
        };
        let found = |text| [vec![hit(memory(own.clone(), text))], also(&own)].concat();
        let hot = FakeBranch::new(parts.hot, found("The spare key hangs in the shed."));
        let cold = FakeBranch::new(parts.cold, found("The spare key has a red tag."));
        let clock = MoodyClock::new();
        let mut seams = Seams::over(store, keys.unwrap());
        seams.directives = Some(FakeDirective::new(parts.directive, parts.known.clone()));
        seams.hot = Some(hot.clone());
        seams.cold = Some(cold.clone());
        seams.embedder = Some(Arc::new(FakeEmbedder(parts.embedder)));
        seams.clock = clock.clone();
        let app = App::build(config, seams).unwrap();
        clock.set(parts.clock);
        Self {
            app,
            who,
            hot,
            cold,
            clock,
            _folder: folder,
        }
    }

    /// One assembly, and the paused time it took.
    async fn run(&self, lookup: &Lookup) -> (Assembled, Duration) {
        let chat = ChatRequest::parse(Bytes::from_static(BODY.as_bytes()), 10).unwrap();
        let profile = ModelProfile::of("gpt-4o", None, 32_768);
        let lane = Lane::new("openai", "gpt-4o");
        let subject = Subject {
            who: &self.who,
            chat: &chat,
            profile,
            lane: &lane,
            rules: &self.app.rules.load_full(),
        };
        let began = Instant::now();
        let assembled = run(&self.app, &subject, lookup, &View::default()).await;
        let elapsed = began.elapsed();
        self.clock.set(Mood::Sound);
        (assembled, elapsed)
    }
}

async fn assemble(parts: &Parts) -> (Assembled, Duration) {
    Bench::new(parts).await.run(&Lookup::ToLoad).await
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

type Row = (ContextStatus, Level, Option<String>, u64);

/// Status, level, reason and the number of injected memories.
fn row(assembled: &Assembled) -> Row {
    let plan = &assembled.plan;
    (
        plan.status,
        plan.level,
        plan.reason.clone(),
        assembled.injected(),
    )
}

fn expected(status: ContextStatus, level: Level, reason: &str, injected: u64) -> Row {
    let reason = (!reason.is_empty()).then(|| reason.to_owned());
    (status, level, reason, injected)
}

#[tokio::test(start_paused = true)]
async fn sound_branches_take_no_time() {
    let (assembled, elapsed) = assemble(&Parts::sound()).await;
    assert_eq!(
        row(&assembled),
        expected(ContextStatus::Full, Level::L0, "", 2)
    );
    assert_eq!(elapsed, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_slow_branch_is_cancelled_at_its_own_limit_and_the_others_are_kept() {
    use ContextStatus::Partial;
    let sound = Parts::sound();
    let cases = [
        (
            Parts {
                directive: Act::Hang,
                ..sound.clone()
            },
            "directive=timeout",
            2,
            ms(5),
        ),
        (
            Parts {
                hot: Act::Hang,
                ..sound.clone()
            },
            "hot=timeout",
            1,
            ms(15),
        ),
        (
            Parts {
                cold: Act::Hang,
                ..sound
            },
            "cold=timeout",
            1,
            ms(40),
        ),
    ];
    for (parts, reason, injected, limit) in cases {
        let (assembled, elapsed) = assemble(&parts).await;
        assert_eq!(
            row(&assembled),
            expected(Partial, Level::L1, reason, injected)
        );
        assert_eq!(elapsed, limit, "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_branch_costs_its_own_memories_and_no_time() {
    for (act, word) in [
        (Act::Fail, "error"),
        (Act::Panic, "error"),
        (Act::GiveUp, "timeout"),
    ] {
        let sound = Parts::sound();
        let cases = [
            (
                Parts {
                    directive: act,
                    ..sound.clone()
                },
                "directive",
                2,
            ),
            (
                Parts {
                    hot: act,
                    ..sound.clone()
                },
                "hot",
                1,
            ),
            (Parts { cold: act, ..sound }, "cold", 1),
        ];
        for (parts, name, injected) in cases {
            let (assembled, elapsed) = assemble(&parts).await;
            let reason = format!("{name}={word}");
            assert_eq!(
                row(&assembled),
                expected(ContextStatus::Partial, Level::L1, &reason, injected)
            );
            assert_eq!(
                (elapsed, assembled.plan.branches.len()),
                (Duration::ZERO, 4),
                "{reason}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_both_memory_branches_the_directive_goes_out_alone() {
    let broken = Parts {
        hot: Act::Fail,
        cold: Act::Hang,
        ..Parts::sound()
    };
    let (assembled, elapsed) = assemble(&broken).await;
    assert_eq!(
        row(&assembled),
        expected(
            ContextStatus::DirectiveOnly,
            Level::L2,
            "hot=error,cold=timeout",
            0
        )
    );
    assert_eq!(
        (assembled.injection.assembled.as_str(), elapsed),
        ("Be brief.", ms(40))
    );

    let (assembled, _) = assemble(&Parts {
        known: None,
        ..broken.clone()
    })
    .await;
    assert_eq!(
        row(&assembled),
        expected(
            ContextStatus::HistoryOnly,
            Level::L2,
            "hot=error,cold=timeout",
            0
        )
    );
    assert_eq!(assembled.injection.assembled, "");

    let (assembled, elapsed) = assemble(&Parts {
        directive: Act::Hang,
        hot: Act::Panic,
        ..broken
    })
    .await;
    let reason = "directive=timeout,hot=error,cold=timeout";
    assert_eq!(
        row(&assembled),
        expected(ContextStatus::HistoryOnly, Level::L2, reason, 0)
    );
    assert_eq!(elapsed, ms(40), "the limits run side by side");
}

#[tokio::test(start_paused = true)]
async fn a_directive_that_is_at_hand_is_never_asked_for() {
    let parts = Parts {
        directive: Act::Panic,
        hot: Act::Fail,
        cold: Act::Fail,
        ..Parts::sound()
    };
    let bench = Bench::new(&parts).await;
    let (assembled, _) = bench.run(&Lookup::AtHand(parts.known.clone())).await;
    assert_eq!(
        row(&assembled),
        expected(
            ContextStatus::DirectiveOnly,
            Level::L2,
            "hot=error,cold=error",
            0
        )
    );
    assert_eq!(assembled.injection.assembled, "Be brief.");
}

#[tokio::test(start_paused = true)]
async fn a_broken_embedder_leaves_a_search_by_words() {
    for act in [Act::Fail, Act::Panic] {
        let (assembled, elapsed) = assemble(&Parts {
            embedder: act,
            ..Parts::sound()
        })
        .await;
        assert_eq!(
            row(&assembled),
            expected(ContextStatus::Partial, Level::L1, "embedding=error", 2)
        );
        assert_eq!(elapsed, Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_embedder_takes_half_of_the_wall_and_nothing_from_the_directive() {
    let parts = Parts {
        embedder: Act::Hang,
        ..Parts::sound()
    };
    let (assembled, elapsed) = assemble(&parts).await;
    assert_eq!(
        row(&assembled),
        expected(ContextStatus::Partial, Level::L1, "embedding=timeout", 2)
    );
    assert_eq!(elapsed, ms(20));

    // Its limit counts from the start, and so does the directive's, which does not wait for the embedder.
    let bench = Bench::new(&Parts {
        directive: Act::Hang,
        cold: Act::Hang,
        ..parts.clone()
    })
    .await;
    let (assembled, elapsed) = bench.run(&Lookup::ToLoad).await;
    assert_eq!(
        row(&assembled),
        expected(
            ContextStatus::Partial,
            Level::L1,
            "directive=timeout,embedding=timeout,cold=timeout",
            1
        )
    );
    assert!(
        (assembled.plan.branches["directive"].ms - 5.0).abs() < 1e-6,
        "{:?}",
        assembled.plan.branches
    );
    assert_eq!(elapsed, ms(40));

    // What is left of the wall is the hot branch's, as much as its own limit allows.
    let (assembled, elapsed) = assemble(&Parts {
        hot: Act::Hang,
        ..parts
    })
    .await;
    assert_eq!(
        row(&assembled),
        expected(
            ContextStatus::Partial,
            Level::L1,
            "embedding=timeout,hot=timeout",
            1
        )
    );
    assert_eq!(elapsed, ms(35));
}

#[tokio::test(start_paused = true)]
async fn past_the_end_only_the_directive_goes_out() {
    let late = Act::Block(ms(100));
    let sound = Parts::sound();
    let cases = [
        Parts {
            hot: late,
            ..sound.clone()
        },
        Parts {
            cold: late,
            ..sound.clone()
        },
        Parts {
            directive: late,
            ..sound.clone()
        },
        Parts {
            embedder: late,
            ..sound.clone()
        },
        Parts {
            clock: Mood::Slow,
            ..sound
        },
    ];
    for (i, parts) in cases.into_iter().enumerate() {
        let (assembled, _) = assemble(&parts).await;
        assert_eq!(
            row(&assembled),
            expected(ContextStatus::DirectiveOnly, Level::L3, "deadline", 0),
            "case {i}"
        );
        assert_eq!(assembled.injection.assembled, "Be brief.", "case {i}");
        let (assembled, _) = assemble(&Parts {
            known: None,
            ..parts
        })
        .await;
        assert_eq!(
            row(&assembled),
            expected(ContextStatus::HistoryOnly, Level::L3, "deadline", 0),
            "case {i}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_inside_the_assembly_leaves_the_directive() {
    let (assembled, _) = assemble(&Parts {
        clock: Mood::Panics,
        ..Parts::sound()
    })
    .await;
    assert_eq!(
        row(&assembled),
        expected(ContextStatus::DirectiveOnly, Level::L3, "internal", 0)
    );
    assert_eq!(assembled.injection.assembled, "Be brief.");
    let (assembled, _) = assemble(&Parts {
        clock: Mood::Panics,
        known: None,
        ..Parts::sound()
    })
    .await;
    assert_eq!(
        row(&assembled),
        expected(ContextStatus::HistoryOnly, Level::L3, "internal", 0)
    );
}

#[tokio::test(start_paused = true)]
async fn every_combination_of_faults_ends_within_the_wall_with_what_is_known() {
    let acts = [Act::Answer, Act::Hang, Act::Fail, Act::Panic];
    for embedder in acts {
        for directive in acts {
            for (hot, cold) in acts.iter().flat_map(|a| acts.map(|b| (*a, b))) {
                let parts = Parts {
                    embedder,
                    directive,
                    hot,
                    cold,
                    ..Parts::sound()
                };
                let bench = Bench::new(&parts).await;
                let (assembled, elapsed) = bench.run(&Lookup::ToLoad).await;
                let case = (embedder, directive, hot, cold);
                assert!(elapsed <= ms(40), "{case:?} took {elapsed:?}");
                let knows = directive == Act::Answer;
                assert_eq!(
                    assembled.injection.assembled.contains("Be brief."),
                    knows,
                    "{case:?}"
                );
                let sound = u64::from(hot == Act::Answer) + u64::from(cold == Act::Answer);
                assert_eq!(assembled.injected(), sound, "{case:?}");
                let level = match (sound, knows && embedder == Act::Answer) {
                    (2, true) => Level::L0,
                    (0, _) => Level::L2,
                    _ => Level::L1,
                };
                assert_eq!(assembled.plan.level, level, "{case:?}");
                for scope in bench.hot.scopes().iter().chain(&bench.cold.scopes()) {
                    assert_eq!(scope, bench.who.scope(), "{case:?}");
                }
                assert_eq!(
                    (bench.hot.scopes().len(), bench.cold.scopes().len()),
                    (1, 1),
                    "{case:?}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_branch_finds_outside_the_scope_is_dropped() {
    let foreign = |own: &PartitionKey| {
        let others = [
            PartitionKey {
                org: OrgId::new(),
                ..own.clone()
            },
            PartitionKey {
                agent: AgentId::new(),
                ..own.clone()
            },
            PartitionKey {
                user: Some("bob".parse().unwrap()),
                ..own.clone()
            },
        ];
        others
            .map(|p| hit(memory(p, "The spare key is a stranger's secret.")))
            .to_vec()
    };
    let bench = Bench::with(&Parts::sound(), foreign).await;
    let (assembled, _) = bench.run(&Lookup::ToLoad).await;
    assert_eq!(
        row(&assembled),
        expected(ContextStatus::Full, Level::L0, "", 2)
    );
    assert!(!assembled.injection.assembled.contains("stranger"));
    assert_eq!(
        assembled.plan.memories.len(),
        2,
        "the record does not know of them either"
    );
    assert!(
        assembled
            .plan
            .branches
            .values()
            .all(|b| b.outcome == Outcome::Ok)
    );
}
