# Applications of Django, FastAPI and Celery with an unmodified sentry-sdk, which finds the framework by itself. FRAMEWORK says which.
# Each step is a request or a task: what the SDK reports is what the framework's integration saw. Reads a step a line, prints a line.
import json, os, queue, sys
import sentry_sdk

sentry_sdk.init(dsn=os.environ["DSN"], traces_sample_rate=1, enable_logs=True)


def work(step):
    """Runs within a request or a task."""
    if step["do"] == "exception":
        raise ValueError(step["text"])
    if step["do"] == "message":
        return {"id": sentry_sdk.capture_message(step["text"])}
    if step["do"] == "log":
        sentry_sdk.logger.info(step["text"])
        return {}
    sentry_sdk.get_current_scope().set_transaction_name(step["name"])
    with sentry_sdk.start_span(name=step["child"]) as span:
        return {"trace": span.trace_id}


# What the integration reports has no other way back to the program.
seen = []


def django():
    from django.conf import settings

    settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="x", MIDDLEWARE=[])
    import httpx
    from django.core.wsgi import get_wsgi_application
    from django.http import JsonResponse
    from django.urls import path

    globals()["urlpatterns"] = [path("work", lambda request: JsonResponse(work(json.loads(request.body))))]
    transport = httpx.WSGITransport(app=get_wsgi_application(), raise_app_exceptions=False)
    client = httpx.Client(transport=transport, base_url="http://shop")

    def ask(step):
        answer = client.post("/work", json=step)
        return answer.json() if answer.status_code == 200 else {}

    return ask


def fastapi():
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    app = FastAPI()
    app.post("/work")(work_of_fastapi)
    client = TestClient(app, raise_server_exceptions=False)

    def ask(step):
        answer = client.post("/work", json=step)
        return answer.json() if answer.status_code == 200 else {}

    return ask


def work_of_fastapi(step: dict):
    return work(step)


def celery():
    from celery import Celery, signals
    from celery.contrib.testing.worker import start_worker

    app = Celery("shop", broker="memory://")
    done = queue.Queue()
    signals.task_success.connect(lambda result, **_: done.put(result), weak=False)
    signals.task_failure.connect(lambda **_: done.put({}), weak=False)
    task = app.task(work, name="work")
    # A worker in a thread of this program, for as long as the program runs.
    globals()["worker"] = start_worker(app, perform_ping_check=False, pool="solo")
    worker.__enter__()
    return lambda step: task.delay(step) and done.get(timeout=30)


def remember(event, hint):
    seen.append(event["event_id"])
    return event


sentry_sdk.get_client().options["before_send"] = remember
run = {"django": django, "fastapi": fastapi, "celery": celery}[os.environ["FRAMEWORK"]]()
for line in sys.stdin:
    step = json.loads(line)
    if step["do"] == "flush":
        sentry_sdk.flush(10)
        answer = {}
    elif step["do"] == "exception":
        seen.clear()
        run(step)
        answer = {"id": seen[-1] if seen else None}
    else:
        answer = run(step)
    print(json.dumps(answer), flush=True)
