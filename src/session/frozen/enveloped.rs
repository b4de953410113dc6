//! Memories inside one envelope: one text with the place of each in it.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};

use crate::ids::MemoryId;
use crate::tokens::Tally;

/// One memory, rendered: the same bytes in every envelope that it stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// Which.
    pub id: MemoryId,
    /// The inside of a JSON string.
    pub json: Bytes,
    /// What it costs.
    pub cost: Tally,
}

/// Where a memory stands in its envelope, and what it costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which.
    pub id: MemoryId,
    /// Its bytes; it begins where the one before it ends.
    pub bytes: u32,
    /// What it costs.
    pub cost: Tally,
}

/// Memories one after the other. Sessions that open with the same ones share them.
#[derive(Debug, PartialEq, Eq)]
pub struct Elements {
    text: Text,
    places: Box<[Place]>,
    cost: Tally,
}

/// The inside of a JSON string with its SHA-256, which is taken once for everybody who shares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    json: Bytes,
    pub(super) sha256: [u8; 32],
}

impl Text {
    /// A text.
    #[must_use]
    pub fn new(json: impl Into<Bytes>) -> Self {
        let json = json.into();
        Self {
            sha256: Sha256::digest(&json).into(),
            json,
        }
    }

    /// The text.
    #[must_use]
    pub fn json(&self) -> &Bytes {
        &self.json
    }
}

impl Elements {
    /// Puts elements together; nothing is no list.
    #[must_use]
    pub fn new(elements: &[Arc<Element>]) -> Option<Self> {
        let cost = elements.iter().map(|e| e.cost).reduce(Tally::plus)?;
        let bytes = elements.iter().map(|e| e.json.len()).sum();
        let mut json = BytesMut::with_capacity(bytes);
        elements
            .iter()
            .for_each(|e| json.extend_from_slice(&e.json));
        let places = elements.iter().map(|e| Place {
            id: e.id,
            bytes: u32::try_from(e.json.len()).unwrap_or(u32::MAX),
            cost: e.cost,
        });
        Some(Self {
            text: Text::new(json),
            places: places.collect(),
            cost,
        })
    }

    /// Elements that were put together before; nothing when these places do not make up the text.
    #[must_use]
    pub fn placed(json: Bytes, places: Vec<Place>) -> Option<Self> {
        let cost = places.iter().map(|p| p.cost).reduce(Tally::plus)?;
        let bytes: u64 = places.iter().map(|p| u64::from(p.bytes)).sum();
        (bytes == json.len() as u64).then(|| Self {
            text: Text::new(json),
            places: places.into(),
            cost,
        })
    }

    /// The text.
    #[must_use]
    pub fn json(&self) -> &Bytes {
        &self.text.json
    }

    /// What it consists of, in order.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Its bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.text.json.len()
    }

    /// Never: nothing is no list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.json.is_empty()
    }

    /// The same without the memories of `gone`; nothing when none is left.
    fn without(&self, gone: &[MemoryId]) -> Option<Self> {
        let left = |place: &&Place| !gone.contains(&place.id);
        let places: Box<[Place]> = self.places.iter().filter(left).copied().collect();
        let cost = places.iter().map(|p| p.cost).reduce(Tally::plus)?;
        let mut json = BytesMut::with_capacity(self.len());
        let mut rest = self.text.json.clone();
        for place in &self.places {
            let element = rest.split_to((place.bytes as usize).min(rest.len()));
            if left(&place) {
                json.extend_from_slice(&element);
            }
        }
        Some(Self {
            text: Text::new(json),
            places,
            cost,
        })
    }
}

/// Memories inside one envelope, as the inside of a JSON string: it is spliced into a request as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enveloped {
    open: Bytes,
    elements: Arc<Elements>,
    close: Bytes,
    tags: Tally,
}

impl Enveloped {
    /// Puts `elements` between an opening and a closing tag, both the insides of JSON strings that cost `tags`.
    #[must_use]
    pub fn new(
        open: impl Into<Bytes>,
        elements: Arc<Elements>,
        close: impl Into<Bytes>,
        tags: Tally,
    ) -> Self {
        Self {
            open: open.into(),
            elements,
            close: close.into(),
            tags,
        }
    }

    /// The text, in pieces.
    #[must_use]
    pub fn pieces(&self) -> [Bytes; 3] {
        let json = self.elements.text.json.clone();
        [self.open.clone(), json, self.close.clone()]
    }

    /// What stands between the tags.
    #[must_use]
    pub fn elements(&self) -> &Arc<Elements> {
        &self.elements
    }

    /// What the tags cost.
    #[must_use]
    pub fn tags(&self) -> Tally {
        self.tags
    }

    /// Feeds what it consists of to a hash.
    pub(super) fn feed(&self, hash: &mut Sha256) {
        hash.update(&self.open);
        hash.update(self.elements.text.sha256);
        hash.update(&self.close);
    }

    /// The memories, in their order.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = MemoryId> {
        self.elements.places.iter().map(|place| place.id)
    }

    /// What it costs.
    #[must_use]
    pub fn cost(&self) -> Tally {
        self.elements.cost.plus(self.tags)
    }

    /// The bytes that it does not share with other sessions, and the memories in it.
    #[must_use]
    pub fn held(&self) -> (usize, usize) {
        let shared = Arc::strong_count(&self.elements) > 1;
        let own = if shared { 0 } else { self.elements.len() };
        let places = if shared {
            0
        } else {
            self.elements.places.len()
        };
        (self.open.len() + own, places)
    }

    /// The same without the memories of `gone`; nothing when none is left.
    #[must_use]
    pub fn without(&self, gone: &[MemoryId]) -> Option<Self> {
        Some(Self {
            elements: Arc::new(self.elements.without(gone)?),
            ..self.clone()
        })
    }
}
