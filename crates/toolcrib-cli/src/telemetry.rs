//! `[gateway.telemetry]`: calls as OpenTelemetry spans, sent to a collector.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{
    Span as _, SpanContext, SpanKind, Status, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};
use toolcrib::gateway::{TracedCall, TracedSpan, Tracer};

use crate::args;
use crate::config::Collector;
use crate::output::Misuse;

/// Where it is configured.
const WHERE: &str = "[gateway.telemetry] can't be used";

/// How long the last spans may take to leave.
const LAST_SPANS: Duration = Duration::from_secs(3);

/// Spans on their way to a collector.
pub(crate) struct Telemetry(SdkTracerProvider);

impl Telemetry {
    /// Begins to send, if the configuration says where to.
    pub(crate) fn open(context: &args::Context) -> anyhow::Result<Option<Self>> {
        let collector = context.config.collector(&context.env);
        let collector = collector.map_err(|reason| Misuse::new(format!("{WHERE}: {reason}")))?;
        let Some(Collector { url, service_name, headers }) = collector else { return Ok(None) };
        let headers = headers.into_iter().collect();
        let exporter = SpanExporter::builder().with_http().with_endpoint(url).with_headers(headers);
        let exporter = exporter.build().context(WHERE)?;
        let resource = Resource::builder()
            .with_service_name(service_name)
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build());
        Ok(Some(Self(provider.build())))
    }

    /// What follows the calls.
    pub(crate) fn tracer(&self) -> Arc<dyn Tracer> {
        Arc::new(Calls(self.0.tracer("toolcrib")))
    }

    /// Sends what has not left yet. It waits for the collector, but not for long.
    pub(crate) fn shut_down(&self) {
        if let Err(error) = self.0.shutdown_with_timeout(LAST_SPANS) {
            tracing::warn!(%error, "the last spans did not reach the collector");
        }
    }
}

struct Calls(SdkTracer);

/// What a caller says of its trace.
struct Said<'a>(&'a TracedCall<'a>);

impl Extractor for Said<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            "traceparent" => self.0.parent,
            "tracestate" => self.0.state,
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}

impl Tracer for Calls {
    fn begin(&self, call: &TracedCall<'_>) -> Box<dyn TracedSpan> {
        let parent =
            TraceContextPropagator::new().extract_with_context(&Context::new(), &Said(call));
        let mut attributes = vec![
            KeyValue::new("mcp.method.name", "tools/call"),
            KeyValue::new("gen_ai.operation.name", "execute_tool"),
            KeyValue::new("gen_ai.tool.name", call.tool.to_owned()),
        ];
        let mut name = format!("tools/call {}", call.tool);
        if let Some(server) = call.server {
            name = format!("tools/call {server}/{}", call.tool);
            attributes.push(KeyValue::new("toolcrib.server", server.to_owned()));
        }
        let span =
            self.0.span_builder(name).with_kind(SpanKind::Client).with_attributes(attributes);
        Box::new(Call(span.start_with_context(&self.0, &parent)))
    }
}

/// One call. A span that is dropped ends then.
struct Call(Span);

impl TracedSpan for Call {
    fn traceparent(&self) -> Option<String> {
        let context: &SpanContext = self.0.span_context();
        let flags = context.trace_flags().to_u8();
        context
            .is_valid()
            .then(|| format!("00-{}-{}-{flags:02x}", context.trace_id(), context.span_id()))
    }

    fn end(mut self: Box<Self>, outcome: &'static str) {
        self.0.set_attribute(KeyValue::new("toolcrib.outcome", outcome));
        if outcome != "ok" {
            self.0.set_status(Status::error(outcome));
        }
        self.0.end();
    }
}
