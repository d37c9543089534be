package backup

import (
	"maps"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// brokerHeaders are the headers that the broker adds to a message that it sends.
var brokerHeaders = []string{"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Num-Pending", "Nats-Last-Sequence", "Nats-UpTo-Sequence"}

// storedHeaders returns the headers of a message that was scanned as the broker has
// stored them, or nothing where it had none.
func storedHeaders(m wire.Message) []byte {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(m.Header)) {
		if slices.Contains(brokerHeaders, name) {
			continue
		}
		for _, value := range m.Header[name] {
			text.WriteString(name + ": " + value + "\r\n")
		}
	}
	if text.Len() == 0 {
		return nil
	}
	return []byte("NATS/1.0\r\n" + text.String() + "\r\n")
}
