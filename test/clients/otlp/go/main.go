// An application with unmodified exporters of OpenTelemetry: reads a step a line, prints a line with what it made.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

type step struct {
	Do, Name, Child, Text string
	Count                 int
	Attributes            map[string]any
}
type answer struct {
	Trace       string `json:"trace,omitempty"`
	Span        string `json:"span,omitempty"`
	Child       string `json:"child,omitempty"`
	LinkedTrace string `json:"linkedTrace,omitempty"`
	LinkedSpan  string `json:"linkedSpan,omitempty"`
}

func listOf[T any](list []any, convert func(any) T) []T {
	made := make([]T, len(list))
	for at, one := range list {
		made[at] = convert(one)
	}
	return made
}

func isWhole(value any) bool {
	number, isNumber := value.(float64)
	return isNumber && number == float64(int64(number))
}

// The step's attributes in the SDK's types. JSON has one type of numbers.
func attributesOf(values map[string]any) []attribute.KeyValue {
	made := []attribute.KeyValue{}
	for key, value := range values {
		switch value := value.(type) {
		case string:
			made = append(made, attribute.String(key, value))
		case bool:
			made = append(made, attribute.Bool(key, value))
		case float64:
			if isWhole(value) {
				made = append(made, attribute.Int64(key, int64(value)))
			} else {
				made = append(made, attribute.Float64(key, value))
			}
		case []any:
			switch value[0].(type) {
			case string:
				made = append(made, attribute.StringSlice(key, listOf(value, func(one any) string { return one.(string) })))
			case bool:
				made = append(made, attribute.BoolSlice(key, listOf(value, func(one any) bool { return one.(bool) })))
			default:
				if isWhole(value[0]) {
					made = append(made, attribute.Int64Slice(key, listOf(value, func(one any) int64 { return int64(one.(float64)) })))
				} else {
					made = append(made, attribute.Float64Slice(key, listOf(value, func(one any) float64 { return one.(float64) })))
				}
			}
		}
	}
	return made
}

func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

var (
	background = context.Background()
	shop       = resource.NewSchemaless(
		attribute.String("service.name", "shop"),
		attribute.String("service.version", "1.2.3"),
		attribute.String("deployment.environment.name", "test"),
	)
	spans = sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(must(otlptracehttp.New(background))), sdktrace.WithResource(shop),
	)
	logs = sdklog.NewLoggerProvider(
		sdklog.WithProcessor(sdklog.NewBatchProcessor(must(otlploghttp.New(background)))), sdklog.WithResource(shop),
	)
	tracer = spans.Tracer("clients", trace.WithInstrumentationVersion("7"))
	logger = logs.Logger("clients", log.WithInstrumentationVersion("7"))
)

func idsOf(span trace.Span) (string, string) {
	return span.SpanContext().TraceID().String(), span.SpanContext().SpanID().String()
}

// A span with a link, an event, an error and a child.
func makeSpan(wanted step) answer {
	attributes := attributesOf(wanted.Attributes)
	_, linked := tracer.Start(background, "linked")
	linked.End()
	link := trace.Link{SpanContext: linked.SpanContext(), Attributes: []attribute.KeyValue{attribute.String("why", "retry")}}
	within, span := tracer.Start(background, wanted.Name, trace.WithLinks(link),
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
	span.AddEvent("sold out", trace.WithAttributes(attributes...))
	span.SetStatus(codes.Error, "no stock")
	_, child := tracer.Start(within, wanted.Child, trace.WithSpanKind(trace.SpanKindClient))
	child.End()
	span.End()
	traceId, spanId := idsOf(span)
	linkedTrace, linkedSpan := idsOf(linked)
	_, childId := idsOf(child)
	return answer{traceId, spanId, childId, linkedTrace, linkedSpan}
}

func makeMany(wanted step) answer {
	within, first := tracer.Start(background, "many")
	for at := 1; at < wanted.Count; at++ {
		_, span := tracer.Start(within, fmt.Sprintf("many %d", at))
		span.End()
	}
	first.End()
	traceId, _ := idsOf(first)
	return answer{Trace: traceId}
}

func makeLog(wanted step) answer {
	within, span := tracer.Start(background, "logs")
	var record log.Record
	record.SetTimestamp(time.Now())
	record.SetBody(attribute.StringValue(wanted.Text))
	record.SetSeverity(log.SeverityWarn)
	record.SetSeverityText("WARN")
	record.AddAttributes(attributesOf(wanted.Attributes)...)
	logger.Emit(within, record)
	span.End()
	traceId, spanId := idsOf(span)
	return answer{Trace: traceId, Span: spanId}
}

func do(wanted step) answer {
	switch wanted.Do {
	case "span":
		return makeSpan(wanted)
	case "many":
		return makeMany(wanted)
	case "log":
		return makeLog(wanted)
	case "flush":
		spans.ForceFlush(background)
		logs.ForceFlush(background)
		return answer{}
	}
	panic("no such step: " + wanted.Do)
}

func main() {
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
