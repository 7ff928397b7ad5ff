//! Small segments looked up together.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::analyze::Term;
use crate::segment::Segment;
use crate::terms::Terms;

/// Segments of a bundle: one bit each.
pub(crate) const SEGMENTS: usize = u32::BITS as usize;

/// Where the terms of some segments are found, so that a word is looked up once for all of them.
///
/// It belongs to these segments and to no order of them. An index that has only some of them still
/// uses it; once most are gone, it is dropped.
pub(crate) struct Bundle {
    segments: Vec<Weak<Segment>>,
    terms: Terms<Shared>,
    /// By term, then by segment.
    places: Box<[Place]>,
}

/// Which segments have a term.
#[derive(Clone, Copy)]
struct Shared {
    segments: u32,
    /// The first of as many places.
    places: u32,
}

/// Where the postings of a term begin in a segment, and how many there are.
#[derive(Clone, Copy)]
struct Place(u32);

impl Place {
    const LENGTH_BITS: u32 = 8;

    /// Whether every place in a segment of so many documents and postings can be told.
    fn fits(documents: usize, postings: usize) -> bool {
        documents < 1 << Self::LENGTH_BITS && postings < 1 << (u32::BITS - Self::LENGTH_BITS)
    }

    fn new(start: u32, end: u32) -> Self {
        Place(start << Self::LENGTH_BITS | (end - start))
    }

    fn range(self) -> (u32, u32) {
        let start = self.0 >> Self::LENGTH_BITS;
        (start, start + (self.0 & ((1 << Self::LENGTH_BITS) - 1)))
    }
}

impl Bundle {
    /// Whether a segment may be part of a bundle. For a large one a lookup of its own is little
    /// beside the work on what it finds.
    pub(crate) fn takes(segment: &Segment) -> bool {
        Place::fits(segment.len(), segment.postings_len())
    }

    /// A bundle of at most [`SEGMENTS`] segments, which it [`takes`](Self::takes).
    pub(crate) fn new(segments: &[&Arc<Segment>]) -> Self {
        let mut all: Vec<(Term, u32, Place)> = Vec::new();
        for (slot, segment) in (0..).zip(segments) {
            let terms = segment.terms();
            all.extend(terms.map(|(term, start, end)| (term, slot, Place::new(start, end))));
        }
        // Each segment's are in order already, which a stable sort makes use of.
        all.sort_by_key(|&(term, ..)| term);
        let mut places = 0;
        let shared = all.chunk_by(|(a, ..), (b, ..)| a == b).map(|same| {
            let segments = same.iter().fold(0, |segments, (_, slot, _)| segments | 1 << slot);
            let shared = Shared { segments, places };
            places += same.len() as u32;
            (same[0].0, shared)
        });
        Bundle {
            terms: Terms::new(shared, Shared { segments: 0, places: all.len() as u32 }),
            places: all.iter().map(|&(.., place)| place).collect(),
            segments: segments.iter().map(|segment| Arc::downgrade(segment)).collect(),
        }
    }

    /// Takes its segments out of those given with where each stands, and says where they stand.
    pub(crate) fn claim(&self, from: &mut HashMap<*const Segment, usize>) -> Vec<Option<usize>> {
        self.segments.iter().map(|segment| from.remove(&segment.as_ptr())).collect()
    }

    /// Which of its segments have a term, by their number here, and where its postings begin and
    /// end there.
    pub(crate) fn find(&self, term: Term) -> impl Iterator<Item = (usize, (u32, u32))> {
        let none = Shared { segments: 0, places: 0 };
        let (shared, next) = self.terms.find(term).unwrap_or((none, none));
        let places = &self.places[shared.places as usize..next.places as usize];
        let mut left = shared.segments;
        places.iter().map(move |place| {
            let slot = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (slot, place.range())
        })
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.segments) + self.terms.heap_bytes() + size_of_val(&*self.places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_in_four_bytes_if_it_fits() {
        let most = (1 << Place::LENGTH_BITS) - 1;
        let end = (1 << (u32::BITS - Place::LENGTH_BITS)) - 1;
        assert!(Place::fits(most as usize, end as usize));
        assert_eq!(Place::new(end - most, end).range(), (end - most, end));
        assert_eq!(Place::new(end, end).range(), (end, end));
        assert!(!Place::fits(most as usize + 1, 0) && !Place::fits(0, end as usize + 1));
    }
}
