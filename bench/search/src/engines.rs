//! The peers, each used as its documentation shows.

use bm25::{Language, SearchEngine, SearchEngineBuilder};
use tantivy::collector::TopDocs;
use tantivy::query::QueryParser;
use tantivy::schema::{Field, IndexRecordOption, Schema, TextFieldIndexing, TextOptions};
use tantivy::{Index, IndexWriter, Searcher, TantivyDocument};
use toolcrib_core::Corpus;

use crate::LIMIT;
use crate::tools::Tools;

/// All fields in one text, as it knows no others.
pub(crate) struct Bm25(SearchEngine<u32>);

impl Bm25 {
    pub(crate) fn build(tools: &Tools) -> Self {
        let documents = tools
            .each()
            .zip(0_u32..)
            .map(|(tool, id)| bm25::Document::new(id, tool.fields.join(" ")));
        let engine = SearchEngineBuilder::with_documents(Language::English, documents);
        Self(engine.build())
    }

    pub(crate) fn search(&self, query: &str) -> usize {
        self.0.search(query, LIMIT).len()
    }
}

/// An index in memory with a text field for each of ours, weighted alike.
pub(crate) struct Tantivy {
    searcher: Searcher,
    parser: QueryParser,
}

/// What one indexing thread may use before it writes a segment.
const ARENA_BYTES: usize = 200_000_000;

impl Tantivy {
    pub(crate) fn build(tools: &Tools) -> tantivy::Result<Self> {
        let ours = Corpus::TUNING.fields;
        let mut schema = Schema::builder();
        let indexing = TextFieldIndexing::default()
            .set_tokenizer("en_stem")
            .set_index_option(IndexRecordOption::WithFreqs);
        let fields: Vec<Field> = ours
            .list()
            .iter()
            .map(|field| {
                let options = TextOptions::default().set_indexing_options(indexing.clone());
                schema.add_text_field(&field.name.replace(' ', "_"), options)
            })
            .collect();
        let index = Index::create_in_ram(schema.build());
        let mut writer: IndexWriter = index.writer_with_num_threads(1, ARENA_BYTES)?;
        for tool in tools.each() {
            let mut document = TantivyDocument::default();
            for (field, text) in fields.iter().zip(&tool.fields) {
                document.add_text(*field, text);
            }
            writer.add_document(document)?;
        }
        writer.commit()?;
        writer.wait_merging_threads()?;
        let searcher = index.reader()?.searcher();
        let mut parser = QueryParser::for_index(&index, fields.clone());
        for (field, of_ours) in fields.iter().zip(ours.list()) {
            parser.set_field_boost(*field, of_ours.weight);
        }
        Ok(Self { searcher, parser })
    }

    pub(crate) fn search(&self, query: &str) -> tantivy::Result<usize> {
        // Marks that its query language would read as something else than text.
        let words: String =
            query.chars().map(|c| if c.is_alphanumeric() { c } else { ' ' }).collect();
        let (query, _) = self.parser.parse_query_lenient(&words.to_lowercase());
        let found = self.searcher.search(&query, &TopDocs::with_limit(LIMIT).order_by_score())?;
        Ok(found.len())
    }
}
