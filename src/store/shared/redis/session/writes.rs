//! What changes a lane: turns and Region A put if absent, and Region A replaced.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::codec::{Codec, Name};
use super::look::{self, Unread, Values};
use super::{Args, LOOKS, RedisSessions, contended, text, unread};
use crate::ids::MemoryId;
use crate::session::{LaneKey, Opening, Outcome, Turn};
use crate::store::shared::matching::{MOST_TURNS, MOST_WITH_ANCHOR};
use crate::store::shared::{BlockFate, CacheError};

/// What a script answers.
enum Answer {
    /// It is done, or was not needed. The Region A that holds, unless it is this call's own; then what is told of the turns.
    Put(Option<Arc<Opening>>, Args),
    /// The lane has another nonce.
    Rotated,
    /// The lane is not what was looked at.
    Again,
}

/// Turns as `put.lua` takes them.
struct Offer {
    args: Args,
    turns: Vec<(Option<Name>, Outcome)>,
}

impl RedisSessions {
    async fn write(
        &self,
        script: &super::Script,
        lane: &LaneKey,
        args: Args,
    ) -> Result<Answer, CacheError> {
        let answer: Args = self.run(script, lane, args).await?;
        // What cannot be read is found by the next read, which drops the lane.
        let damaged = || unread(Unread::Damaged);
        let mut words = answer.into_iter();
        match words.next().as_deref() {
            Some(b"put") => {
                let name = words.next().and_then(|name| look::name(&name));
                let (name, value) = name.zip(words.next()).ok_or_else(damaged)?;
                let opening = match name {
                    None => None,
                    Some(name) => Some(self.opening(lane, name, value).ok_or_else(damaged)?),
                };
                Ok(Answer::Put(opening, words.collect()))
            }
            Some(b"rotated") => Ok(Answer::Rotated),
            Some(b"again") => Ok(Answer::Again),
            Some(b"newer") => Err(unread(Unread::Newer)),
            _ => Err(damaged()),
        }
    }

    /// A Region A that came with its name.
    fn opening(&self, lane: &LaneKey, name: Name, value: Vec<u8>) -> Option<Arc<Opening>> {
        let codec = self.codec(lane);
        let read = || codec.read_opening(&name, value.into()).map(Arc::new);
        let opening = self.seen.opening(&codec, &name).or_else(read)?;
        self.seen.keep_opening(&codec, name, &opening);
        Some(opening)
    }

    /// Puts what is absent. Answers with the Region A that holds, unless it is the one offered, and with what each turn holds.
    pub(super) async fn put(
        &self,
        lane: &LaneKey,
        mode: &str,
        (nonce_epoch, opening): (u32, Option<&Arc<Opening>>),
        turns: Vec<(Turn, Outcome)>,
    ) -> Result<(Option<Arc<Opening>>, Vec<Outcome>), CacheError> {
        let codec = self.codec(lane);
        let offered = opening.map(|opening| (opening, codec.opening(opening)));
        let (name, epoch) = offered.as_ref().map_or_else(
            || (Vec::new(), 0),
            |(opening, (name, _))| (name.to_vec(), opening.epoch),
        );
        let mut args = vec![
            self.token(),
            mode.into(),
            text(nonce_epoch),
            name,
            text(epoch),
            text(MOST_TURNS),
            text(MOST_WITH_ANCHOR),
        ];
        let offer = offer(&codec, turns);
        args.extend(offer.args);
        if let Some((_, (name, value))) = &offered {
            args.extend([name.to_vec(), value.clone()]);
        }
        let (held, told) = match self.write(&self.scripts.put, lane, args).await? {
            Answer::Put(held, told) => (held, told),
            Answer::Rotated | Answer::Again => return Err(CacheError::Rotated),
        };
        if let (None, Some((opening, (name, _)))) = (&held, &offered) {
            self.seen.keep_opening(&codec, *name, opening);
        }
        let winners = self.winners(&codec, told, &offer.turns);
        Ok((held, winners.ok_or_else(|| unread(Unread::Damaged))?))
    }

