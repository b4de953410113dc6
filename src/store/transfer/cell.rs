//! One value of a row: in memory, as JSON in an export, and as canonical bytes for the digest.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::Value;

use super::tables::Kind;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Nothing.
    Null,
    /// A whole number, a time, or a truth value as 0 or 1.
    Int(i64),
    /// A number with a fraction.
    Real(f64),
    /// Text.
    Text(String),
    /// Bytes, an identifier, or a vector.
    Bytes(Vec<u8>),
}

/// A row: one cell a column.
pub type Row = Vec<Cell>;

impl Cell {
    /// Whether a column of this kind may hold it; every one may hold nothing.
    #[must_use]
    pub fn is(&self, kind: Kind) -> bool {
        match (self, kind) {
            (Self::Null, _)
            | (Self::Int(_), Kind::Int)
            | (Self::Int(0 | 1), Kind::Bool)
            | (Self::Real(_), Kind::Real)
            | (Self::Text(_), Kind::Text) => true,
            (Self::Bytes(bytes), Kind::Id) => bytes.len() == 16,
            (Self::Bytes(bytes), Kind::Vector) => bytes.len() % 4 == 0,
            (Self::Bytes(_), Kind::Bytes) => true,
            (Self::Int(_) | Self::Real(_) | Self::Text(_) | Self::Bytes(_), _) => false,
        }
    }

    /// Appends bytes that no other value has.
    pub fn canonical(&self, into: &mut Vec<u8>) {
        match self {
            Self::Null => into.push(0),
            Self::Int(number) => {
                into.push(1);
                into.extend(number.to_be_bytes());
            }
            Self::Real(number) => {
                into.push(2);
                into.extend(number.to_bits().to_be_bytes());
            }
            Self::Text(text) => long(3, text.as_bytes(), into),
            Self::Bytes(bytes) => long(4, bytes, into),
        }
    }
}

fn long(tag: u8, bytes: &[u8], into: &mut Vec<u8>) {
    into.push(tag);
    into.extend((bytes.len() as u64).to_be_bytes());
    into.extend(bytes);
}

/// The value in an export: bytes as base64, and a fraction as text, because readers of JSON may round numbers.
#[must_use]
pub fn cell_to_json(cell: &Cell) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Int(number) => Value::from(*number),
        Cell::Real(number) => Value::from(number.to_string()),
        Cell::Text(text) => Value::from(text.as_str()),
        Cell::Bytes(bytes) => Value::from(STANDARD_NO_PAD.encode(bytes)),
    }
}

/// The value that an export holds for a column of this kind; nothing when it is not one.
#[must_use]
pub fn cell_from_json(value: &Value, kind: Kind) -> Option<Cell> {
    let cell = match (value, kind) {
        (Value::Null, _) => Cell::Null,
        (Value::Number(number), Kind::Int | Kind::Bool) => Cell::Int(number.as_i64()?),
        (Value::String(text), Kind::Real) => Cell::Real(text.parse().ok()?),
        (Value::String(text), Kind::Text) => Cell::Text(text.clone()),
        (Value::String(text), Kind::Id | Kind::Bytes | Kind::Vector) => {
            Cell::Bytes(STANDARD_NO_PAD.decode(text).ok()?)
        }
        _ => return None,
    };
    cell.is(kind).then_some(cell)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Cell, Kind, cell_from_json, cell_to_json};

    fn cell() -> impl Strategy<Value = (Cell, Kind)> {
        prop_oneof![
            Just((Cell::Null, Kind::Text)),
            any::<i64>().prop_map(|n| (Cell::Int(n), Kind::Int)),
            any::<bool>().prop_map(|b| (Cell::Int(b.into()), Kind::Bool)),
            any::<f32>()
                .prop_filter("JSON has no others", |n| n.is_finite())
                .prop_map(|n| (Cell::Real(n.into()), Kind::Real)),
            ".*".prop_map(|t| (Cell::Text(t), Kind::Text)),
            any::<[u8; 16]>().prop_map(|b| (Cell::Bytes(b.to_vec()), Kind::Id)),
            prop::collection::vec(any::<u8>(), 0..9).prop_map(|b| (Cell::Bytes(b), Kind::Bytes)),
        ]
    }

    fn bytes(cell: &Cell) -> Vec<u8> {
        let mut bytes = Vec::new();
        cell.canonical(&mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn a_value_comes_back_from_its_json((cell, kind) in cell()) {
            let text = cell_to_json(&cell).to_string();
            let read = cell_from_json(&serde_json::from_str(&text).unwrap(), kind).unwrap();
            prop_assert_eq!(bytes(&read), bytes(&cell));
        }
    }

    #[test]
    fn a_value_of_another_kind_is_none() {
        for (json, kind) in [
            ("1", Kind::Text),
            ("\"a\"", Kind::Int),
            ("2", Kind::Bool),
            ("1.5", Kind::Int),
            ("\"AAA\"", Kind::Id),
            ("\"AAA\"", Kind::Vector),
            ("\"?\"", Kind::Bytes),
            ("[]", Kind::Text),
        ] {
            let value = serde_json::from_str(json).unwrap();
            assert_eq!(cell_from_json(&value, kind), None, "{json}");
        }
    }

    #[test]
    fn texts_and_bytes_are_kept_apart() {
        let text = bytes(&Cell::Text("a".to_owned()));
        assert_ne!(text, bytes(&Cell::Bytes(b"a".to_vec())));
        assert_ne!(bytes(&Cell::Int(0)), bytes(&Cell::Real(0.0)));
        assert_ne!(bytes(&Cell::Null), bytes(&Cell::Int(0)));
    }
}
