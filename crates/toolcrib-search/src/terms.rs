//! Terms in order, with something known about each.

use crate::analyze::Term;

/// Terms that share an entry of the directory on average; together they fill half a cache line.
const TERMS_PER_BUCKET: usize = 4;

/// Terms in ascending order, with something known about each.
///
/// For each value of a term's upper bits, a directory says where its terms begin. A lookup looks
/// there first and then searches a handful of terms; terms made to crowd one bucket make it a
/// binary search and no worse.
pub(crate) struct Terms<T> {
    /// One more than there are terms, so that there is one behind each.
    entries: Box<[Entry<T>]>,
    /// One more than there are values, with the end of the last.
    directory: Box<[Bucket]>,
    directory_bits: u32,
}

/// The halves of the term keep an entry from being padded to eight bytes.
#[derive(Clone, Copy)]
struct Entry<T> {
    term: [u32; 2],
    about: T,
}

/// Where the terms of one value of their upper bits begin.
#[derive(Clone, Copy)]
struct Bucket {
    start: u32,
    /// A bit for each of its terms, by other bits of theirs: most lookups are for terms that are
    /// not there, and end here without a look at the terms.
    marks: u32,
}

impl Bucket {
    fn mark(term: Term) -> u32 {
        1 << (term.halves()[1] & 31)
    }
}

impl<T> Entry<T> {
    fn term(&self) -> Term {
        Term::from_halves(self.term)
    }
}

impl<T: Copy> Terms<T> {
    /// Keeps distinct terms that come in ascending order; `end` is what is known behind the last.
    pub(crate) fn new(terms: impl IntoIterator<Item = (Term, T)>, end: T) -> Self {
        let entry = |(term, about): (Term, T)| Entry { term: term.halves(), about };
        let mut entries: Vec<Entry<T>> = terms.into_iter().map(entry).collect();
        let directory_bits = (entries.len() / TERMS_PER_BUCKET).max(1).ilog2();
        let begin =
            |bucket| entries.partition_point(|e| e.term().upper_bits(directory_bits) < bucket);
        let bucket = |bucket| {
            let (start, end) = (begin(bucket), begin(bucket + 1));
            let marks = entries[start..end].iter().map(|entry| Bucket::mark(entry.term()));
            Bucket { start: start as u32, marks: marks.fold(0, |all, mark| all | mark) }
        };
        let directory = (0..=1 << directory_bits).map(bucket).collect();
        entries.push(Entry { term: [u32::MAX; 2], about: end });
        Terms { entries: entries.into(), directory, directory_bits }
    }

    /// The number of terms.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - 1
    }

    /// What is known about a term, and about the one behind it.
    pub(crate) fn find(&self, term: Term) -> Option<(T, T)> {
        let at = term.upper_bits(self.directory_bits);
        let (bucket, next) = (self.directory[at], self.directory[at + 1]);
        if bucket.marks & Bucket::mark(term) == 0 {
            return None;
        }
        let (first, last) = (bucket.start as usize, next.start as usize);
        let at = first + self.entries[first..last].partition_point(|entry| entry.term() < term);
        let is_here = at < last && self.entries[at].term() == term;
        is_here.then(|| (self.entries[at].about, self.entries[at + 1].about))
    }

    /// Each term with what is known about it and about the one behind it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Term, T, T)> {
        self.entries.windows(2).map(|two| (two[0].term(), two[0].about, two[1].about))
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.entries) + size_of_val(&*self.directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_term_is_found_again_and_no_other() {
        for count in [0, 1, 3, 4, 5, 1_000] {
            let mut known: Vec<Term> = (0..count).map(|i| Term::of(&format!("w{i}"))).collect();
            known.sort_unstable();
            let terms = Terms::new(known.iter().copied().zip(0..), count);
            assert_eq!(terms.len(), count);
            for (at, &term) in known.iter().enumerate() {
                assert_eq!(terms.find(term), Some((at, at + 1)));
            }
            assert!((0..count).all(|i| terms.find(Term::of(&format!("absent{i}"))).is_none()));
            assert!(terms.iter().map(|(term, ..)| term).eq(known));
        }
    }

    #[test]
    fn the_highest_hash_is_a_term_like_any_other() {
        let highest = Term::from_halves([u32::MAX; 2]);
        assert_eq!(Terms::new([(Term::of("a"), 1)], 2).find(highest), None);
        assert_eq!(Terms::new([(highest, 1)], 2).find(highest), Some((1, 2)));
    }
}
