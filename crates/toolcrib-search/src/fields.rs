//! What a document is made of, and what an occurrence in each part is worth.

/// How soon further occurrences of a term stop counting. The value of Lucene and of our baselines.
pub const K1: f32 = 1.2;
/// The most fields a document can have.
pub const MAX_FIELDS: usize = 8;

/// A part of a document, such as its name or its description.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Field {
    /// Shown in explanations.
    pub name: &'static str,
    /// What an occurrence here is worth; more than zero.
    pub weight: f32,
    /// How much a long text dilutes an occurrence: 0 not at all, 1 in proportion.
    pub b: f32,
    /// The number of tokens at which an occurrence is worth exactly `weight`. A constant, where
    /// BM25 has the average over the corpus: so a document's scores do not move when others come
    /// and go, except for how rare its terms are.
    pub reference_length: f32,
}

/// The fields of a document, in the order in which [`Document::fields`](crate::Document::fields)
/// gives their texts.
///
/// Segments searched together should be built with the same fields; nothing checks it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fields(&'static [Field]);

/// How often one term occurs in one field of one document, and how long that field is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Occurrences {
    pub(crate) count: u32,
    pub(crate) length: u32,
}

impl Fields {
    /// Checks the fields; in a `const` a mistake is a compile error.
    ///
    /// # Panics
    /// If there are none or more than [`MAX_FIELDS`], or if one has a weight or reference length
    /// that is not above zero, or a `b` outside 0 to 1.
    pub const fn new(fields: &'static [Field]) -> Self {
        assert!(!fields.is_empty() && fields.len() <= MAX_FIELDS, "between one and eight fields");
        let mut i = 0;
        while i < fields.len() {
            let field = &fields[i];
            assert!(field.weight > 0.0 && field.weight.is_finite(), "a weight is above zero");
            assert!(field.b >= 0.0 && field.b <= 1.0, "b lies between 0 and 1");
            assert!(
                field.reference_length > 0.0 && field.reference_length.is_finite(),
                "a reference length is above zero"
            );
            i += 1;
        }
        Fields(fields)
    }

    pub(crate) fn list(&self) -> &'static [Field] {
        self.0
    }

    /// What the occurrences of a term in a document are worth before it is known how rare the term
    /// is. Further occurrences add less and less, with a limit of [`K1`] + 1.
    pub(crate) fn impact(&self, occurrences: &[Occurrences; MAX_FIELDS]) -> f32 {
        let frequency: f32 =
            self.0.iter().zip(occurrences).map(|(field, &found)| field.frequency(found)).sum();
        frequency * (K1 + 1.0) / (K1 + frequency)
    }
}

impl Field {
    /// The occurrences in this field, weighted and made comparable between short and long texts.
    pub(crate) fn frequency(&self, Occurrences { count, length }: Occurrences) -> f32 {
        let relative_length = length as f32 / self.reference_length;
        self.weight * count as f32
            / (1.0 - self.b + self.b * relative_length).max(f32::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELD: Field = Field { name: "text", weight: 2.0, b: 0.5, reference_length: 10.0 };

    #[test]
    fn an_occurrence_at_the_reference_length_is_worth_the_weight() {
        assert_eq!(FIELD.frequency(Occurrences { count: 1, length: 10 }), 2.0);
        assert!(FIELD.frequency(Occurrences { count: 1, length: 20 }) < 2.0);
        assert_eq!(FIELD.frequency(Occurrences { count: 0, length: 0 }), 0.0);
    }

    #[test]
    fn impact_saturates() {
        let fields = Fields::new(&[FIELD]);
        let impact = |count| {
            let mut occurrences = [Occurrences::default(); MAX_FIELDS];
            occurrences[0] = Occurrences { count, length: 10 };
            fields.impact(&occurrences)
        };
        assert!(impact(2) > impact(1) && impact(2) < 2.0 * impact(1));
        assert!(impact(1_000_000) <= K1 + 1.0);
    }

    #[test]
    #[should_panic(expected = "a weight is above zero")]
    fn a_field_without_weight_is_refused() {
        Fields::new(&[Field { name: "text", weight: 0.0, b: 0.5, reference_length: 10.0 }]);
    }
}
