//! A database of a thousand agents of several organisations, of very different sizes, filled as fast as the engine takes rows.
//!
//! The rows are copied into a table of this connection first and go from there into those of the store, without its triggers; so the URL's
//! user has to be a superuser. Agents write in turns, as they do in life: the rows of one lie scattered over the whole table. The vector
//! index is dropped before and made by the store afterwards.

use ibex::config::PostgresConfig;
use ibex::ids::{AgentId, MemoryId, OrgId};
use ibex::memory::embedder::{Embedder, StaticMiniLm};
use ibex::memory::search::lexemes;
use ibex::memory::{Category, Label, PartitionKey};
use ibex::seams::{Clock, SystemClock};
use ibex::store::postgres::{ensure_vector_index, migrate};
use sha2::{Digest, Sha256};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Executor, Row};
use tokio::time::Instant;
use uuid::{Builder, Uuid};

use crate::facts::{Dice, Fact, fact};

/// Memories that the numbers of [`CLASSES`] are of.
const WHOLE: usize = 1_000_000;
const ORGS: usize = 5;
/// Topics of an agent; the large ones have to do with more of them.
const BREADTH: usize = 5;
/// See [`BREADTH`].
const GREAT_BREADTH: usize = 16;
/// Bytes of one message to the engine.
const MESSAGE: usize = 1 << 20;
/// Milliseconds since 1970 at which the identifiers begin.
const BEGINNING: u64 = 1_767_225_600_000;

/// Agents of about one size.
pub(crate) struct Class {
    pub(crate) name: &'static str,
    pub(crate) agents: usize,
    /// Memories of one; a tenth to nineteen tenths of it for the many.
    pub(crate) each: usize,
    /// Agents that are asked.
    pub(crate) asked: usize,
}

/// What is left of the thousand agents and the memories are the many small ones.
pub(crate) const CLASSES: [Class; 5] = [
    Class {
        name: "30",
        agents: 1,
        each: 30,
        asked: 1,
    },
    Class {
        name: "a few hundred",
        agents: 964,
        each: 490,
        asked: 50,
    },
    Class {
        name: "10,000",
        agents: 30,
        each: 10_000,
        asked: 10,
    },
    Class {
        name: "30,000",
        agents: 4,
        each: 30_000,
        asked: 4,
    },
    Class {
        name: "100,000",
        agents: 1,
        each: 100_000,
        asked: 1,
    },
];

/// Which memory is whose.
pub(crate) struct Tenants {
    /// Number of the class and number of the agent in it.
    agents: Vec<(usize, usize)>,
    /// The agent of each memory, by its number.
    owners: Vec<usize>,
}

impl Tenants {
    pub(crate) fn of(rows: usize) -> Self {
        let (mut agents, mut owners) = (Vec::new(), Vec::with_capacity(rows));
        for (number, class) in CLASSES.iter().enumerate() {
            for nth in 0..class.agents {
                let each = match class.each {
                    few @ ..100 => few,
                    each => (each * rows / WHOLE).max(1),
                };
                let spread = if class.agents > 100 {
                    (nth * 37 % 19 + 1) * each / 10
                } else {
                    each
                };
                owners.extend(std::iter::repeat_n(agents.len(), spread));
                agents.push((number, nth));
            }
        }
        let is_one_of_many =
            |agent: &usize| agents.get(*agent).is_some_and(|(class, _)| *class == 1);
        let many: Vec<usize> = (0..agents.len()).filter(is_one_of_many).collect();
        let rest = rows.checked_sub(owners.len()).unwrap();
        owners.extend(many.into_iter().cycle().take(rest));
        let mut dice = Dice::new(1);
        for last in (1..owners.len()).rev() {
            owners.swap(last, dice.below(last + 1));
        }
        Self { agents, owners }
    }

    pub(crate) fn key(&self, agent: usize) -> PartitionKey {
        PartitionKey {
            org: OrgId::from_bytes(id(2, agent % ORGS).into_bytes()),
            agent: AgentId::from_bytes(id(3, agent).into_bytes()),
            user: None,
        }
    }

    /// The agents of a class that are asked, each with the numbers of its memories.
    pub(crate) fn asked(&self, class: usize) -> Vec<(usize, Vec<usize>)> {
        let most = CLASSES.get(class).map_or(0, |class| class.asked);
        let every = (0..self.agents.len())
            .filter(|agent| self.agents.get(*agent).is_some_and(|(of, _)| *of == class));
        let agents: Vec<usize> = every.take(most).collect();
        let memories = |agent: usize| {
            let rows = self.owners.iter().enumerate();
            rows.filter(|(_, owner)| **owner == agent)
                .map(|(row, _)| row)
                .collect()
        };
        agents
            .into_iter()
            .map(|agent| (agent, memories(agent)))
            .collect()
    }

