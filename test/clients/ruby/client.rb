# An application with an unmodified sentry-ruby 5.3.0 of Debian 12: reads a step a line, prints a line with what the SDK returned.
require "json"
require "logger"
require "sentry-ruby"

Sentry.init do |config|
  config.dsn = ENV.fetch("DSN")
  config.traces_sample_rate = 1.0
  # This version has no flush; without threads it has sent when it returns.
  config.background_worker_threads = 0
  config.logger = Logger.new($stderr)
end

def exception(step)
  raise ArgumentError, step["text"]
rescue ArgumentError => error
  { id: Sentry.capture_exception(error)&.event_id }
end

def trace(step)
  transaction = Sentry.start_transaction(name: step["name"], op: "task")
  transaction.start_child(op: "task", description: step["child"]).finish
  transaction.finish
  { trace: transaction.trace_id }
end

STDIN.each_line do |line|
  step = JSON.parse(line)
  answer =
    case step["do"]
    when "exception" then exception(step)
    when "message" then { id: Sentry.capture_message(step["text"])&.event_id }
    when "trace" then trace(step)
    else {}
    end
  puts JSON.generate(answer)
  STDOUT.flush
end
