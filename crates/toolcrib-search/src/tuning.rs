//! The numbers that ranking is made with.

use crate::fields::{Fields, MAX_FIELDS, Occurrences};
use crate::query::Ranking;

/// The numbers that ranking is made with, in one place.
///
/// A document's score is a sum of parts that each lie between about 0 and 1: how much of the
/// query's weight its words carry (by their rarity, their frequency and where they stand), how much
/// of its own name the query says, and how near it is in meaning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// What documents are made of.
    pub fields: Fields,
    /// How soon further occurrences of a word in a document stop counting.
    pub k1: f32,
    /// What occurrences are worth, by their saturated frequency, in proportion to the word's part
    /// in the query.
    pub frequency: f32,
    /// What it is worth that a word occurs at all, in the same proportion.
    pub coverage: f32,
    /// The exponent of how often a query has a word: 0 counts it once, 1 every time.
    pub repetition: f32,
    /// The part in the query of a word that no document has, beside that of the rarest word.
    pub unknown: f32,
    /// What a synonym is worth beside the word itself.
    pub synonym: f32,
    /// What a word of a name is worth that differs from the query's by one letter.
    pub misspelling: f32,
    /// What nearness in meaning is worth: the cosine above `near`.
    pub meaning: f32,
    /// The cosine from which two texts have anything to do with each other.
    pub near: f32,
    /// The cosine from which a document is found that shares no word with the query.
    pub floor: f32,
    /// The number of words up to which a query is about one thing. The mean of a longer one's
    /// vectors is about everything a little, so nearness to it is worth less.
    pub long: f32,
    /// The exponent with which it is worth less.
    pub fading: f32,
    /// How much the sentence of a request that fits best counts, beside the whole.
    pub sentences: f32,
    /// The share of its score that a further copy of a document loses. Which documents are copies
    /// is for the caller to say, and so is taking it away.
    pub copy: f32,
    /// How texts are read.
    pub reading: Reading,
}

/// How texts become terms. A [`Query`](crate::Query) finds what was read the same way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// The letters from which a word is stemmed. Shorter words are names and acronyms more often
    /// than inflected words (`aws`, `ids`, `ios`).
    pub stemmed: f32,
    /// Whether [`STOP_WORDS`](crate::STOP_WORDS) are left out of a query that has others.
    pub stops: bool,
}

impl Reading {
    /// The values chosen on tools.
    pub const DEFAULT: Reading = Reading { stemmed: 4.0, stops: true };
}

impl Default for Reading {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Tuning {
    /// Tuning for documents made of these fields, with the values chosen on tools.
    pub const fn new(fields: Fields) -> Self {
        Tuning {
            fields,
            k1: 0.5,
            frequency: 0.5,
            coverage: 0.4,
            repetition: 0.0,
            unknown: 0.25,
            synonym: 0.85,
            misspelling: 0.7,
            meaning: 1.35,
            near: 0.1,
            floor: 0.25,
            long: 14.0,
            fading: 2.2,
            sentences: 0.2,
            copy: 0.75,
            reading: Reading::DEFAULT,
        }
    }

    /// What nearness in meaning is worth to a need of so many words: as a function of the cosine
    /// and of what the words are worth already.
    pub(crate) fn worth_of_meaning(
        &self,
        ranking: Ranking,
        words: usize,
    ) -> impl Fn(f32, f32) -> f32 {
        let worth = self.meaning * (self.long / words.max(1) as f32).min(1.0).powf(self.fading);
        let (near, floor) =
            (self.near, if ranking == Ranking::Semantic { self.near } else { self.floor });
        move |cosine, by_words| {
            let least = if by_words > 0.0 { near } else { floor };
            if cosine >= least { worth * (cosine - near) } else { 0.0 }
        }
    }

    /// What the occurrences of a word in a document are worth, as a factor of the word's part in
    /// the query, and what they are worth whatever its part.
    pub(crate) fn worth(&self, occurrences: &[Occurrences; MAX_FIELDS]) -> (f32, f32) {
        let fields = || self.fields.list().iter().zip(occurrences);
        let frequency: f32 = fields().map(|(field, &found)| field.frequency(found)).sum();
        let found = || fields().filter(|(_, found)| found.count > 0);
        let told: f32 = found().map(|(field, _)| field.told).sum();
        let share: f32 = found().map(|(field, at)| field.share / at.distinct.max(1) as f32).sum();
        (self.frequency * frequency / (self.k1 + frequency) + self.coverage + told, share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Field;

    #[test]
    fn further_occurrences_add_less_and_less() {
        let tuning = Tuning::new(Fields::new(&[Field::PLAIN]));
        let worth = |count| {
            let mut occurrences = [Occurrences::default(); MAX_FIELDS];
            occurrences[0] = Occurrences { count, length: 30, distinct: 10 };
            tuning.worth(&occurrences).0 - tuning.coverage
        };
        assert!(worth(2) > worth(1) && worth(2) < 2.0 * worth(1));
        assert!(worth(1_000_000) <= tuning.frequency);
    }
}
