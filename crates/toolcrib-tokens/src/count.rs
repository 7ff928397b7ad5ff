//! Counting tokens.

use std::fmt;
use std::iter::Sum;
use std::ops::Add;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use tiktoken::CoreBpe;

use crate::Models;

/// A tokenizer vocabulary embedded in the program; decoded when it is first used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Vocabulary {
    /// OpenAI's models from gpt-4o to gpt-5.6, and gpt-oss.
    O200kBase,
    /// OpenAI's gpt-4 and gpt-3.5.
    Cl100kBase,
}

impl Vocabulary {
    fn count(self, text: &str) -> u64 {
        static O200K: LazyLock<CoreBpe> = LazyLock::new(tiktoken::encoding::o200k_base);
        static CL100K: LazyLock<CoreBpe> = LazyLock::new(tiktoken::encoding::cl100k_base);
        let encoding = match self {
            Vocabulary::O200kBase => &O200K,
            Vocabulary::Cl100kBase => &CL100K,
        };
        encoding.count(text) as u64
    }
}

/// How the tokens of a text are counted for a model: exactly, or by a documented estimate.
///
/// Anthropic, Google and others do not publish their vocabularies, and nothing else counts
/// exactly what they bill. The estimate is the `o200k_base` count times a factor. The factor
/// is 1.0 unless the model table says otherwise, which makes it a stand-in and not a
/// measurement: good for comparing one plan with another, and marked `~` wherever it is shown.
/// Whoever has the provider's own usage figures can put the measured factor into the table.
///
/// Text that spells a special token, such as `<|endoftext|>`, is counted as the ordinary text
/// it is: that is how a provider reads it inside a prompt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tokenizer(Method);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Method {
    Exact(Vocabulary),
    Estimate { factor: f64 },
}

impl Tokenizer {
    /// Exact counts with `o200k_base`.
    pub const O200K: Tokenizer = Tokenizer::exact(Vocabulary::O200kBase);
    /// Exact counts with `cl100k_base`.
    pub const CL100K: Tokenizer = Tokenizer::exact(Vocabulary::Cl100kBase);

    /// Counts exactly, with this vocabulary.
    pub const fn exact(vocabulary: Vocabulary) -> Self {
        Tokenizer(Method::Exact(vocabulary))
    }

    /// Estimates: the `o200k_base` count times `factor`.
    pub const fn estimate(factor: f64) -> Self {
        Tokenizer(Method::Estimate { factor })
    }

    /// The tokenizer the table names for a model; for a model it does not know, an estimate
    /// with factor 1.
    pub fn for_model(models: &Models, name: &str) -> Self {
        models.find(name).map_or(Tokenizer::estimate(1.0), |model| model.tokenizer)
    }

    /// Counts the tokens of a text.
    pub fn count(&self, text: &str) -> TokenCount {
        match self.0 {
            Method::Exact(vocabulary) => TokenCount { tokens: vocabulary.count(text), exact: true },
            Method::Estimate { factor } => estimated(Vocabulary::O200kBase.count(text), factor),
        }
    }

    /// The count of a text whose `o200k_base` count is known already; `None` where another
    /// vocabulary counts, so that the text itself is needed.
    pub fn from_o200k(&self, tokens: u64) -> Option<TokenCount> {
        match self.0 {
            Method::Exact(Vocabulary::O200kBase) => Some(TokenCount { tokens, exact: true }),
            Method::Exact(Vocabulary::Cl100kBase) => None,
            Method::Estimate { factor } => Some(estimated(tokens, factor)),
        }
    }

    /// Whether the counts are exact.
    pub fn is_exact(&self) -> bool {
        matches!(self.0, Method::Exact(_))
    }
}

fn estimated(o200k: u64, factor: f64) -> TokenCount {
    TokenCount { tokens: (o200k as f64 * factor).round() as u64, exact: false }
}

/// A number of tokens, and whether it was counted or estimated.
///
/// It is shown as `1,234`, or as `~1,234` if it is an estimate. A sum is exact if all its parts
/// are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenCount {
    /// How many.
    pub tokens: u64,
    /// Counted with the model's own vocabulary.
    pub exact: bool,
}