    pub(crate) fn fact(&self, row: usize) -> Fact {
        let owner = self.owners.get(row).copied().unwrap_or_default();
        let (class, _) = self.agents.get(owner).copied().unwrap_or_default();
        let large = CLASSES.get(class).is_some_and(|class| class.agents < 100);
        fact(row, owner, if large { GREAT_BREADTH } else { BREADTH })
    }

    /// Fills the database of `url` unless an earlier run did.
    pub(crate) async fn fill(&self, config: &PostgresConfig, embedder: &StaticMiniLm) {
        migrate(config).await.unwrap();
        let url = config.url.as_deref().unwrap();
        let mut conn = PgConnection::connect(url).await.unwrap();
        run(&mut conn, "SET statement_timeout = 0; SET search_path = ibex, public; SET work_mem = '1GB'; SET jit = off").await;
        let held = sqlx::query("SELECT count(*) FROM memories").fetch_one(&mut conn);
        let held: i64 = held.await.unwrap().get(0);
        let rows = i64::try_from(self.owners.len()).unwrap();
        assert!(
            held == 0 || held == rows,
            "the database holds {held} memories, neither none nor {rows}: use one of its own"
        );
        let began = Instant::now();
        if held == 0 {
            self.load(&mut conn, embedder).await;
            println!("{rows} memories in {:.0} s", began.elapsed().as_secs_f64());
            run(&mut conn, "VACUUM (ANALYZE)").await;
        }
        let ample = format!(
            "{url}{}options[maintenance_work_mem]=4GB&options[max_parallel_maintenance_workers]=2",
            if url.contains('?') { '&' } else { '?' }
        );
        let config = PostgresConfig {
            url: Some(ample),
            ..config.clone()
        };
        let began = Instant::now();
        let dimensions = embedder.embed_one("a").len();
        if ensure_vector_index(&config, dimensions).await.unwrap() {
            println!("the vector index in {:.0} s", began.elapsed().as_secs_f64());
        }
        let sizes = "SELECT coalesce(string_agg(format('%s %s MiB', relname, pg_relation_size(oid) >> 20), ', ' ORDER BY pg_relation_size(oid) DESC), 'all small')
                     FROM pg_class WHERE relnamespace = 'ibex'::regnamespace AND pg_relation_size(oid) > 50 << 20";
        let sizes: String = sqlx::query(sizes)
            .fetch_one(&mut conn)
            .await
            .unwrap()
            .get(0);
        println!("{sizes}");
        conn.close().await.unwrap();
    }

