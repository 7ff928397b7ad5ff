//! The table's TOML form.

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::{Class, Feature, Model, ModelsError, Prices, Provider, Section, canonical};
use crate::{CacheRules, Tokenizer};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    model: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Spanned<String>,
    like: Option<Spanned<String>>,
    prefixes: Option<Spanned<Vec<String>>>,
    provider: Option<Provider>,
    class: Option<Class>,
    context: Option<u64>,
    output: Option<u64>,
    supports: Option<Vec<Feature>>,
    price: Option<Spanned<Prices>>,
    cache: Option<Spanned<Cache>>,
    order: Option<Spanned<[Section; 3]>>,
    vocabulary: Option<VocabularyName>,
    factor: Option<Spanned<f64>>,
    source: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cache {
    write: Option<f64>,
    write_1h: Option<f64>,
    read: Option<f64>,
    minimum: Option<u64>,
    step: Option<u64>,
}

#[derive(Deserialize)]
enum VocabularyName {
    #[serde(rename = "o200k_base")]
    O200kBase,
    #[serde(rename = "cl100k_base")]
    Cl100kBase,
    #[serde(rename = "estimate")]
    Estimate,
}

/// Reads a file's entries, each on top of the one it starts from.
pub(super) fn extend(models: &mut Vec<Model>, text: &str) -> Result<(), ModelsError> {
    let file: File = toml::from_str(text).map_err(|error| fault(text, &error))?;
    for entry in file.model {
        let model = entry.apply(models, text)?;
        match models.iter_mut().find(|known| known.is(&model.name)) {
            Some(known) => *known = model,
            None => models.push(model),
        }
    }
    Ok(())
}

impl Entry {
    fn apply(self, models: &[Model], text: &str) -> Result<Model, ModelsError> {
        let refuse = |span: Range<usize>, key, expected: &str| {
            Err(ModelsError::Value { line: line(text, span.start), key, expected: expected.into() })
        };
        if self.name.get_ref().trim().is_empty() {
            return refuse(self.name.span(), "name", "a model's id");
        }
        let own = models.iter().find(|model| model.is(self.name.get_ref()));
        let base = match &self.like {
            Some(like) => match models.iter().find(|model| model.is(like.get_ref())) {
                Some(model) => Some(model),
                None => return refuse(like.span(), "like", "the name of an entry above"),
            },
            None => own,
        };
        let mut model = base.cloned().unwrap_or_else(blank);
        model.prefixes = own.map(|own| own.prefixes.clone()).unwrap_or_default();
        model.name = self.name.into_inner();

        if let Some(prefixes) = self.prefixes {
            if prefixes.get_ref().iter().any(|prefix| prefix.trim().is_empty()) {
                return refuse(prefixes.span(), "prefixes", "prefixes that are not empty");
            }
            model.prefixes = prefixes.into_inner();
        }
        if let Some(price) = self.price {
            let Prices { input, output, long } = *price.get_ref();
            let long = long.map_or([0.0; 2], |long| [long.input, long.output]);
            if !sensible([input, output]) || !sensible(long) {
                return refuse(price.span(), "price", "prices of 0 or more");
            }
            model.prices = Some(price.into_inner());
            model.source = None;
        }
        if let Some(cache) = self.cache {
            let span = cache.span();
            model.cache = cache.into_inner().over(model.cache);
            let CacheRules { write, write_1h, read, .. } = model.cache;
            if !sensible([write, write_1h.unwrap_or(0.0), read]) {
                return refuse(span, "cache", "multiples of the input price, 0 or more");
            }
        }
        if let Some(order) = self.order {
            let all = [Section::Tools, Section::System, Section::Messages];
            if !all.iter().all(|section| order.get_ref().contains(section)) {
                return refuse(order.span(), "order", "each of tools, system and messages once");
            }
            model.order = order.into_inner();
        }
        match self.vocabulary {
            Some(VocabularyName::O200kBase) => model.tokenizer = Tokenizer::O200K,
            Some(VocabularyName::Cl100kBase) => model.tokenizer = Tokenizer::CL100K,
            Some(VocabularyName::Estimate) => model.tokenizer = Tokenizer::estimate(1.0),
            None => {}
        }
        if let Some(factor) = self.factor {
            if model.tokenizer.is_exact() {
                let expected = "none beside an exact vocabulary; say vocabulary = \"estimate\"";
                return refuse(factor.span(), "factor", expected);
            }
            if !sensible([*factor.get_ref()]) || *factor.get_ref() == 0.0 {
                return refuse(factor.span(), "factor", "a number above 0");
            }
            model.tokenizer = Tokenizer::estimate(factor.into_inner());
        }
        model.provider = self.provider.unwrap_or(model.provider);
        model.class = self.class.unwrap_or(model.class);
        model.context = self.context.or(model.context);
        model.output = self.output.or(model.output);
        model.supports = self.supports.unwrap_or(model.supports);
        model.source = self.source.or(model.source);
        Ok(model)
    }
}