    /// What each turn holds, by what `put.lua` told. An outcome that was offered itself comes back as it is.
    fn winners(
        &self,
        codec: &Codec,
        told: Args,
        offered: &[(Option<Name>, Outcome)],
    ) -> Option<Vec<Outcome>> {
        let mut told = told.into_iter();
        // None of them where a lane that was open already was not restored.
        let names = told.by_ref().take(offered.len());
        let names: Option<Vec<Option<Name>>> = names.map(|name| look::name(&name)).collect();
        let names = names?;
        let mut values = Values::default();
        while let Some((name, value)) = told.next().zip(told.next()) {
            let name = look::name(&name)??;
            let block = Arc::new(codec.read_block(&name, value.into())?);
            self.seen.keep_block(codec, name, &block);
            values.blocks.insert(name, block);
        }
        for ((name, outcome), holds) in offered.iter().zip(&names) {
            if let (Some(name), Some(block)) = (name, outcome.block()) {
                values.blocks.insert(*name, Arc::clone(block));
                if *holds == Some(*name) {
                    self.seen.keep_block(codec, *name, block);
                }
            }
        }
        names.into_iter().map(|name| values.outcome(name)).collect()
    }

    /// Replaces the Region A of epoch `from`, and answers with the one that holds.
    pub(super) async fn replace(
        &self,
        lane: &LaneKey,
        from: u32,
        opening: Arc<Opening>,
        blocks: &BlockFate,
    ) -> Result<Arc<Opening>, CacheError> {
        let codec = self.codec(lane);
        let (token, (name, value)) = (self.token(), codec.opening(&opening));
        for _ in 0..LOOKS {
            let (fate, swaps) = match blocks {
                BlockFate::Keep => ("keep", Args::new()),
                BlockFate::Drop => ("drop", Args::new()),
                BlockFate::Without(gone) => ("swap", self.swaps(lane, gone).await?),
            };
            let mut args = vec![
                token.clone(),
                text(from),
                name.to_vec(),
                value.clone(),
                text(opening.epoch),
                text(opening.nonce_epoch),
                fate.into(),
            ];
            args.extend(swaps);
            match self.write(&self.scripts.rotate, lane, args).await? {
                Answer::Put(None, _) => {
                    self.seen.keep_opening(&codec, name, &opening);
                    return Ok(opening);
                }
                Answer::Put(Some(held), _) => return Ok(held),
                Answer::Rotated => return Err(CacheError::Rotated),
                Answer::Again => {}
            }
        }
        Err(contended())
    }

    /// The arguments of `rotate.lua` that say which blocks are written anew.
    async fn swaps(&self, lane: &LaneKey, gone: &[MemoryId]) -> Result<Args, CacheError> {
        let (whole, values) = self.whole(lane).await?;
        let codec = self.codec(lane);
        let (mut swaps, mut blocks) = (Args::new(), Args::new());
        for (name, block) in values.blocks {
            let outcome = Outcome::Block(block);
            let slim = outcome.without(gone);
            if slim == outcome {
                continue;
            }
            swaps.push(name.to_vec());
            match slim.block() {
                None => swaps.push(Vec::new()),
                Some(block) => {
                    let (name, value) = codec.block(block);
                    swaps.push(name.to_vec());
                    blocks.extend([name.to_vec(), value]);
                }
            }
        }
        let mut args = vec![whole.maker, whole.settled, text(swaps.len() / 2)];
        args.extend(swaps);
        args.extend(blocks);
        Ok(args)
    }
}

/// Turns as `put.lua` takes them, each block once.
fn offer(codec: &Codec, turns: Vec<(Turn, Outcome)>) -> Offer {
    let mut args = vec![text(turns.len())];
    let (mut blocks, mut seen) = (Args::new(), HashSet::<Name, RandomState>::default());
    let mut offered = Vec::with_capacity(turns.len());
    for (turn, outcome) in turns {
        let message = u32::try_from(turn.message).unwrap_or(u32::MAX);
        args.push(turn.chain.as_bytes().to_vec());
        args.push([&message.to_be_bytes()[..], turn.anchor.as_bytes()].concat());
        let Some(block) = outcome.block() else {
            args.extend([Vec::new(), Vec::new()]);
            offered.push((None, outcome));
            continue;
        };
        let (name, value) = codec.block(block);
        args.extend([name.to_vec(), text(block.as_of())]);
        if seen.insert(name) {
            blocks.extend([name.to_vec(), value]);
        }
        offered.push((Some(name), outcome));
    }
    args.extend(blocks);
    Offer {
        args,
        turns: offered,
    }
}
