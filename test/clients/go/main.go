// An application with an unmodified sentry-go: reads a step a line, prints a line with what the SDK returned.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"github.com/getsentry/sentry-go"
)

type step struct{ Do, Text, Name, Child string }
type answer struct {
	Id    *sentry.EventID `json:"id,omitempty"`
	Trace string          `json:"trace,omitempty"`
}

func trace(wanted step) answer {
	span := sentry.StartTransaction(context.Background(), wanted.Name)
	span.StartChild("task", sentry.WithDescription(wanted.Child)).Finish()
	span.Finish()
	return answer{Trace: span.TraceID.String()}
}

func do(wanted step) answer {
	switch wanted.Do {
	case "exception":
		return answer{Id: sentry.CaptureException(errors.New(wanted.Text))}
	case "message":
		return answer{Id: sentry.CaptureMessage(wanted.Text)}
	case "trace":
		return trace(wanted)
	case "log":
		sentry.NewLogger(context.Background()).Info().Emit(wanted.Text)
		return answer{}
	case "flush":
		sentry.Flush(10 * time.Second)
		return answer{}
	}
	panic("no such step: " + wanted.Do)
}

func main() {
	options := sentry.ClientOptions{Dsn: os.Getenv("DSN"), EnableTracing: true, TracesSampleRate: 1}
	if err := sentry.Init(options); err != nil {
		panic(err)
	}
	steps, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var wanted step
		if err := steps.Decode(&wanted); err == io.EOF {
			return
		} else if err != nil {
			panic(err)
		}
		if err := answers.Encode(do(wanted)); err != nil {
			panic(err)
		}
	}
}
