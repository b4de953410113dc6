//! Vectors as signed bytes with one scale a row: a quarter of the memory traffic, and integer products that compile to wide
//! instructions. The order of near neighbours is then refined with the query in full precision.

use pulp::{Arch, Simd, WithSimd};

/// A query vector, in both forms the scan needs.
#[derive(Debug)]
pub(super) struct QueryVector {
    exact: Box<[f32]>,
    coarse: Box<[i16]>,
    scale: f32,
}

impl QueryVector {
    /// Prepares a vector; the zero vector compares with nothing.
    pub(super) fn new(vector: &[f32]) -> Option<Self> {
        let mut bytes = Vec::with_capacity(vector.len());
        let scale = quantise(vector, &mut bytes);
        (scale > 0.0).then(|| Self {
            exact: vector.into(),
            coarse: bytes.iter().map(|&b| i16::from(b)).collect(),
            scale,
        })
    }

    pub(super) fn dimensions(&self) -> usize {
        self.exact.len()
    }

    /// Appends query x row for each row of `rows`, still to be multiplied by the row's scale.
    pub(super) fn scan(&self, rows: &[i8], into: &mut Vec<f32>) {
        let dimensions = self.coarse.len();
        let start = into.len();
        into.resize(start + rows.len() / dimensions, 0.0);
        let found = into.get_mut(start..).unwrap_or_default();
        Arch::new().dispatch(Scan {
            query: self,
            rows,
            found,
        });
    }

    /// Query x row with the query in full precision, still to be multiplied by the row's scale.
    pub(super) fn refine(&self, row: &[i8]) -> f32 {
        Arch::new().dispatch(Refine { query: self, row })
    }
}

/// The work behind [`QueryVector::scan`] as a type: the compiler is free to leave a closure outside the wide-instruction function.
struct Scan<'a> {
    query: &'a QueryVector,
    rows: &'a [i8],
    found: &'a mut [f32],
}

impl WithSimd for Scan<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let query = &self.query.coarse;
        for (found, row) in self
            .found
            .iter_mut()
            .zip(self.rows.chunks_exact(query.len()))
        {
            *found = coarse_dot(query, row) * self.query.scale;
        }
    }
}

/// The work behind [`QueryVector::refine`].
struct Refine<'a> {
    query: &'a QueryVector,
    row: &'a [i8],
}

impl WithSimd for Refine<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> f32 {
        exact_dot(&self.query.exact, self.row)
    }
}

#[inline(always)]
fn coarse_dot(query: &[i16], row: &[i8]) -> f32 {
    let sum: i32 = query
        .iter()
        .zip(row)
        .map(|(&q, &r)| i32::from(q) * i32::from(r))
        .sum();
    #[expect(
        clippy::cast_precision_loss,
        reason = "sums of products of bytes stay below 2^24 for a thousand dimensions"
    )]
    let sum = sum as f32;
    sum
}

/// Partial sums, because the compiler may not reorder one sum of floats.
#[inline(always)]
fn exact_dot(query: &[f32], row: &[i8]) -> f32 {
    let (query_lanes, query_rest) = query.as_chunks::<16>();
    let (row_lanes, row_rest) = row.as_chunks::<16>();
    let mut sums = [0f32; 16];
    for (query, row) in query_lanes.iter().zip(row_lanes) {
        for ((sum, &q), &r) in sums.iter_mut().zip(query).zip(row) {
            *sum += q * f32::from(r);
        }
    }
    let rest: f32 = query_rest
        .iter()
        .zip(row_rest)
        .map(|(&q, &r)| q * f32::from(r))
        .sum();
    sums.iter().sum::<f32>() + rest
}

/// Appends the bytes of `vector` to `into` and returns the scale that undoes them; 0 for the zero vector and for one that is not finite.
pub(super) fn quantise(vector: &[f32], into: &mut Vec<i8>) -> f32 {
    let greatest = vector
        .iter()
        .fold(0f32, |greatest, x| greatest.max(x.abs()));
    let usable = greatest > 0.0 && vector.iter().all(|x| x.is_finite());
    let scale = if usable { greatest / 127.0 } else { 0.0 };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the quotient lies within -127 to 127"
    )]
    into.extend(
        vector
            .iter()
            .map(|x| if usable { (x / scale).round() as i8 } else { 0 }),
    );
    scale
}

/// The cosine of two stored rows.
pub(super) fn cosine(a: &[i8], a_scale: f32, b: &[i8], b_scale: f32) -> f32 {
    let sum: i32 = a
        .iter()
        .zip(b)
        .map(|(&a, &b)| i32::from(a) * i32::from(b))
        .sum();
    #[expect(
        clippy::cast_precision_loss,
        reason = "sums of products of bytes stay below 2^24 for a thousand dimensions"
    )]
    let sum = sum as f32;
    sum * a_scale * b_scale
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, prop};

    use super::{QueryVector, quantise};

    fn unit(dimensions: usize) -> impl Strategy<Value = Vec<f32>> {
        prop::collection::vec(-1f32..1.0, dimensions).prop_map(|v| {
            let norm = v.iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-6);
            v.iter().map(|x| x / norm).collect()
        })
    }

    proptest::proptest! {
        #[test]
        fn the_scan_is_close_to_the_exact_products(query in unit(67), rows in prop::collection::vec(unit(67), 1..20)) {
            let Some(query_vector) = QueryVector::new(&query) else { return Ok(()) };
            let (mut bytes, mut found) = (Vec::new(), Vec::new());
            let scales: Vec<f32> = rows.iter().map(|row| quantise(row, &mut bytes)).collect();
            query_vector.scan(&bytes, &mut found);
            proptest::prop_assert_eq!(found.len(), rows.len());
            for (at, row) in rows.iter().enumerate() {
                let exact: f32 = query.iter().zip(row).map(|(q, r)| q * r).sum();
                proptest::prop_assert!((found[at] * scales[at] - exact).abs() < 0.03);
                proptest::prop_assert!((query_vector.refine(&bytes[at * 67..(at + 1) * 67]) * scales[at] - exact).abs() < 0.02);
            }
        }
    }

    #[test]
    fn nothing_is_compared_with_zero_or_nan() {
        assert!(QueryVector::new(&[0.0; 4]).is_none());
        assert!(QueryVector::new(&[f32::NAN, 1.0]).is_none());
    }
}
