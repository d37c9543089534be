package artifact

import (
	"context"
	"encoding/base64"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// forgetNamesAfter is how long the names of all objects are kept in memory after a purge: the
// next one as a rule follows at once.
const forgetNamesAfter = 30 * time.Second

var descriptionsOf = wire.Range{Stream: stream, Subject: "$O." + subject.Artifacts + ".M.*"}

// objectNames knows the subjects of the descriptions of objects, by job, while jobs are purged. The
// broker cannot select those of one job, whose id is inside of an encoded name. So all are read for
// the first job, and for each of the next ones only what was stored since. What has been removed
// meanwhile is still named: to remove it again does nothing.
type objectNames struct {
	conn *wire.Conn
	turn chan struct{} // held while the rest is used

	known map[string][]string // nil: nothing is
	read  uint64              // the last message that was read
	timer *time.Timer         // forgets them
}

func newObjectNames(conn *wire.Conn) *objectNames {
	return &objectNames{conn: conn, turn: make(chan struct{}, 1)}
}

// of returns the subjects of a job's descriptions: all that were stored when it was called.
func (n *objectNames) of(ctx context.Context, job string) ([]string, error) {
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if n.timer == nil {
		n.timer = time.AfterFunc(forgetNamesAfter, n.forget)
	}
	n.timer.Reset(forgetNamesAfter)
	if n.known == nil {
		n.known, n.read = map[string][]string{}, 0
	}
	span := descriptionsOf
	span.From = n.read + 1
	for m, err := range n.conn.Scan(ctx, span) {
		if err != nil {
			return nil, err
		}
		n.note(m)
	}
	return n.known[job], nil
}

// note files a description under its job. One whose name cannot be decoded is not ours.
func (n *objectNames) note(m wire.Message) {
	n.read = m.Seq
	name, err := base64.URLEncoding.DecodeString(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
	if job, _, ok := strings.Cut(string(name), "/"); err == nil && ok {
		n.known[job] = append(n.known[job], m.Subject)
	}
}

// forget frees the memory, unless the names are used right now, which sets the timer anew.
func (n *objectNames) forget() {
	select {
	case n.turn <- struct{}{}:
		n.known = nil
		<-n.turn
	default:
	}
}
