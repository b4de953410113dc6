//! `/embeddings` as it is written and read: what is asked, and the checks that an answer has to pass.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::super::{EmbedError, normalise};

/// A request.
#[derive(Debug, Serialize)]
pub(super) struct Asked<'a> {
    pub(super) model: &'a str,
    pub(super) input: &'a [&'a str],
    /// Always `float`; servers that answer in base64 all the same are understood.
    pub(super) encoding_format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dimensions: Option<u32>,
}

/// An answer. Everything else that servers send is passed over.
#[derive(Debug, Deserialize)]
struct Answered {
    data: Vec<Item>,
}

#[derive(Debug, Deserialize)]
struct Item {
    /// Its place among the texts; servers that leave it out keep the order.
    index: Option<usize>,
    embedding: Numbers,
}

/// A vector as a list of numbers or as base64 of little-endian `f32`.
#[derive(Debug)]
struct Numbers(Vec<f32>);

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Numbers;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("numbers or base64")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Numbers, A::Error> {
                let mut numbers = Vec::with_capacity(list.size_hint().unwrap_or(1_536));
                while let Some(number) = list.next_element()? {
                    numbers.push(number);
                }
                Ok(Numbers(numbers))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Numbers, E> {
                let bytes = STANDARD.decode(text).map_err(|_| E::custom("no base64"))?;
                let (numbers, rest) = bytes.as_chunks::<4>();
                if !rest.is_empty() {
                    return Err(E::custom("not whole numbers"));
                }
                Ok(Numbers(
                    numbers.iter().map(|x| f32::from_le_bytes(*x)).collect(),
                ))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// The vectors of `texts` texts, in their order and of unit length. `dimensions` is what each must have; unknown, they must agree.
pub(super) fn vectors(
    body: &[u8],
    texts: usize,
    dimensions: Option<usize>,
) -> Result<Vec<Vec<f32>>, EmbedError> {
    let answered: Answered = serde_json::from_slice(body)
        .map_err(|_| EmbedError("the embedder's answer is no list of embeddings"))?;
    let count = EmbedError("the embedder answered with another number of vectors");
    if answered.data.len() != texts {
        return Err(count);
    }
    let mut placed: Vec<Option<Vec<f32>>> = vec![None; texts];
    for (at, item) in answered.data.into_iter().enumerate() {
        let place = placed.get_mut(item.index.unwrap_or(at)).ok_or(count)?;
        if place.replace(normalise(item.embedding.0)?).is_some() {
            return Err(count);
        }
    }
    let vectors: Vec<Vec<f32>> = placed.into_iter().flatten().collect();
    let wanted = dimensions.or_else(|| vectors.first().map(Vec::len));
    if vectors.iter().any(|vector| Some(vector.len()) != wanted) {
        return Err(EmbedError(
            "the embedder answered with vectors of another dimension",
        ));
    }
    Ok(vectors)
}

#[cfg(test)]
mod tests {
    use super::super::super::EmbedError;
    use super::vectors;

    fn refused(body: &str, texts: usize, dimensions: Option<usize>) -> String {
        let EmbedError(reason) = vectors(body.as_bytes(), texts, dimensions).unwrap_err();
        reason.to_owned()
    }

    #[test]
    fn vectors_are_put_in_order_and_brought_to_unit_length() {
        let body = r#"{"object":"list","data":[{"index":1,"embedding":[0,2]},{"index":0,"embedding":[3.0,4.0]}],"usage":{}}"#;
        assert_eq!(
            vectors(body.as_bytes(), 2, None).unwrap(),
            [vec![0.6, 0.8], vec![0.0, 1.0]]
        );
    }

    #[test]
    fn base64_is_understood() {
        // 1.0 and 0.0
        let body = r#"{"data":[{"index":0,"embedding":"AACAPwAAAAA="}]}"#;
        assert_eq!(
            vectors(body.as_bytes(), 1, Some(2)).unwrap(),
            [vec![1.0, 0.0]]
        );
        for broken in ["AACAPwAA", "not base64!"] {
            let body = format!(r#"{{"data":[{{"index":0,"embedding":"{broken}"}}]}}"#);
            assert!(refused(&body, 1, None).contains("no list of embeddings"));
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table of cases is one piece")]
    fn what_is_not_a_whole_answer_is_refused() {
        let cases = [
            ("<html>busy</html>", 1, None, "no list of embeddings"),
            (r#"{"data":[]}"#, 1, None, "another number"),
            (
                r#"{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}"#,
                2,
                None,
                "another number",
            ),
            (
                r#"{"data":[{"index":7,"embedding":[1]}]}"#,
                1,
                None,
                "another number",
            ),
            (
                r#"{"data":[{"index":0,"embedding":[1,0]}]}"#,
                1,
                Some(3),
                "another dimension",
            ),
            (
                r#"{"data":[{"index":0,"embedding":[1,0]},{"index":1,"embedding":[1]}]}"#,
                2,
                None,
                "another dimension",
            ),
            (
                r#"{"data":[{"index":0,"embedding":[0,0]}]}"#,
                1,
                None,
                "no direction",
            ),
            (
                r#"{"data":[{"index":0,"embedding":[]}]}"#,
                1,
                None,
                "no direction",
            ),
            (
                r#"{"data":[{"index":0,"embedding":[1e39,1]}]}"#,
                1,
                None,
                "no direction",
            ),
            (
                r#"{"data":[{"index":0,"embedding":[NaN,1]}]}"#,
                1,
                None,
                "no list of embeddings",
            ),
            (
                // A NaN in base64.
                r#"{"data":[{"index":0,"embedding":"AADAfwAAAAA="}]}"#,
                1,
                None,
                "no direction",
            ),
        ];
        for (body, texts, dimensions, expected) in cases {
            let reason = refused(body, texts, dimensions);
            assert!(reason.contains(expected), "{body}: {reason}");
        }
    }
}
