//! An application with an unmodified sentry-native: reads a step a line, prints a line with what the SDK returned.
use sentry_contrib_native::{Event, Level, Options};
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::io::BufRead;

fn id_of(event: Event) -> Value {
    json!({ "id": event.capture().to_plain().replace('-', "") })
}

fn run(step: &Value) -> Value {
    let text = || step["text"].as_str().expect("a text");
    match step["do"].as_str().expect("a step") {
        "exception" => {
            let mut event = Event::new();
            event.add_exception(BTreeMap::from([("type", "Error"), ("value", text())]), 0);
            id_of(event)
        }
        "message" => id_of(Event::new_message(Level::Info, None, text())),
        // This version has no flush, no traces and no logs.
        _ => json!({}),
    }
}

fn main() {
    let mut options = Options::new();
    options.set_dsn(std::env::var("DSN").expect("DSN is set"));
    options.set_database_path(std::env::temp_dir().join(format!("sentry-native-{}", std::process::id())));
    let _guard = options.init().expect("the SDK begins");
    for line in std::io::stdin().lock().lines() {
        let step = serde_json::from_str(&line.expect("a line")).expect("a step");
        println!("{}", run(&step));
    }
}
