package traces

import (
	"strings"
	"testing"
)

// reads returns what Read says of variables: off, on, or the error.
func reads(variables ...string) string {
	set := map[string]string{}
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		set[name] = value
	}
	settings, err := Read(func(name string) string { return set[name] })
	switch {
	case err != nil:
		return err.Error()
	case settings == nil:
		return "off"
	}
	return "on"
}

func TestRead(t *testing.T) {
	const on = "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318"
	for _, c := range []struct {
		want      string
		variables []string
	}{
		{"off", nil},
		{"off", []string{"OTEL_SERVICE_NAME=x", "OTEL_TRACES_SAMPLER=nonsense", "OTEL_TRACES_EXPORTER=otlp"}},
		{"off", []string{"OTEL_EXPORTER_OTLP_ENDPOINT= "}},
		{"off", []string{on, "OTEL_SDK_DISABLED= True"}},
		{"off", []string{on, "OTEL_TRACES_EXPORTER=none", "OTEL_TRACES_SAMPLER=nonsense"}},
		{"on", []string{on, "OTEL_SDK_DISABLED=1"}}, // which the specification takes for false
		{"on", []string{on}},
		{"on", []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://c/x", "OTEL_EXPORTER_OTLP_ENDPOINT=nonsense"}},
		{"on", []string{on, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_COMPRESSION=gzip"}},
		{"on", []string{on, "OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.25", "OTEL_BSP_MAX_QUEUE_SIZE=9"}},
		{"on", []string{on, "OTEL_TRACES_SAMPLER=always_on", "OTEL_TRACES_SAMPLER_ARG=x"}},
		{"ENDPOINT: is not a URL", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=c:4318"}},
		{"ENDPOINT: is not a URL", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://"}},
		{"ENDPOINT: is not a URL", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=grpc://c"}},
		{"ENDPOINT: is not a URL", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c\x00"}},
		{"TRACES_ENDPOINT: has a user in it", []string{on, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://u:p@c"}},
		{`OTEL_TRACES_EXPORTER: "zipkin" is not supported`, []string{on, "OTEL_TRACES_EXPORTER=zipkin"}},
		{`OTEL_EXPORTER_OTLP_PROTOCOL: "grpc" is not supported: use http/protobuf`, []string{on, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}},
		{`COMPRESSION: "zstd"`, []string{on, "OTEL_EXPORTER_OTLP_COMPRESSION=zstd"}},
		{`OTEL_TRACES_SAMPLER: "nonsense"`, []string{on, "OTEL_TRACES_SAMPLER=nonsense"}},
		{"SAMPLER_ARG", []string{on, "OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=1.1"}},
		{"SAMPLER_ARG", []string{on, "OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=NaN"}},
		{`TRACES_TIMEOUT: "1s" is not a whole number`, []string{on, "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT=1s"}},
		{"QUEUE_SIZE", []string{on, "OTEL_BSP_MAX_QUEUE_SIZE=0"}},
		{"SCHEDULE_DELAY", []string{on, "OTEL_BSP_SCHEDULE_DELAY=-1"}},
	} {
		if got := reads(c.variables...); got != c.want && (len(c.want) < 4 || !strings.Contains(got, c.want)) {
			t.Errorf("%q: got %s, want %s", c.variables, got, c.want)
		}
	}
}
