package lane

import (
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs/internal/subject"
)

// Again is the notification that a lane has again what it has handed out before. The broker
// itself notifies of what enters a lane.
func Again(names subject.Names, class, lane string) *nats.Msg {
	queue, _ := subject.SplitClass(class)
	msg := nats.NewMsg(names.WakeAgain(queue, lane))
	msg.Header.Set(jetstream.StreamHeader, subject.QueueStream(class, lane))
	return msg
}

// Notified returns the lane that a notification is about, and its class. A process of an older
// release does not say the class: it is "" then.
func Notified(msg *nats.Msg) (class, lane string) {
	if class, lane, ok := subject.ParseQueueStream(msg.Header.Get(jetstream.StreamHeader)); ok {
		return class, lane
	}
	lane, _, _ = strings.Cut(strings.TrimPrefix(msg.Subject, strings.TrimSuffix(msg.Sub.Subject, ">")), ".")
	return "", lane
}
