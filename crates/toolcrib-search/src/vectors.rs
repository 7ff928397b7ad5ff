//! Directions in a space of meaning, and how near they lie to another.

use pulp::Arch;
#[cfg(target_arch = "x86_64")]
use pulp::x86::V3;

/// The largest step of a quantised component.
const STEPS: f32 = 127.0;

/// More dimensions than any embedder has; the products of so many still add up in 32 bits.
const MAX_DIMENSIONS: usize = 65_536;

/// A text's direction, quantised as those it is compared with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Vector {
    /// Each fits into a byte; they are kept as wide as they are multiplied.
    steps: Box<[i16]>,
    /// What a step is worth.
    scale: f32,
}

impl Vector {
    /// The direction of a vector; its length does not matter. What is not finite counts as zero.
    pub(crate) fn new(components: &[f32]) -> Self {
        let components = if components.len() > MAX_DIMENSIONS { &[] } else { components };
        let mut steps = vec![0; components.len()];
        let scale = quantise(components, &mut steps);
        Vector { steps: steps.into_iter().map(i16::from).collect(), scale }
    }

    pub(crate) fn dimensions(&self) -> usize {
        self.steps.len()
    }
}

/// One direction for each document of a [`Segment`](crate::Segment), in its order, a byte a
/// dimension.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vectors {
    dimensions: usize,
    steps: Box<[i8]>,
    scales: Box<[f32]>,
}

impl Vectors {
    /// Keeps the direction of each row. A row of another length than `dimensions` has none and is
    /// near nothing, as has one of zeros and one of more than 65,536 dimensions.
    pub fn new<R: AsRef<[f32]>>(dimensions: usize, rows: impl IntoIterator<Item = R>) -> Self {
        let dimensions = if dimensions > MAX_DIMENSIONS { 0 } else { dimensions };
        let (mut steps, mut scales) = (Vec::new(), Vec::new());
        for row in rows {
            let from = steps.len();
            steps.resize(from + dimensions, 0);
            let row = row.as_ref();
            let known = row.len() == dimensions;
            scales.push(if known { quantise(row, &mut steps[from..]) } else { 0.0 });
        }
        Vectors { dimensions, steps: steps.into(), scales: scales.into() }
    }

    /// The number of documents.
    pub fn len(&self) -> usize {
        self.scales.len()
    }

    /// Whether there is no document.
    pub fn is_empty(&self) -> bool {
        self.scales.is_empty()
    }

    /// The number of dimensions.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.steps.len() + size_of_val(&*self.scales)
    }

    /// Writes the cosine between the vector and each document; zeros if the dimensions differ.
    pub(crate) fn cosines(&self, vector: &Vector, cosines: &mut [f32]) {
        if vector.dimensions() != self.dimensions || self.dimensions == 0 {
            cosines.fill(0.0);
            return;
        }
        let cosine = |dot: i32, scale: f32| dot as f32 * (scale * vector.scale);
        let done = four_at_a_time(&self.steps, &vector.steps, |at, dots| {
            let cosines = cosines[at..at + 4].iter_mut().zip(&self.scales[at..at + 4]);
            cosines.zip(dots).for_each(|((to, &scale), dot)| *to = cosine(dot, scale));
        });
        Arch::new().dispatch(|| {
            let rows = self.steps.chunks_exact(self.dimensions).zip(&self.scales);
            for (to, (row, &scale)) in cosines.iter_mut().zip(rows).skip(done) {
                *to = cosine(dot(row, &vector.steps), scale);
            }
        });
    }
}

/// Whole numbers, so the sum is the same in whatever order a processor adds them.
#[inline(always)]
fn dot<S: Copy + Into<i32>>(a: &[i8], b: &[S]) -> i32 {
    a.iter().zip(b).map(|(&a, &b)| i32::from(a) * b.into()).sum()
}

