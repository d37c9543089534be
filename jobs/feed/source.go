package feed

import (
	"encoding/json"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/audit"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/why"
)

// A source is a part of a stream that tells of changes.
type source struct {
	stream, filter string
	// notify is a subject on which something is heard when there is more. Of most
	// streams that is what is published to them, which may be heard a moment before
	// it is stored; then the next look finds it.
	notify string
	read   func(wire.Message) (Kind, Change, bool)
}

func (s source) span(from uint64) wire.Range {
	return wire.Range{Stream: s.stream, Subject: s.filter, From: from}
}

// sources are what a feed reads. A place has a number for each, in this order: to add or
// remove one makes the places of an older release end, which resets their readers.
func sources(names subject.Names) []source {
	published := func(stream, filter string, read func(wire.Message) (Kind, Change, bool)) source {
		return source{stream, filter, filter, read}
	}
	return []source{
		{subject.KVStream(subject.Jobs), ">", names.ChangedAll(), readJob}, // all of it is read with less work for the broker
		published(subject.KVStream(subject.Workers), subject.Key(subject.Workers, "*"), readWorker),
		published(subject.Audit, names.Audited("*"), readAudit),
		published(subject.Dead, names.DeadAll(), readLetter),
		published(subject.KVStream(subject.Timetable), subject.Timetabled("*", "*"), readSchedule),
		published(subject.KVStream(subject.Settings), subject.CapsKey, readCaps),
	}
}

func readJob(m wire.Message) (Kind, Change, bool) {
	var r jobs.Record
	if m.Gone() || json.Unmarshal(m.Data, &r) != nil {
		return "", Change{}, false
	}
	c := Change{
		ID: r.ID, State: r.State, Queue: r.Queue, Batch: r.Batch, Attempt: r.Attempt, Worker: r.Worker, Hold: r.Hold,
		Outcome: r.Outcome, Reason: r.Reason, Asks: r.Asks != nil || r.Asking(), Cancel: r.Cancel != nil && r.State != jobs.Finished,
	}
	return Job, c, true
}

func readWorker(m wire.Message) (Kind, Change, bool) {
	var w why.Worker
	if m.Gone() {
		return Worker, Change{Gone: true}, true
	}
	if json.Unmarshal(m.Data, &w) != nil {
		return "", Change{}, false
	}
	return Worker, Change{Name: w.Name}, true
}

// readAudit tells of changes that an operation made of what has no other trace: pauses
// and schedules that are over are removed.
func readAudit(m wire.Message) (Kind, Change, bool) {
	e := audit.Decode(m)
	of, _, _ := strings.Cut(e.Operation, "-")
	kind := Kind(of)
	c := Change{Name: e.About, Operation: e.Operation}
	switch kind {
	case Dead:
		c.ID, c.Name = c.Name, ""
	case Queue, Batch, Schedule:
	default:
		return "", Change{}, false
	}
	return kind, c, e.Outcome == audit.Done
}

func readLetter(m wire.Message) (Kind, Change, bool) {
	return Dead, Change{ID: lastPart(m.Subject)}, true
}

func readSchedule(m wire.Message) (Kind, Change, bool) {
	return Schedule, Change{Name: lastPart(m.Subject)}, true
}

func readCaps(wire.Message) (Kind, Change, bool) { return Caps, Change{}, true }

func lastPart(of string) string { return of[strings.LastIndexByte(of, '.')+1:] }
