//! Vectors as signed bytes with one scale a row: a quarter of the memory traffic, and integer products that wide instructions add up
//! in pairs. The query keeps sixteen bits, so that its own rounding never shows in the order of neighbours.

use pulp::{Arch, Simd, WithSimd};

/// The greatest byte of a row.
const ROW_LEVELS: f32 = 127.0;

/// A query vector, ready to be compared with rows.
#[derive(Debug)]
pub(super) struct QueryVector {
    levels: Box<[i16]>,
    scale: f32,
}

impl QueryVector {
    /// Prepares a vector; the zero vector compares with nothing.
    pub(super) fn new(vector: &[f32]) -> Option<Self> {
        let scale = scale(vector, levels(vector.len()));
        (scale > 0.0).then(|| Self {
            levels: Arch::new().dispatch(Round { vector, scale }),
            scale,
        })
    }

    pub(super) fn dimensions(&self) -> usize {
        self.levels.len()
    }

    /// Puts query x row for each row of `rows` into `found`, still to be multiplied by the row's scale.
    pub(super) fn scan(&self, rows: &[i8], found: &mut [f32]) {
        let scan = Scan {
            query: self,
            rows,
            found,
        };
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = pulp::x86::V4::try_new() {
            return simd.vectorize(wide::Scan { simd, scan });
        } else if let Some(simd) = pulp::x86::V3::try_new() {
            return simd.vectorize(wide::Scan { simd, scan });
        }
        Arch::new().dispatch(scan);
    }

    /// Query x row, still to be multiplied by the row's scale.
    pub(super) fn dot(&self, row: &[i8]) -> f32 {
        let dot = Dot { query: self, row };
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = pulp::x86::V3::try_new() {
            return simd.vectorize(wide::Dot { simd, dot });
        }
        Arch::new().dispatch(dot)
    }
}

/// The greatest level of a query of so many dimensions: as fine as sixteen bits allow while no sum of products leaves 32 bits.
fn levels(dimensions: usize) -> f32 {
    let product_of_ones = i32::MAX / i32::from(i8::MAX);
    let fitting = i32::try_from(dimensions.max(1)).map_or(0, |n| product_of_ones / n);
    f32::from(i16::try_from(fitting).unwrap_or(i16::MAX))
}

// The work is written as types and loops: the compiler is free to leave a closure outside the wide-instruction function.

/// The work behind [`QueryVector::scan`].
struct Scan<'a> {
    query: &'a QueryVector,
    rows: &'a [i8],
    found: &'a mut [f32],
}

impl Scan<'_> {
    #[inline(always)]
    fn run(self, product: impl Fn(&[i16], &[i8]) -> i32) {
        let QueryVector { levels, scale } = self.query;
        let rows = self.rows.chunks_exact(levels.len());
        for (found, row) in self.found.iter_mut().zip(rows) {
            *found = as_float(product(levels, row)) * scale;
        }
    }
}

impl WithSimd for Scan<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        self.run(product);
    }
}

/// The work behind [`QueryVector::dot`].
struct Dot<'a> {
    query: &'a QueryVector,
    row: &'a [i8],
}

impl WithSimd for Dot<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> f32 {
        as_float(product(&self.query.levels, self.row)) * self.query.scale
    }
}

#[inline(always)]
fn product(query: &[i16], row: &[i8]) -> i32 {
    query
        .iter()
        .zip(row)
        .map(|(&q, &r)| i32::from(q) * i32::from(r))
        .sum()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a cosine needs no more than seven digits"
)]
fn as_float(sum: i32) -> f32 {
    sum as f32
}

/// The same products by the instruction that multiplies pairs and adds neighbours up. Left to itself the compiler widens every product to
/// 32 bits first, which takes twice as long.
#[cfg(target_arch = "x86_64")]
mod wide {
    use pulp::x86::{V3, V4};
    use pulp::{NullaryFnOnce, i8x16, i8x32, i16x16, i16x32, i32x8};

    use super::as_float;

    /// Elements of one step: several independent sums hide the latency of the additions.
    const STEP: usize = 64;

    /// A set of instructions that has it.
    pub(super) trait Pairs: Copy {
        fn product(self, query: &[i16], row: &[i8]) -> i32;
    }

