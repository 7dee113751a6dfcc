//! An application with unmodified exporters of OpenTelemetry: reads a step a line, prints a line with what it made.
use opentelemetry::logs::{AnyValue, LogRecord, Logger, LoggerProvider, Severity};
use opentelemetry::trace::{
    Link, Span, SpanContext, SpanKind, Status, TraceContextExt, Tracer, TracerProvider,
};
use opentelemetry::{Array, Context, InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_otlp::{LogExporter, SpanExporter};
use opentelemetry_sdk::logs::SdkLoggerProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use opentelemetry_sdk::Resource;
use serde_json::{json, Value as Json};
use std::io::{stdin, BufRead};

fn array_of(list: &[Json]) -> Array {
    match &list[0] {
        Json::String(_) => Array::String(
            list.iter()
                .map(|one| StringValue::from(one.as_str().unwrap().to_owned()))
                .collect(),
        ),
        Json::Bool(_) => Array::Bool(list.iter().map(|one| one.as_bool().unwrap()).collect()),
        first if first.is_i64() => {
            Array::I64(list.iter().map(|one| one.as_i64().unwrap()).collect())
        }
        _ => Array::F64(list.iter().map(|one| one.as_f64().unwrap()).collect()),
    }
}

fn value_of(value: &Json) -> Value {
    match value {
        Json::String(text) => Value::String(text.clone().into()),
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Array(list) => Value::Array(array_of(list)),
        number if number.is_i64() => Value::I64(number.as_i64().unwrap()),
        number => Value::F64(number.as_f64().unwrap()),
    }
}

fn any_of(value: &Json) -> AnyValue {
    match value {
        Json::String(text) => AnyValue::String(text.clone().into()),
        Json::Bool(flag) => AnyValue::Boolean(*flag),
        Json::Array(list) => AnyValue::ListAny(Box::new(list.iter().map(any_of).collect())),
        number if number.is_i64() => AnyValue::Int(number.as_i64().unwrap()),
        number => AnyValue::Double(number.as_f64().unwrap()),
    }
}

fn attributes_of(step: &Json) -> Vec<KeyValue> {
    let attributes = step["attributes"].as_object().unwrap();
    attributes
        .iter()
        .map(|(key, value)| KeyValue::new(key.clone(), value_of(value)))
        .collect()
}

fn text<'a>(step: &'a Json, name: &str) -> &'a str {
    step[name].as_str().unwrap()
}

struct App {
    spans: SdkTracerProvider,
    logs: SdkLoggerProvider,
}

impl App {
    fn tracer(&self) -> opentelemetry_sdk::trace::SdkTracer {
        self.spans.tracer_with_scope(
            InstrumentationScope::builder("clients")
                .with_version("7")
                .build(),
        )
    }

    fn start(&self, name: String, kind: SpanKind, parent: Option<&SpanContext>) -> impl Span {
        let tracer = self.tracer();
        let builder = tracer.span_builder(name).with_kind(kind);
        let context = match parent {
            Some(parent) => Context::new().with_remote_span_context(parent.clone()),
            None => Context::new(),
        };
        builder.start_with_context(&tracer, &context)
    }

    /// A span with a link, an event, an error and a child.
    fn make_span(&self, step: &Json) -> Json {
        let mut linked = self.start("linked".into(), SpanKind::Internal, None);
        linked.end();
        let linked = linked.span_context().clone();
        let tracer = self.tracer();
        let mut span = tracer
            .span_builder(text(step, "name").to_owned())
            .with_kind(SpanKind::Server)
            .with_attributes(attributes_of(step))
            .with_links(vec![Link::new(
                linked.clone(),
                vec![KeyValue::new("why", "retry")],
                0,
            )])
            .start_with_context(&tracer, &Context::new());
        span.add_event("sold out", attributes_of(step));
        span.set_status(Status::error("no stock"));
        let made = span.span_context().clone();
        let mut child = self.start(text(step, "child").to_owned(), SpanKind::Client, Some(&made));
        child.end();
        span.end();
        json!({
            "trace": made.trace_id().to_string(),
            "span": made.span_id().to_string(),
            "child": child.span_context().span_id().to_string(),
            "linkedTrace": linked.trace_id().to_string(),
            "linkedSpan": linked.span_id().to_string(),
        })
    }

    fn make_many(&self, step: &Json) -> Json {
        let mut first = self.start("many".into(), SpanKind::Internal, None);
        let context = first.span_context().clone();
        for at in 1..step["count"].as_i64().unwrap() {
            self.start(format!("many {at}"), SpanKind::Internal, Some(&context))
                .end();
        }
        first.end();
        json!({ "trace": context.trace_id().to_string() })
    }

    fn make_log(&self, step: &Json) -> Json {
        let mut span = self.start("logs".into(), SpanKind::Internal, None);
        let context = span.span_context().clone();
        let logger = self.logs.logger_with_scope(
            InstrumentationScope::builder("clients")
                .with_version("7")
                .build(),
        );
        let mut record = logger.create_log_record();
        record.set_timestamp(std::time::SystemTime::now());
        record.set_body(AnyValue::String(text(step, "text").to_owned().into()));
        record.set_severity_number(Severity::Warn);
        record.set_severity_text("WARN");
        record.set_trace_context(
            context.trace_id(),
            context.span_id(),
            Some(context.trace_flags()),
        );
        for (key, value) in step["attributes"].as_object().unwrap() {
            record.add_attribute(key.clone(), any_of(value));
        }
        logger.emit(record);
        span.end();
        json!({ "trace": context.trace_id().to_string(), "span": context.span_id().to_string() })
    }

    fn flush(&self) -> Json {
        let _ = self.spans.force_flush();
        let _ = self.logs.force_flush();
        json!({})
    }

    fn run(&self, step: &Json) -> Json {
        match text(step, "do") {
            "span" => self.make_span(step),
            "many" => self.make_many(step),
            "log" => self.make_log(step),
            _ => self.flush(),
        }
    }
}

fn main() {
    let shop = Resource::builder()
        .with_attributes([
            KeyValue::new("service.name", "shop"),
            KeyValue::new("service.version", "1.2.3"),
            KeyValue::new("deployment.environment.name", "test"),
        ])
        .build();
    let span_exporter = SpanExporter::builder().with_http().build().unwrap();
    let log_exporter = LogExporter::builder().with_http().build().unwrap();
    let app = App {
        spans: SdkTracerProvider::builder()
            .with_resource(shop.clone())
            .with_batch_exporter(span_exporter)
            .build(),
        logs: SdkLoggerProvider::builder()
            .with_resource(shop)
            .with_batch_exporter(log_exporter)
            .build(),
    };
    for line in stdin().lock().lines() {
        let step: Json = serde_json::from_str(&line.unwrap()).unwrap();
        println!("{}", app.run(&step));
    }
}