/// Passes on the number of a row and the dot products of four rows from there, for as many rows as
/// this can be done with; says how many that were. A compiler would use half of what a processor
/// has here, and four rows at a time keep memory busy.
#[cfg(target_arch = "x86_64")]
fn four_at_a_time(rows: &[i8], vector: &[i16], mut pass: impl FnMut(usize, [i32; 4])) -> usize {
    let dimensions = vector.len();
    let (Some(v3), 0) = (V3::try_new(), dimensions % 16) else { return 0 };
    v3.vectorize(|| {
        let (avx, avx2) = (v3.avx, v3.avx2);
        let vector = vector.as_chunks::<16>().0;
        let fours = rows.chunks_exact(4 * dimensions);
        let done = 4 * fours.len();
        for (at, four) in fours.enumerate() {
            let (ab, cd) = four.split_at(2 * dimensions);
            let ((a, b), (c, d)) = (ab.split_at(dimensions), cd.split_at(dimensions));
            let (a, b) = (a.as_chunks::<16>().0, b.as_chunks::<16>().0);
            let (c, d) = (c.as_chunks::<16>().0, d.as_chunks::<16>().0);
            let mut sums = [avx._mm256_setzero_si256(); 4];
            for ((((by, a), b), c), d) in vector.iter().zip(a).zip(b).zip(c).zip(d) {
                let mut add = |row: usize, steps: &[i8; 16]| {
                    let wide = avx2._mm256_cvtepi8_epi16(pulp::cast(*steps));
                    let pairs = avx2._mm256_madd_epi16(wide, pulp::cast(*by));
                    sums[row] = avx2._mm256_add_epi32(sums[row], pairs);
                };
                add(0, a);
                add(1, b);
                add(2, c);
                add(3, d);
            }
            let [a, b, c, d] = sums;
            let (ab, cd) = (avx2._mm256_hadd_epi32(a, b), avx2._mm256_hadd_epi32(c, d));
            let halves: [[i32; 4]; 2] = pulp::cast(avx2._mm256_hadd_epi32(ab, cd));
            pass(4 * at, std::array::from_fn(|row| halves[0][row] + halves[1][row]));
        }
        done
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn four_at_a_time(_: &[i8], _: &[i16], _: impl FnMut(usize, [i32; 4])) -> usize {
    0
}

/// Fills in the steps, and returns what one is worth once the length is divided out.
fn quantise(components: &[f32], steps: &mut [i8]) -> f32 {
    let finite = |component: f32| if component.is_finite() { component } else { 0.0 };
    let most = components.iter().map(|&c| finite(c).abs()).fold(0.0, f32::max);
    if most < f32::MIN_POSITIVE {
        return 0.0;
    }
    for (step, &component) in steps.iter_mut().zip(components) {
        *step = (finite(component) / most * STEPS).round() as i8;
    }
    // The length of what was kept, so that a vector's cosine with itself is one.
    1.0 / (dot(steps, steps) as f32).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cosine(a: &[f32], b: &[f32]) -> f32 {
        let mut cosines = [9.0];
        Vectors::new(a.len(), [a]).cosines(&Vector::new(b), &mut cosines);
        cosines[0]
    }

    #[test]
    fn only_the_direction_counts() {
        let ones: Vec<f32> = (0..64).map(|i| (i as f32).sin()).collect();
        let thousands: Vec<f32> = ones.iter().map(|c| c * 1000.0).collect();
        assert!((cosine(&ones, &thousands) - 1.0).abs() < 1e-6);
        let opposite: Vec<f32> = ones.iter().map(|c| -c).collect();
        assert!((cosine(&ones, &opposite) + 1.0).abs() < 1e-6);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 3.0]), 0.0);
    }

    #[test]
    fn quantising_moves_a_cosine_by_little() {
        let a: Vec<f32> = (0..256).map(|i| (i as f32 * 0.7).sin()).collect();
        let b: Vec<f32> = (0..256).map(|i| (i as f32 * 0.7 + 0.4).sin()).collect();
        let length = |v: &[f32]| v.iter().map(|c| c * c).sum::<f32>().sqrt();
        let exact = a.iter().zip(&b).map(|(a, b)| a * b).sum::<f32>() / (length(&a) * length(&b));
        assert!((cosine(&a, &b) - exact).abs() < 0.01);
    }

    #[test]
    fn a_row_has_the_same_cosine_among_others_as_alone() {
        for dimensions in [1, 16, 20, 48, 256] {
            let row = |at: usize| -> Vec<f32> {
                (0..dimensions).map(|i| ((at * 31 + i * 7) as f32).sin()).collect()
            };
            let rows: Vec<Vec<f32>> = (0..11).map(row).collect();
            let vector = Vector::new(&row(99));
            let mut cosines = [9.0; 11];
            Vectors::new(dimensions, &rows).cosines(&vector, &mut cosines);
            let alone = |row: &Vec<f32>| {
                let mut cosine = [9.0];
                Vectors::new(dimensions, [row]).cosines(&vector, &mut cosine);
                cosine[0]
            };
            assert_eq!(cosines.to_vec(), rows.iter().map(alone).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_has_no_direction_is_near_nothing() {
        assert_eq!(cosine(&[0.0, 0.0], &[1.0, 1.0]), 0.0);
        assert_eq!(cosine(&[f32::NAN, f32::INFINITY], &[1.0, 1.0]), 0.0);
        let mut cosines = [9.0; 2];
        let vectors = Vectors::new(2, [vec![1.0, 0.0], vec![1.0]]);
        vectors.cosines(&Vector::new(&[1.0, 0.0]), &mut cosines);
        assert_eq!(cosines, [1.0, 0.0]);
        vectors.cosines(&Vector::new(&[1.0]), &mut cosines);
        assert_eq!(cosines, [0.0, 0.0]);
    }
}
