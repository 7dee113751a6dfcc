//! An application with an unmodified sentry: reads a step a line, prints a line with what the SDK returned.
use serde_json::{json, Value};
use std::io::BufRead;
use std::time::Duration;

fn trace(step: &Value) -> Value {
    let context = sentry::TransactionContext::new(text(step, "name"), "task");
    let transaction = sentry::start_transaction(context);
    transaction.start_child("task", text(step, "child")).finish();
    let trace = transaction.get_trace_context().trace_id.to_string();
    transaction.finish();
    json!({ "trace": trace })
}

fn text<'a>(step: &'a Value, name: &str) -> &'a str {
    step[name].as_str().expect("every field is a string")
}

fn run(step: &Value) -> Value {
    match text(step, "do") {
        "exception" => {
            let error = std::io::Error::other(text(step, "text"));
            json!({ "id": sentry::capture_error(&error).simple().to_string() })
        }
        "message" => {
            let id = sentry::capture_message(text(step, "text"), sentry::Level::Info);
            json!({ "id": id.simple().to_string() })
        }
        "log" => {
            sentry::logger_info!("{}", text(step, "text"));
            json!({})
        }
        "trace" => trace(step),
        "flush" => {
            let client = sentry::Hub::current().client().expect("the SDK has begun");
            client.flush(Some(Duration::from_secs(10)));
            json!({})
        }
        other => panic!("no such step: {other}"),
    }
}

fn main() {
    let dsn = std::env::var("DSN").expect("DSN is set");
    let options = sentry::ClientOptions::default().traces_sample_rate(1.0);
    let _guard = sentry::init((dsn, options));
    for line in std::io::stdin().lock().lines() {
        let step = serde_json::from_str(&line.expect("a line")).expect("a step");
        println!("{}", run(&step));
    }
}