    async fn load(&self, conn: &mut PgConnection, embedder: &StaticMiniLm) {
        run(conn, "DROP INDEX IF EXISTS memory_vectors_hnsw_256; BEGIN; SET LOCAL session_replication_role = replica").await;
        self.create_agents(conn).await;
        let made = "CREATE TEMP TABLE made (id uuid, org uuid, agent uuid, content text, words bigint[], embedding vector) ON COMMIT DROP";
        run(conn, made).await;
        let mut copy = conn
            .copy_in_raw("COPY made FROM STDIN WITH (FORMAT binary)")
            .await
            .unwrap();
        let mut message = Message::begun();
        for row in 0..self.owners.len() {
            self.add(&mut message, row, embedder);
            if message.0.len() > MESSAGE {
                copy.send(std::mem::take(&mut message.0)).await.unwrap();
            }
        }
        message.0.extend((-1i16).to_be_bytes());
        copy.send(message.0).await.unwrap();
        copy.finish().await.unwrap();
        let label = Label {
            label: Category::Factual,
            confidence: 1.0,
        };
        let (labels, model) = (serde_json::to_string(&[label]).unwrap(), embedder.model());
        let now = SystemClock.now().as_microsecond();
        for sql in [
            format!(
                "INSERT INTO memories (id, org, agent, user_id, content, labels, confidence, valid_from, source_kind, members, words, pinned,
                     status, revision, text_revision, supersedes, content_hash, retrieval_count, votes_useful, votes_not_useful, created_at,
                     updated_at, embedding_model, tokens_o200k, tokens_cl100k, tokens_claude, tokens_unknown)
                 SELECT id, org, agent, '', content, '{labels}', 0.8, {now}, '', '{{}}', words, FALSE, 'active', 0, 0, '{{}}',
                     sha256(uuid_send(id)), 0, 0, 0, {now}, {now}, '{model}', 20, 20, 20, 20 FROM made"
            ),
            format!(
                "INSERT INTO memory_vectors (memory, org, agent, user_id, model, embedding, live)
                 SELECT id, org, agent, '', '{model}', embedding, TRUE FROM made"
            ),
            "INSERT INTO memory_words (org, word, memory) SELECT org, unnest(words), id FROM made ORDER BY 1, 2, 3".to_owned(),
            "COMMIT".to_owned(),
        ] {
            run(conn, &sql).await;
        }
    }

    async fn create_agents(&self, conn: &mut PgConnection) {
        for org in 0..ORGS {
            let sql =
                "INSERT INTO orgs (id, name, status, created_at) VALUES ($1, $2, 'active', 0)";
            let insert = sqlx::query(sql)
                .bind(id(2, org))
                .bind(format!("organisation {org}"));
            insert.execute(&mut *conn).await.unwrap();
        }
        for agent in 0..self.agents.len() {
            let sql = "INSERT INTO agents (id, org, name, status, capture, created_at) VALUES ($1, $2, $3, 'active', 'off', 0)";
            let insert = sqlx::query(sql)
                .bind(id(3, agent))
                .bind(id(2, agent % ORGS));
            insert
                .bind(format!("agent {agent}"))
                .execute(&mut *conn)
                .await
                .unwrap();
        }
    }

    fn add(&self, message: &mut Message, row: usize, embedder: &StaticMiniLm) {
        let owner = self.owners.get(row).copied().unwrap_or_default();
        let (key, Fact { text, .. }) = (self.key(owner), self.fact(row));
        let words = numbers(&key, &text);
        message.0.extend(6i16.to_be_bytes());
        message.field(MemoryId::from_bytes(id(1, row).into_bytes()).as_bytes());
        message.field(key.org.as_bytes());
        message.field(key.agent.as_bytes());
        message.field(text.as_bytes());
        message.field(&array(&words));
        message.field(&vector(&embedder.embed_one(&text)));
    }
}

/// The engine's binary form of rows.
struct Message(Vec<u8>);

impl Message {
    fn begun() -> Self {
        let mut head = b"PGCOPY\n\xff\r\n\0".to_vec();
        head.extend([0; 8]);
        Self(head)
    }

    fn field(&mut self, bytes: &[u8]) {
        self.0
            .extend(i32::try_from(bytes.len()).unwrap().to_be_bytes());
        self.0.extend(bytes);
    }
}

/// One dimension without NULLs, of the type `bigint`, counted from 1.
fn array(numbers: &[i64]) -> Vec<u8> {
    const BIGINT: i32 = 20;
    let many = i32::try_from(numbers.len()).unwrap();
    let head = [1, 0, BIGINT, many, 1].map(i32::to_be_bytes).concat();
    let elements = numbers
        .iter()
        .map(|number| [&8i32.to_be_bytes()[..], &number.to_be_bytes()[..]].concat());
    elements.fold(head, |bytes, element| [bytes, element].concat())
}

fn vector(numbers: &[f32]) -> Vec<u8> {
    let head = [u16::try_from(numbers.len()).unwrap().to_be_bytes(), [0; 2]].concat();
    head.into_iter()
        .chain(numbers.iter().flat_map(|number| number.to_be_bytes()))
        .collect()
}

/// The words of a text as the store keeps them: see `src/store/postgres/memories/words.rs`. Were it done otherwise there, nothing would be
/// found by words here, and the recall would say so.
fn numbers(key: &PartitionKey, text: &str) -> Vec<i64> {
    let of_partition = Sha256::new()
        .chain_update(key.agent.as_bytes())
        .chain_update(0usize.to_be_bytes());
    let number = |term: String| {
        let hash: [u8; 32] = of_partition.clone().chain_update(term).finalize().into();
        hash.first_chunk()
            .map_or(0, |first| i64::from_be_bytes(*first))
    };
    lexemes(text).into_iter().map(number).collect()
}

/// The identifier of the `n`th thing of a kind: ordered by time, and the same in every run.
fn id(kind: u64, n: usize) -> Uuid {
    let mut dice = Dice::new(kind << 40 | n as u64);
    let random = [dice.next().to_be_bytes(), dice.next().to_be_bytes()].concat();
    let random = random.first_chunk().copied().unwrap_or_default();
    Builder::from_unix_timestamp_millis(BEGINNING + n as u64, &random).into_uuid()
}

async fn run(conn: &mut PgConnection, sql: &str) {
    conn.execute(sqlx::raw_sql(AssertSqlSafe(sql)))
        .await
        .unwrap();
}
