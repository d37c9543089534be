package traces

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// ErrNotBuilt is the error of [Open] in a program that was built with the tag nootel.
var ErrNotBuilt = errors.New("this program was built without the export of traces (tag nootel)")

// The variables of OpenTelemetry that say where traces go.
const (
	endpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
)

// Settings are those of the export that are not left to OpenTelemetry's library, which
// reads the others from the environment itself.
type Settings struct {
	Queue int // spans that may wait for the collector
}

const defaultQueue = 2048 // as OpenTelemetry has it

// Read returns what the standard variables of OpenTelemetry say; nil: they do not ask
// for traces. A value that cannot be followed is an error, since the library would go on
// without it and tell nobody.
func Read(variable func(name string) string) (*Settings, error) {
	e := environment(func(name string) string { return strings.TrimSpace(variable(name)) })
	if strings.EqualFold(e("OTEL_SDK_DISABLED"), "true") || e("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	address := tracesEndpoint
	if e(address) == "" {
		address = endpoint
	}
	if e(address) == "" {
		return nil, nil
	}
	err := errors.Join(e.url(address), e.sampler(),
		e.oneOf("OTEL_TRACES_EXPORTER", "otlp"),
		e.oneOf(e.first("PROTOCOL"), "http/protobuf", "http/json"),
		e.oneOf(e.first("COMPRESSION"), "gzip", "none"))
	numbers := []string{e.first("TIMEOUT"), "OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT"}
	for _, name := range numbers {
		err = errors.Join(err, e.number(name))
	}
	if err != nil {
		return nil, err
	}
	queue, _ := strconv.Atoi(e("OTEL_BSP_MAX_QUEUE_SIZE")) // 0 where it is not set
	return &Settings{Queue: cmp.Or(queue, defaultQueue)}, nil
}

// environment returns the value of a variable.
type environment func(name string) string

// first is the name of the variable that counts: the one for traces, where it is set.
func (e environment) first(setting string) string {
	if name := "OTEL_EXPORTER_OTLP_TRACES_" + setting; e(name) != "" {
		return name
	}
	return "OTEL_EXPORTER_OTLP_" + setting
}

func (e environment) url(name string) error {
	u, err := url.Parse(e(name))
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		// It may have a password in it, so the value is not shown.
		return fmt.Errorf("%s: is not a URL such as http://collector:4318", name)
	case u.User != nil:
		return fmt.Errorf("%s: has a user in it, which would not be sent: use OTEL_EXPORTER_OTLP_HEADERS", name)
	}
	return nil
}

func (e environment) oneOf(name string, values ...string) error {
	if e(name) == "" || slices.Contains(values, e(name)) {
		return nil
	}
	return fmt.Errorf("%s: %q is not supported: use %s", name, e(name), strings.Join(values, " or "))
}

func (e environment) number(name string) error {
	n, err := strconv.Atoi(cmp.Or(e(name), "1"))
	if err != nil || n < 1 {
		return fmt.Errorf("%s: %q is not a whole number above 0", name, e(name))
	}
	return nil
}

func (e environment) sampler() error {
	const name, arg = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"
	if err := e.oneOf(name, "always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"); err != nil {
		return err
	}
	ratio, err := strconv.ParseFloat(cmp.Or(e(arg), "1"), 64)
	if strings.HasSuffix(e(name), "traceidratio") && (err != nil || !(ratio >= 0 && ratio <= 1)) {
		return fmt.Errorf("%s: %q is not a number from 0 to 1", arg, e(arg))
	}
	return nil
}