impl TokenCount {
    /// No tokens, exactly: what a sum starts from.
    pub const ZERO: TokenCount = TokenCount { tokens: 0, exact: true };
}

impl Default for TokenCount {
    fn default() -> Self {
        TokenCount::ZERO
    }
}

impl Add for TokenCount {
    type Output = TokenCount;

    fn add(self, other: TokenCount) -> TokenCount {
        TokenCount {
            tokens: self.tokens.saturating_add(other.tokens),
            exact: self.exact && other.exact,
        }
    }
}

impl Sum for TokenCount {
    fn sum<I: Iterator<Item = TokenCount>>(counts: I) -> TokenCount {
        counts.fold(TokenCount::ZERO, Add::add)
    }
}

impl fmt::Display for TokenCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.exact { "" } else { "~" };
        f.pad(&format!("{mark}{}", grouped(self.tokens)))
    }
}

/// Writes a number with a comma between groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_follows_from_that_of_the_common_vocabulary_or_not_at_all() {
        let text = "fn main() { println!(\"42\"); }";
        let known = Tokenizer::O200K.count(text).tokens;
        for tokenizer in [Tokenizer::O200K, Tokenizer::estimate(1.0), Tokenizer::estimate(1.37)] {
            assert_eq!(tokenizer.from_o200k(known), Some(tokenizer.count(text)));
        }
        assert_eq!(Tokenizer::CL100K.from_o200k(known), None);
    }

    const SCHEMA: &str = r#"{"type":"object","properties":{"owner":{"type":"string","description":"Repository owner"},"repo":{"type":"string"},"labels":{"type":"array","items":{"type":"string"}},"state":{"enum":["open","closed",null]}},"required":["owner","repo"],"additionalProperties":false}"#;

    /// Text of the kinds that reach a tool's description, schema or result.
    fn diverse() -> Vec<String> {
        let mut texts: Vec<String> = [
            "",
            " ",
            "hello world",
            "  leading and trailing  ",
            "I'LL don't we've they're",
            "mcp__github__create_pull_request_review",
            "getHTTPResponseCodeFromURL XMLHttpRequest2",
            SCHEMA,
            "{\n  \"a\": [1, 2.5e-10, -3],\n  \"b\": {\"c\": null}\n}\n",
            "fn main() {\n    let x = vec![1u8; 10];\n\tprintln!(\"{x:?}\");\n}\n",
            "SELECT * FROM t WHERE a <> 'x''y' AND b BETWEEN 1 AND 10; -- 100%",
            "https://example.com/a/b?c=d&e=%20f#g",
            "C:\\Users\\me\\file.txt and /usr/local/bin",
            "1234567890 12345 1,234,567.89 2026-10-13T12:34:56Z",
            "你好，世界。今天天气很好。",
            "日本語のテキストとカタカナ、そして漢字",
            "안녕하세요 세계",
            "Привет, мир! Ещё одна строка.",
            "مرحبا بالعالم",
            "שלום עולם",
            "नमस्ते दुनिया",
            "สวัสดีชาวโลก",
            "👩‍👩‍👧‍👦 family 🇨🇭 flag 🏳️‍🌈 👍🏽",
            "e\u{301} vs \u{e9}; a\u{300}\u{301}\u{302}\u{303}",
            "\u{0}\u{1}\u{7}\u{8}\u{1b}[31mred\u{1b}[0m\u{7f}\u{85}",
            "\u{feff}bom \u{200b}zero\u{200d}width \u{202e}rtl \u{a0}nbsp",
            "a\r\nb\r\n\r\n\tc\n\n\n   \n  d   ",
            "<|endoftext|> and <|fim_prefix|>x<|endofprompt|>",
            "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\n-----END KEY-----",
            "ⅷ ² ½ ① ﷽ ǅ ʰ 𝕳𝖊𝖑𝖑𝖔",
            "naïve café Zürich Straße ĲSSELMEER İstanbul",
            "....!!!???----____====~~~~ ((([[[{{{",
        ]
        .map(String::from)
        .to_vec();
        texts.push("word ".repeat(20_000));
        texts.push(SCHEMA.repeat(400));
        texts.push("\u{1f9f0}".repeat(25_000));
        texts
    }

    #[test]
    fn counts_agree_with_an_independent_tokenizer() {
        for text in diverse() {
            let shown: String = text.chars().take(40).collect();
            let o200k = bpe_openai::o200k_base().count(text.as_str()) as u64;
            let cl100k = bpe_openai::cl100k_base().count(text.as_str()) as u64;
            assert_eq!(Tokenizer::O200K.count(&text).tokens, o200k, "o200k_base: {shown:?}");
            assert_eq!(Tokenizer::CL100K.count(&text).tokens, cl100k, "cl100k_base: {shown:?}");
        }
    }

    #[test]
    fn known_texts_have_their_known_counts() {
        let count =
            |text| (Tokenizer::O200K.count(text).tokens, Tokenizer::CL100K.count(text).tokens);
        assert_eq!(count(""), (0, 0));
        assert_eq!(count("hello world"), (2, 2));
        assert_eq!(count("tiktoken is great!"), (6, 6));
        assert_eq!(count("お誕生日おめでとう"), (8, 9));
    }

    #[test]
    fn the_text_of_a_special_token_is_ordinary_text() {
        let count = Tokenizer::O200K.count("<|endoftext|>");
        assert!(count.tokens > 1, "{count}");
    }

    #[test]
    fn a_hundred_kilobytes_without_a_space_are_counted() {
        for text in ["a".repeat(100_000), " ".repeat(100_000), "字".repeat(34_000)] {
            assert!(Tokenizer::O200K.count(&text).tokens > 0);
            assert!(Tokenizer::CL100K.count(&text).tokens > 0);
        }
    }

    #[test]
    fn an_estimate_scales_the_o200k_count_and_says_so() {
        let text = "one two three four five six seven eight nine ten";
        let exact = Tokenizer::O200K.count(text).tokens;
        assert_eq!(exact, 10);
        let estimate = Tokenizer::estimate(1.26).count(text);
        assert_eq!(estimate, TokenCount { tokens: 13, exact: false });
    }

    #[test]
    fn a_meaningless_factor_does_not_panic() {
        for factor in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            Tokenizer::estimate(factor).count("hello world");
        }
    }

    #[test]
    fn the_table_chooses_the_tokenizer_and_an_unknown_model_is_estimated() {
        let models = Models::embedded();
        assert_eq!(Tokenizer::for_model(&models, "gpt-5.6-sol"), Tokenizer::O200K);
        assert_eq!(Tokenizer::for_model(&models, "gpt-4-0613"), Tokenizer::CL100K);
        assert_eq!(Tokenizer::for_model(&models, "claude-opus-5-5"), Tokenizer::estimate(1.0));
        assert_eq!(Tokenizer::for_model(&models, "no-such-model"), Tokenizer::estimate(1.0));
    }

    #[test]
    fn a_sum_is_exact_only_if_its_parts_are() {
        let exact = TokenCount { tokens: 1_000, exact: true };
        let rough = TokenCount { tokens: 234, exact: false };
        assert_eq!([exact, exact].into_iter().sum::<TokenCount>().to_string(), "2,000");
        assert_eq!((exact + rough).to_string(), "~1,234");
        assert_eq!(std::iter::empty::<TokenCount>().sum::<TokenCount>().to_string(), "0");
    }

    #[test]
    fn a_count_is_kept_in_a_form_that_stays() {
        let count = TokenCount { tokens: 1_234, exact: false };
        let kept = r#"{"tokens":1234,"exact":false}"#;
        assert_eq!(serde_json::to_string(&count).unwrap(), kept);
        assert_eq!(serde_json::from_str::<TokenCount>(kept).unwrap(), count);
    }

    #[test]
    fn numbers_are_grouped_in_threes_and_fill_a_column() {
        let shown = [0, 7, 999, 1_000, 12_345, 1_234_567, u64::MAX].map(grouped);
        let expected =
            ["0", "7", "999", "1,000", "12,345", "1,234,567", "18,446,744,073,709,551,615"];
        assert_eq!(shown, expected);
        assert_eq!(format!("{:>8}", TokenCount { tokens: 1_234, exact: false }), "  ~1,234");
    }
}