    pub(super) struct Scan<'a, S> {
        pub(super) simd: S,
        pub(super) scan: super::Scan<'a>,
    }

    impl<S: Pairs> NullaryFnOnce for Scan<'_, S> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            self.scan.run(
                #[inline(always)]
                |query, row| self.simd.product(query, row),
            );
        }
    }

    pub(super) struct Dot<'a, S> {
        pub(super) simd: S,
        pub(super) dot: super::Dot<'a>,
    }

    impl<S: Pairs> NullaryFnOnce for Dot<'_, S> {
        type Output = f32;

        #[inline(always)]
        fn call(self) -> f32 {
            let super::Dot { query, row } = self.dot;
            as_float(self.simd.product(&query.levels, row)) * query.scale
        }
    }

    impl Pairs for V4 {
        #[inline(always)]
        fn product(self, query: &[i16], row: &[i8]) -> i32 {
            let (query_steps, query_rest) = query.as_chunks::<STEP>();
            let (row_steps, row_rest) = row.as_chunks::<STEP>();
            let [mut s0, mut s1] = [self.splat_i32x16(0); 2];
            for (query, row) in query_steps.iter().zip(row_steps) {
                let [q0, q1]: [i16x32; 2] = pulp::cast(*query);
                let [r0, r1]: [i8x32; 2] = pulp::cast(*row);
                let pairs = |query, row| {
                    let row = self.convert_i8x32_to_i16x32(row);
                    self.multiply_wrapping_add_adjacent_i16x32(query, row)
                };
                s0 = self.wrapping_add_i32x16(s0, pairs(q0, r0));
                s1 = self.wrapping_add_i32x16(s1, pairs(q1, r1));
            }
            let halves: [i32x8; 2] = pulp::cast(self.wrapping_add_i32x16(s0, s1));
            sum(*self, halves) + super::product(query_rest, row_rest)
        }
    }

    impl Pairs for V3 {
        #[inline(always)]
        fn product(self, query: &[i16], row: &[i8]) -> i32 {
            let (query_steps, query_rest) = query.as_chunks::<STEP>();
            let (row_steps, row_rest) = row.as_chunks::<STEP>();
            let [mut s0, mut s1, mut s2, mut s3] = [self.splat_i32x8(0); 4];
            for (query, row) in query_steps.iter().zip(row_steps) {
                let [q0, q1, q2, q3]: [i16x16; 4] = pulp::cast(*query);
                let [r0, r1, r2, r3]: [i8x16; 4] = pulp::cast(*row);
                let pairs = |query, row| {
                    let row = self.convert_i8x16_to_i16x16(row);
                    self.multiply_wrapping_add_adjacent_i16x16(query, row)
                };
                s0 = self.wrapping_add_i32x8(s0, pairs(q0, r0));
                s1 = self.wrapping_add_i32x8(s1, pairs(q1, r1));
                s2 = self.wrapping_add_i32x8(s2, pairs(q2, r2));
                s3 = self.wrapping_add_i32x8(s3, pairs(q3, r3));
            }
            let halves = [
                self.wrapping_add_i32x8(s0, s1),
                self.wrapping_add_i32x8(s2, s3),
            ];
            sum(self, halves) + super::product(query_rest, row_rest)
        }
    }

    /// The sum of all.
    #[inline(always)]
    fn sum(simd: V3, [low, high]: [i32x8; 2]) -> i32 {
        let [a, b, c, d, e, f, g, h]: [i32; 8] = pulp::cast(simd.wrapping_add_i32x8(low, high));
        (a + b) + (c + d) + (e + f) + (g + h)
    }
}

/// The query's levels, rounded where the instruction for it exists.
struct Round<'a> {
    vector: &'a [f32],
    scale: f32,
}

impl WithSimd for Round<'_> {
    type Output = Box<[i16]>;

    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the quotient lies within the levels"
    )]
    fn with_simd<S: Simd>(self, _simd: S) -> Box<[i16]> {
        let Self { vector, scale } = self;
        vector.iter().map(|x| (x / scale).round() as i16).collect()
    }
}

/// What one level stands for when the greatest value takes the greatest level; 0 for the zero vector and for one that is not finite.
fn scale(vector: &[f32], levels: f32) -> f32 {
    let greatest = vector
        .iter()
        .fold(0f32, |greatest, x| greatest.max(x.abs()));
    if greatest > 0.0 && vector.iter().all(|x| x.is_finite()) {
        greatest / levels
    } else {
        0.0
    }
}

/// Appends the bytes of `vector` to `into` and returns the scale that undoes them; 0 for the zero vector and for one that is not finite.
pub(super) fn quantise(vector: &[f32], into: &mut Vec<i8>) -> f32 {
    let scale = scale(vector, ROW_LEVELS);
    let usable = scale > 0.0;
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
    as_float(sum) * a_scale * b_scale
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, prop};

    #[cfg(target_arch = "x86_64")]
    use super::{Dot, wide};
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
            let (mut bytes, mut found) = (Vec::new(), vec![0.0; rows.len()]);
            let scales: Vec<f32> = rows.iter().map(|row| quantise(row, &mut bytes)).collect();
            query_vector.scan(&bytes, &mut found);
            for (at, row) in rows.iter().enumerate() {
                let exact: f32 = query.iter().zip(row).map(|(q, r)| q * r).sum();
                proptest::prop_assert!((found[at] * scales[at] - exact).abs() < 0.03);
                proptest::prop_assert!((query_vector.dot(&bytes[at * 67..(at + 1) * 67]) * scales[at] - exact).abs() < 0.02);
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn wide_products_equal_plain_ones(query in prop::collection::vec(-32_767i16..=32_767, 0..300), row in prop::collection::vec(-127i8..=127, 300)) {
            let query = QueryVector { levels: query.into(), scale: 1.0 };
            let plain: f64 = query.levels.iter().zip(&row).map(|(&q, &r)| f64::from(q) * f64::from(r)).sum();
            let row = &row[..query.dimensions()];
            let is_plain = |found: f32| (f64::from(found) - plain).abs() <= plain.abs() * 1e-6;
            proptest::prop_assert!(is_plain(query.dot(row)));
            // The narrower of the two is what most machines take, also where this one takes the other.
            #[cfg(target_arch = "x86_64")]
            if let Some(simd) = pulp::x86::V3::try_new() {
                let dot = Dot { query: &query, row };
                let found = simd.vectorize(wide::Dot { simd, dot });
                proptest::prop_assert!(is_plain(found));
            }
        }
    }

    #[test]
    fn the_greatest_sum_of_products_fits() {
        for dimensions in [1, 256, 520, 1_024, 4_096] {
            let query = QueryVector::new(&vec![1.0; dimensions]).unwrap();
            let mut row = Vec::new();
            let scale = quantise(&vec![1.0; dimensions], &mut row);
            let (found, exact) = (query.dot(&row) * scale, dimensions as f32);
            assert!(
                (found - exact).abs() < exact * 1e-3,
                "{dimensions}: {found}"
            );
        }
    }

    #[test]
    fn nothing_is_compared_with_zero_or_nan() {
        assert!(QueryVector::new(&[0.0; 4]).is_none());
        assert!(QueryVector::new(&[f32::NAN, 1.0]).is_none());
    }
}
