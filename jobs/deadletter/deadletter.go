// Package deadletter keeps the dead letters of a pool: the jobs that have ended in a way that
// a person should look at, and what could not become a job.
//
// A letter is filed when its job ends, before the job's message is removed, and stays until
// it is dropped, its job is brought back, or its time is over.
package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/record"
)

// Letters are the dead letters of a pool. The methods may be called from any goroutine.
type Letters struct {
	conn    *wire.Conn
	names   subject.Names
	records record.Store
}

// New returns the dead letters that a connection leads to.
func New(conn *wire.Conn, names subject.Names, records record.Store) Letters {
	return Letters{conn, names, records}
}

// Has reports whether a job has ended so that it has a dead letter.
func Has(rec jobs.Record) bool {
	return rec.State == jobs.Finished && (rec.Outcome == jobs.Error || rec.Outcome == jobs.TimedOut)
}

// KeepJob stores the dead letter of a job, which may be done again.
func (l Letters) KeepJob(ctx context.Context, rec jobs.Record) error {
	return l.Keep(ctx, l.ofJob(rec))
}

// DropJob removes the dead letter of a job that goes on, if it has one.
func (l Letters) DropJob(ctx context.Context, rec jobs.Record) error {
	return l.Drop(ctx, l.ofJob(rec))
}

func (l Letters) ofJob(rec jobs.Record) jobs.DeadLetter {
	return jobs.DeadLetter{
		ID: rec.ID, Kind: jobs.DeadJob, At: time.Now().UTC(), Reason: string(rec.Reason), Record: rec,
		StoredAt: l.names.DeadLetter(rec.Class, rec.Tenant, rec.ID),
	}
}

// Keep stores a dead letter, over the one that is stored at the same place.
func (l Letters) Keep(ctx context.Context, letter jobs.DeadLetter) error {
	body, err := json.Marshal(letter)
	if err != nil {
		return err
	}
	if err := l.conn.Publish(ctx, &nats.Msg{Subject: letter.StoredAt, Data: body}); err != nil {
		return fmt.Errorf("file dead letter %s: %w", letter.ID, err)
	}
	return nil
}

// List returns the dead letters, oldest first.
func (l Letters) List(ctx context.Context) ([]jobs.DeadLetter, error) {
	found, err := l.read(ctx, l.names.DeadAll())
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, letter := range found {
		if letter.Kind == jobs.DeadJob {
			ids = append(ids, letter.ID)
		}
	}
	records, err := l.records.Records(ctx, ids)
	return withoutAlive(found, records), err
}

// Get returns the dead letter with an id; there is none if the error is
// [jobs.ErrNotFound].
func (l Letters) Get(ctx context.Context, id string) (jobs.DeadLetter, error) {
	if jobs.CheckToken("id", id) != nil { // so it is no subject's end
		return jobs.DeadLetter{}, fmt.Errorf("dead letter %q: %w", id, jobs.ErrNotFound)
	}
	found, err := l.read(ctx, l.names.DeadLetter("*", "*", id))
	if err != nil {
		return jobs.DeadLetter{}, err
	}
	switch rec, err := l.records.Read(ctx, id); {
	case err == nil:
		found = withoutAlive(found, []jobs.Record{rec.Record})
	case !errors.Is(err, jobs.ErrNotFound):
		return jobs.DeadLetter{}, err
	}
	if len(found) == 0 {
		return jobs.DeadLetter{}, fmt.Errorf("dead letter %q: %w", id, jobs.ErrNotFound)
	}
	return found[0], nil
}

// read reads the dead letters of a subject, the oldest first.
func (l Letters) read(ctx context.Context, of string) ([]jobs.DeadLetter, error) {
	var found []jobs.DeadLetter
	for m, err := range l.conn.Scan(ctx, wire.Range{Stream: subject.Dead, Subject: of}) {
		if err != nil {
			return nil, fmt.Errorf("list dead letters: %w", err)
		}
		found = append(found, readLetter(m))
	}
	return found, nil
}

// withoutAlive removes the letters of jobs that are alive. A process that brings a job back
// writes the record first, and may die then.
func withoutAlive(letters []jobs.DeadLetter, records []jobs.Record) []jobs.DeadLetter {
	alive := map[string]bool{}
	for _, rec := range records {
		alive[rec.ID] = !Has(rec)
	}
	return slices.DeleteFunc(letters, func(l jobs.DeadLetter) bool { return l.Kind == jobs.DeadJob && alive[l.ID] })
}

func readLetter(m wire.Message) jobs.DeadLetter {
	var letter jobs.DeadLetter
	if err := json.Unmarshal(m.Data, &letter); err != nil {
		letter = jobs.DeadLetter{Kind: jobs.DeadMessage, Subject: m.Subject, Reason: "unreadable: " + err.Error(), At: m.Time}
	}
	letter.StoredAt, letter.Seq = m.Subject, m.Seq
	letter.Record.Repo, letter.Data = jobs.WithoutCredentials(letter.Record.Repo), jobs.CensorAddresses(letter.Data)
	if letter.ID == "" { // of a version that kept it in the subject only
		parts := strings.Split(m.Subject, ".")
		letter.ID, letter.Kind = parts[len(parts)-1], jobs.DeadMessage
		switch {
		case letter.Record.ID != "":
			letter.Kind = jobs.DeadJob
		case len(parts) > 3 && parts[len(parts)-3] == "rejected":
			letter.Kind = jobs.DeadSubmission
		}
	}
	return letter
}

// Drop removes a dead letter. A job stays as it is.
func (l Letters) Drop(ctx context.Context, letter jobs.DeadLetter) error {
	if err := l.conn.Purge(ctx, subject.Dead, letter.StoredAt); err != nil {
		return fmt.Errorf("drop dead letter %s: %w", letter.ID, err)
	}
	return nil
}
