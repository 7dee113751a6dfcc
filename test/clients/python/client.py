# An application with an unmodified sentry-sdk: reads a step a line, prints a line with what the SDK returned.
import json, os, sys
import sentry_sdk

lifecycle = os.environ.get("TRACE_LIFECYCLE")
options = {"trace_lifecycle": lifecycle} if lifecycle else {}
sentry_sdk.init(dsn=os.environ["DSN"], traces_sample_rate=1, enable_logs=True, **options)


def exception(step):
    try:
        raise ValueError(step["text"])
    except ValueError as error:
        return {"id": sentry_sdk.capture_exception(error)}


def message(step):
    return {"id": sentry_sdk.capture_message(step["text"])}


def log(step):
    sentry_sdk.logger.info(step["text"])
    return {}


def trace(step):
    if lifecycle == "stream":
        with sentry_sdk.traces.start_span(name=step["name"]) as span:
            with sentry_sdk.traces.start_span(name=step["child"]):
                return {"trace": span.trace_id}
    with sentry_sdk.start_transaction(name=step["name"]) as transaction:
        with sentry_sdk.start_span(name=step["child"]):
            return {"trace": transaction.trace_id}


def flush(step):
    sentry_sdk.flush(10)
    return {}


STEPS = {"exception": exception, "message": message, "log": log, "trace": trace, "flush": flush}
for line in sys.stdin:
    step = json.loads(line)
    print(json.dumps(STEPS[step["do"]](step)), flush=True)
