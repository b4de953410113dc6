//! Directives as replicas have read them, for when the store is slow or away: a directive is better a little old than not there.
//!
//! Whoever promotes, rolls back or revokes has to call [`SharedDirectives::outdate`] after the commit: a version that was revoked must not
//! come back from here when the store goes away at the next moment.

use std::time::Duration;

use jiff::Timestamp;

use super::newest::Newest;
use super::wire::{Reader, Writer};
use super::{Outage, Redis};
use crate::ids::{AgentId, OrgId};
use crate::session::SessionSecret;
use crate::store::{DirectiveMode, DirectiveVersion};
use crate::telemetry::RedisCall;

/// The version of what is written: part of every tag.
const LAYOUT: u32 = 1;
/// What was put so long ago is not to be used while the store can be asked (contract, section 4).
pub const FRESH: Duration = Duration::from_secs(60);
/// What was put so long ago is not used at all.
pub const KEPT: Duration = Duration::from_secs(600);

/// What a replica has read of an agent's directive.
#[derive(Debug, Clone)]
pub struct SharedDirective {
    /// The active version, if there is one.
    pub active: Option<DirectiveVersion>,
    /// The revoked versions, in ascending order.
    pub revoked: Vec<u32>,
    /// The store's revision before they were read.
    pub revision: i64,
}

/// The same with its age.
#[derive(Debug, Clone)]
pub struct AgedDirective {
    /// What was read.
    pub read: SharedDirective,
    /// The time since it was put, by the clock of Redis.
    pub age: Duration,
}

impl AgedDirective {
    /// Whether it may be used without asking the store.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.age < FRESH
    }
}

/// The directives that replicas share.
#[derive(Debug)]
pub struct SharedDirectives(Newest);

impl SharedDirectives {
    /// Those in `redis`, tagged under `secret`.
    #[must_use]
    pub fn new(redis: Redis, secret: &SessionSecret) -> Self {
        let tagger = secret.tagger("directive").of(&LAYOUT.to_be_bytes());
        Self(Newest::new(redis, tagger, RedisCall::Directive, KEPT))
    }

    /// What was read last, not longer than [`KEPT`] ago.
    ///
    /// # Errors
    /// When Redis has no answer.
    pub async fn get(&self, org: OrgId, agent: AgentId) -> Result<Option<AgedDirective>, Outage> {
        let key = self.0.redis().keys().directive(org, agent);
        let Some(kept) = self.0.get(&key).await? else {
            return Ok(None);
        };
        let read = read(&mut Reader::new(kept.body), org, agent, kept.revision);
        Ok(read.map(|read| AgedDirective {
            read,
            age: kept.age,
        }))
    }

    /// Puts what was read, unless something newer is there.
    ///
    /// # Errors
    /// When Redis has no answer.
    pub async fn put(
        &self,
        org: OrgId,
        agent: AgentId,
        read: &SharedDirective,
    ) -> Result<(), Outage> {
        let key = self.0.redis().keys().directive(org, agent);
        self.0
            .put(&key, read.revision, &written(read))
            .await
            .map(drop)
    }

    /// Takes away what was read before `revision`: the agent's directive was changed by it.
    ///
    /// # Errors
    /// When Redis has no answer.
    pub async fn outdate(&self, org: OrgId, agent: AgentId, revision: i64) -> Result<(), Outage> {
        let key = self.0.redis().keys().directive(org, agent);
        self.0.outdate(&key, revision).await
    }
}

fn written(read: &SharedDirective) -> Vec<u8> {
    let content = read.active.as_ref().map_or(0, |d| d.content.len());
    let mut out = Writer::with_room(content + 128);
    out.number(read.revoked.len() as u64);
    read.revoked.iter().for_each(|v| out.number(*v));
    out.byte(read.active.is_some().into());
    if let Some(active) = &read.active {
        out.number(active.version);
        out.bytes(active.content.as_bytes());
        out.byte(match active.mode {
            DirectiveMode::SystemFirst => 0,
            DirectiveMode::SystemAppend => 1,
            DirectiveMode::UserPrepend => 2,
        });
        out.raw(&active.content_hash);
        out.byte(active.active.into());
        out.signed(active.created_at.as_microsecond());
        out.byte(active.revoked_at.is_some().into());
        if let Some(at) = active.revoked_at {
            out.signed(at.as_microsecond());
        }
    }
    out.finish()
}

fn read(from: &mut Reader, org: OrgId, agent: AgentId, revision: i64) -> Option<SharedDirective> {
    let count = from.number()?;
    let revoked: Option<Vec<u32>> = (0..count).map(|_| from.small()).collect();
    let active = match from.byte()? {
        0 => None,
        _ => Some(version(from, org, agent)?),
    };
    from.whole(SharedDirective {
        active,
        revoked: revoked?,
        revision,
    })
}

fn version(from: &mut Reader, org: OrgId, agent: AgentId) -> Option<DirectiveVersion> {
    let time = |from: &mut Reader| Timestamp::from_microsecond(from.signed()?).ok();
    Some(DirectiveVersion {
        org,
        agent,
        version: from.small()?,
        content: from.text()?.into(),
        mode: match from.byte()? {
            0 => DirectiveMode::SystemFirst,
            1 => DirectiveMode::SystemAppend,
            2 => DirectiveMode::UserPrepend,
            _ => return None,
        },
        content_hash: from.array()?,
        active: from.byte()? == 1,
        created_at: time(from)?,
        revoked_at: match from.byte()? {
            0 => None,
            _ => Some(time(from)?),
        },
    })
}
