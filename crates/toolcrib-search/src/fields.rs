//! What a document is made of, and what an occurrence in each part is worth.

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
    /// What a document gains when a word of the query stands here, in proportion to that word's
    /// part in the query.
    pub told: f32,
    /// What a document gains when all the words that stand here are in the query; in proportion
    /// if only some are.
    pub share: f32,
    /// How much this part counts in what the document is about, for the vectors.
    pub meaning: f32,
}

impl Field {
    /// A field whose occurrences count one each, for a start.
    pub const PLAIN: Field = Field {
        name: "text",
        weight: 1.0,
        b: 0.75,
        reference_length: 30.0,
        told: 0.0,
        share: 0.0,
        meaning: 1.0,
    };

    /// The occurrences in this field, weighted and made comparable between short and long texts.
    pub(crate) fn frequency(&self, Occurrences { count, length, .. }: Occurrences) -> f32 {
        let relative_length = length as f32 / self.reference_length;
        self.weight * count as f32
            / (1.0 - self.b + self.b * relative_length).max(f32::MIN_POSITIVE)
    }
}

/// The fields of a document, in the order in which [`Document::fields`](crate::Document::fields)
/// gives their texts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fields {
    list: [Field; MAX_FIELDS],
    len: usize,
}

/// How often one term occurs in one field of one document, and how long that field is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Occurrences {
    pub(crate) count: u32,
    /// In tokens.
    pub(crate) length: u32,
    /// In distinct terms.
    pub(crate) distinct: u32,
}

impl Fields {
    /// Checks the fields; in a `const` a mistake is a compile error.
    ///
    /// # Panics
    /// If there are none or more than [`MAX_FIELDS`], or if one has a weight or reference length
    /// that is not above zero, or a `b` outside 0 to 1.
    pub const fn new(fields: &[Field]) -> Self {
        assert!(!fields.is_empty() && fields.len() <= MAX_FIELDS, "between one and eight fields");
        let mut list = [Field::PLAIN; MAX_FIELDS];
        let mut i = 0;
        while i < fields.len() {
            let field = &fields[i];
            assert!(field.weight > 0.0 && field.weight.is_finite(), "a weight is above zero");
            assert!(field.b >= 0.0 && field.b <= 1.0, "b lies between 0 and 1");
            assert!(
                field.reference_length > 0.0 && field.reference_length.is_finite(),
                "a reference length is above zero"
            );
            list[i] = fields[i];
            i += 1;
        }
        Fields { list, len: fields.len() }
    }

    /// The fields in order.
    pub fn list(&self) -> &[Field] {
        &self.list[..self.len]
    }

    /// The same fields with one changed.
    ///
    /// # Panics
    /// If there is no field of that name, or if it is then not valid.
    pub fn with(&self, name: &str, change: impl FnOnce(&mut Field)) -> Self {
        let mut list = self.list;
        let field = list[..self.len].iter_mut().find(|field| field.name == name);
        change(field.expect("a field of that name"));
        Fields::new(&list[..self.len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELD: Field = Field { weight: 2.0, b: 0.5, reference_length: 10.0, ..Field::PLAIN };

    #[test]
    fn an_occurrence_at_the_reference_length_is_worth_the_weight() {
        let frequency =
            |count, length| FIELD.frequency(Occurrences { count, length, distinct: length });
        assert_eq!(frequency(1, 10), 2.0);
        assert!(frequency(1, 20) < 2.0);
        assert_eq!(frequency(0, 0), 0.0);
    }

    #[test]
    #[should_panic(expected = "a weight is above zero")]
    fn a_field_without_weight_is_refused() {
        Fields::new(&[Field { weight: 0.0, ..FIELD }]);
    }
}