impl Model {
    fn is(&self, name: &str) -> bool {
        canonical(&self.name) == canonical(name)
    }
}

impl Cache {
    fn over(self, base: CacheRules) -> CacheRules {
        CacheRules {
            write: self.write.unwrap_or(base.write),
            write_1h: self.write_1h.or(base.write_1h),
            read: self.read.unwrap_or(base.read),
            minimum: self.minimum.unwrap_or(base.minimum),
            step: self.step.unwrap_or(base.step),
        }
    }
}

/// What an entry starts from when it names no other: nothing known, nothing promised.
fn blank() -> Model {
    Model {
        name: String::new(),
        prefixes: Vec::new(),
        provider: Provider::Other,
        class: Class::Cloud,
        context: None,
        output: None,
        supports: Vec::new(),
        prices: None,
        cache: CacheRules::NONE,
        order: [Section::Tools, Section::System, Section::Messages],
        tokenizer: Tokenizer::estimate(1.0),
        source: None,
    }
}

fn sensible<const N: usize>(numbers: [f64; N]) -> bool {
    numbers.iter().all(|number| number.is_finite() && *number >= 0.0)
}

fn line(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

/// Where the parser stopped, with the key it was at: the one before the `=`, or, where the key
/// itself is at fault, what stands there, if need be the whole line.
fn fault(text: &str, error: &toml::de::Error) -> ModelsError {
    let is_key = |c: char| c.is_alphanumeric() || "_-.\"".contains(c);
    let start = error.span().map_or(0, |span| span.start);
    let before = text.get(..start).unwrap_or_default();
    let here = text.get(start..).unwrap_or_default();
    let key = match before.trim_end_matches([' ', '\t']).strip_suffix('=') {
        Some(assigned) => {
            let assigned = assigned.trim_end();
            &assigned[assigned.trim_end_matches(is_key).len()..]
        }
        None => {
            let here = here.trim_start_matches('[');
            let rest = here.trim_start_matches(is_key);
            &here[..here.len() - rest.len()]
        }
    };
    let line = line(text, start);
    let whole = || text.lines().nth(line - 1).unwrap_or_default().trim();
    ModelsError::Toml {
        line,
        key: if key.is_empty() { whole() } else { key }.chars().take(40).collect(),
        message: error.message().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Models;
    use super::*;

    fn refused(text: &str) -> String {
        let mut models = Models::embedded();
        let error = models.extend_from_toml(text).expect_err(text).to_string();
        assert_eq!(models, Models::embedded(), "a refused text changes nothing");
        error
    }

    #[test]
    fn an_entry_of_the_same_name_is_changed_only_where_it_says_so() {
        let mut models = Models::embedded();
        let before = models.find("claude-opus-5.5").unwrap().clone();
        let text = "[[model]]\nname = \"claude-opus-5.5\"\nfactor = 1.3\ncache = { minimum = 512 }";
        models.extend_from_toml(text).unwrap();
        let expected = Model {
            tokenizer: Tokenizer::estimate(1.3),
            cache: CacheRules { minimum: 512, ..before.cache },
            ..before
        };
        assert_eq!(models.find("claude-opus-5.5"), Some(&expected));
        assert_eq!(models.iter().count(), Models::embedded().iter().count());
    }

    #[test]
    fn a_name_spelt_with_dashes_is_the_entry_spelt_with_dots() {
        let mut models = Models::embedded();
        let text = "[[model]]\nname = \"Claude-Opus-5-5\"\nfactor = 1.3";
        models.extend_from_toml(text).unwrap();
        let model = models.find("claude-opus-5.5").unwrap();
        assert_eq!((model.tokenizer, model.context), (Tokenizer::estimate(1.3), Some(1_000_000)));
    }

    #[test]
    fn a_new_entry_starts_from_what_it_is_like() {
        let mut models = Models::embedded();
        let text = r#"
            [[model]]
            name = "house"
            like = "gemini"
            class = "local"
            price = { input = 1, output = 2 }
            vocabulary = "cl100k_base"
            prefixes = ["house"]
        "#;
        models.extend_from_toml(text).unwrap();
        let expected = Model {
            name: "house".into(),
            prefixes: vec!["house".into()],
            class: Class::Local,
            prices: Some(Prices { input: 1.0, output: 2.0, long: None }),
            tokenizer: Tokenizer::CL100K,
            source: None,
            ..models.find("gemini").unwrap().clone()
        };
        assert_eq!(models.find("house-2"), Some(&expected));
    }

    #[test]
    fn an_entry_that_is_like_nothing_promises_nothing() {
        let mut models = Models::default();
        models.extend_from_toml("[[model]]\nname = \"x\"").unwrap();
        assert_eq!(models.find("x"), Some(&Model { name: "x".into(), ..blank() }));
    }

    #[test]
    fn an_error_names_the_line_and_the_key() {
        for (text, start) in [
            (
                "[[model]]\nname = \"x\"\nprise = 1",
                "line 3, `prise`: unknown field `prise`, expected",
            ),
            ("modle = 1", "line 1, `modle`: unknown field `modle`"),
            ("[[model]]\nname = \"x\"\ncontext = \"big\"", "line 3, `context`: invalid type"),
            ("[[model]]\nname = \"x\"\ncache = { read = \"no\" }", "line 3, `read`: invalid type"),
            ("[[model]]\nname = \"x\"\ncontext = -1", "line 3, `context`: "),
            ("[[model]]\nname = \"x\"\nprovider = \"acme\"", "line 3, `provider`: unknown variant"),
            ("[[model]]\n\nclass = \"local\"", "line 1, `model`: missing field `name`"),
            ("[[model]]\nname = ", "line 2, `name`: "),
            (
                "[[model]]\nname = \"x\"\nprice = { input = 1 }",
                "line 3, `price`: missing field `output`",
            ),
        ] {
            let error = refused(text);
            assert!(error.starts_with(start), "{error}");
        }
    }

    #[test]
    fn a_value_that_makes_no_sense_is_refused() {
        let entry = |rest: &str| refused(&format!("[[model]]\nname = \"x\"\n{rest}"));
        assert_eq!(refused("[[model]]\nname = \" \""), "line 2, `name`: expected a model's id");
        assert_eq!(entry("like = \"y\""), "line 3, `like`: expected the name of an entry above");
        assert_eq!(
            entry("price = { input = -1, output = 1 }"),
            "line 3, `price`: expected prices of 0 or more"
        );
        assert_eq!(
            entry("cache = { read = nan }"),
            "line 3, `cache`: expected multiples of the input price, 0 or more"
        );
        assert_eq!(
            entry("order = [\"tools\", \"tools\", \"system\"]"),
            "line 3, `order`: expected each of tools, system and messages once"
        );
        assert_eq!(entry("factor = 0"), "line 3, `factor`: expected a number above 0");
        assert!(entry("vocabulary = \"o200k_base\"\nfactor = 1.1").starts_with("line 4, `factor`"));
        assert!(entry("prefixes = [\"\"]").starts_with("line 3, `prefixes`"));
    }

    #[test]
    fn no_text_makes_the_parser_panic() {
        let text = include_str!("../../data/models.toml");
        for (end, _) in text.char_indices().step_by(97) {
            let _ = Models::default().extend_from_toml(&text[..end]);
        }
        for text in
            ["", "=", "é = 1", "\u{0}", "[[model]]\nname = \"é\"\nä = 1", "[[[", "x = \"\"\""]
        {
            let _ = Models::default().extend_from_toml(text);
        }
    }
}
